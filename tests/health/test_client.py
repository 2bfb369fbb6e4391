"""`client.alerts`, in both colours: one open alert a thing, part of the caller's transaction, told once."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from tests.client.conftest import Awaited
from tests.health.conftest import NOON, Told, minutes, opened

import mainspring as ms
from mainspring.health.watch import Watch
from mainspring.testing import Harness

NEEDS = "payment-needs-a-person"


class Alerts(Awaited):
    """`client.alerts`, always awaited."""


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.mark.anyio
async def test_opening_again_only_counts_and_closing_ends_it(
    mainspring: Harness, mainspring_app: ms.App, told: Told, colour: str
) -> None:
    client: Any = mainspring_app.client() if colour == "sync" else mainspring_app.async_client()
    alerts = Alerts(client.alerts)

    assert await alerts.open(NEEDS, "booking 17", text="the card was removed", severity="critical", detail={"try": 2})
    mainspring.clock.set(minutes(5))
    assert not await alerts.open(NEEDS, "booking 17", text="still")
    assert await alerts.open(NEEDS, "booking 18")
    assert await alerts.open(NEEDS)

    (row,) = [one for one in await alerts.list(name=NEEDS) if one.subject == "booking 17"]
    assert (row.org_id, row.severity, row.text, row.detail) == (
        "default", "critical", "the card was removed", {"try": 2},
    )  # fmt: skip
    assert (row.opened_at, row.last_at, row.count, row.is_open) == (NOON, minutes(5), 2, True)

    assert await alerts.close(NEEDS, "booking 17")
    assert not await alerts.close(NEEDS, "booking 17")
    assert [(one.subject, one.closed_at) for one in await alerts.list(open=False)] == [("booking 17", minutes(5))]
    assert len(await alerts.list(limit=1)) == 1
    assert told.short == [
        (NEEDS, "booking 17", True), (NEEDS, "booking 18", True), (NEEDS, "", True), (NEEDS, "booking 17", False),
    ]  # fmt: skip
    assert (told.events[0].text, told.events[0].org_id) == ("the card was removed", "default")
    assert [event.text for event in told.events][1:] == [NEEDS, NEEDS, "over: the card was removed"]
    await alerts.open(NEEDS, "booking 17")
    assert [one.count for one in await alerts.list(name=NEEDS) if one.subject == "booking 17"] == [1]
    if colour == "sync":
        client.close()
    else:
        await client.close()


def test_an_alert_is_part_of_the_callers_transaction(mainspring: Harness, told: Told) -> None:
    alerts = mainspring.client.alerts
    with psycopg.connect(mainspring.dsn) as conn:
        assert alerts.open(NEEDS, "booking 1", conn=conn)
        assert opened(mainspring) == []
        conn.rollback()
        assert alerts.open(NEEDS, "booking 2", conn=conn)
        conn.commit()

    assert opened(mainspring) == [(NEEDS, "booking 2", 1)]
    assert told.short == []  # nobody tells us of the commit: a worker looks


class TestTold:
    @pytest.fixture
    def watches(self) -> list[Watch]:
        return [ms.watch("nothing-wrong", "select ''::text where false")]

    @pytest.fixture
    def settle(self, tasks: ms.Registry, mainspring_app: ms.App) -> ms.Task[..., Any]:
        @tasks.task(retry=ms.fixed(3600, attempts=2))
        async def settle(ctx: ms.Context, *, booking: int, fail: bool = False) -> None:
            client = mainspring_app.async_client()
            async with ctx.transaction() as conn:
                await client.alerts.open("asked", f"booking {booking}", conn=conn)
            async with ctx.complete() as conn:
                await client.alerts.open(NEEDS, f"booking {booking}", conn=conn)
                if fail:
                    raise RuntimeError("after the alert")
            await client.close()

        return settle

    def test_what_a_handler_opens_commits_with_it_and_a_watching_worker_tells(
        self, mainspring: Harness, told: Told, settle: ms.Task[..., Any]
    ) -> None:
        mainspring.run_one(settle.job(booking=1).for_org("acme"))
        mainspring.run_one(settle.job(booking=2, fail=True), raise_errors=False)

        assert opened(mainspring) == [("asked", "booking 1", 1), ("asked", "booking 2", 1), (NEEDS, "booking 1", 1)]
        assert {alert.org_id for alert in mainspring.client.alerts.list() if alert.subject == "booking 1"} == {"acme"}
        assert told.short == []

        mainspring.client.alerts.close("asked", "booking 2", conn=mainspring.conn)  # before anybody was told
        mainspring.advance(minutes=2)

        assert sorted(told.short) == sorted([
            ("asked", "booking 1", True), (NEEDS, "booking 1", True), ("asked", "booking 2", True),
            ("asked", "booking 2", False),
        ])  # fmt: skip
        mainspring.client.alerts.close(NEEDS, "booking 1", org="acme", conn=mainspring.conn)
        mainspring.advance(minutes=2)
        assert told.short[4:] == [(NEEDS, "booking 1", False)]


def test_without_watches_the_built_in_maintenance_tells(
    mainspring: Harness, mainspring_app: ms.App, told: Told
) -> None:
    mainspring.client.alerts.open(NEEDS, conn=mainspring.conn)
    task = mainspring_app.registry.get("mainspring.tell_alerts")

    for _ in range(2):
        mainspring.run_one(task.job().for_org("SYSTEM"))

    assert told.short == [(NEEDS, "", True)]


def test_organisations_have_alerts_of_their_own(mainspring: Harness) -> None:
    alerts = mainspring.client.alerts
    assert alerts.open(NEEDS, "booking 1", org="acme")
    assert alerts.open(NEEDS, "booking 1", org="globex")
    assert not alerts.close(NEEDS, "booking 1")  # of `default`
    with ms.calling(ms.Caller(org_id="acme", actor_type="user", actor_id="ada")):
        assert alerts.close(NEEDS, "booking 1", reason="the customer called, password=hunter2")

    found = alerts.list(open=None, name=NEEDS)
    assert {one.org_id: one.closed_by for one in found} == {"globex": None, "acme": "ada"}
    assert len(found) == 2
    (event,) = mainspring.client.audit.events(event="alert.closed")
    assert (event.org_id, event.by, event.detail["alert"], event.subject, event.detail["reason"]) == (
        "acme", "ada", NEEDS, "booking 1", "the customer called, password=***",
    )  # fmt: skip


def test_many_who_find_the_same_wrong_at_once_open_one(mainspring: Harness) -> None:
    answers: list[bool] = []

    def find() -> None:
        with psycopg.connect(mainspring.dsn) as conn:
            barrier.wait()
            for _ in range(5):
                with conn.transaction():
                    answers.append(mainspring.client.alerts.open(NEEDS, "booking 1", conn=conn))

    barrier = threading.Barrier(4)
    threads = [threading.Thread(target=find) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(answers) == [False] * 19 + [True]
    assert opened(mainspring) == [(NEEDS, "booking 1", 20)]


def test_secrets_are_masked_and_bad_input_is_refused(mainspring: Harness) -> None:
    alerts = mainspring.client.alerts
    detail = {"api_key": "sk_live_0123456789abcdef", "note": "jane@example.com"}
    alerts.open(NEEDS, "user jane@example.com", text="password=hunter2 " + "x" * 5000, detail=detail)

    (alert,) = alerts.list()
    assert alert.subject == "user j***@example.com"
    assert alert.text.startswith("password=*** xxx")
    assert len(alert.text.encode()) <= 2000
    assert alert.detail == {"api_key": "***", "note": "j***@example.com"}
    for wrong, field in (
        ({"name": "Needs A Person"}, "name"),
        ({"name": ""}, "name"),
        ({"name": NEEDS, "subject": "a\x00b"}, "subject"),
        ({"name": NEEDS, "subject": "x" * 201}, "subject"),
        ({"name": NEEDS, "text": 7}, "text"),
        ({"name": NEEDS, "severity": "page"}, "severity"),
        ({"name": NEEDS, "detail": {"far": "x" * 20_000}}, "detail"),
        ({"name": NEEDS, "org": ""}, "org"),
    ):
        with pytest.raises(ms.ValidationError) as caught:
            alerts.open(**wrong)
        assert caught.value.field == field
    assert len(alerts.list(open=None)) == 1


def test_alerts_are_opened_in_sql_too(mainspring: Harness) -> None:
    ask = "select mainspring.open_alert('default', 'from-a-trigger', 'row 1', 'as SQL says', 'critical')"
    assert mainspring.conn.execute(ask).fetchall() == [(True,)]
    assert mainspring.conn.execute(ask).fetchall() == [(False,)]
    with pytest.raises(psycopg.Error, match="severity: is not critical or warning"):
        mainspring.conn.execute("select mainspring.open_alert('default', 'x', '', '', 'page')")

    assert opened(mainspring) == [("from-a-trigger", "row 1", 2)]


def test_closed_alerts_are_pruned_after_their_time_and_open_ones_never(
    mainspring: Harness, mainspring_app: ms.App
) -> None:
    alerts = mainspring.client.alerts
    for subject in ("old", "young", "open"):
        alerts.open(NEEDS, subject)
    alerts.close(NEEDS, "old")
    mainspring.clock.set(NOON + timedelta(days=1))
    alerts.close(NEEDS, "young")
    prune = mainspring_app.registry.get("mainspring.prune_alerts")

    mainspring.clock.set(NOON + timedelta(days=90))
    assert mainspring.run_one(prune.job().for_org("SYSTEM")).result == {"removed": 0}
    mainspring.clock.set(NOON + timedelta(days=90, seconds=1))
    assert mainspring.run_one(prune.job().for_org("SYSTEM")).result == {"removed": 1}

    assert {alert.subject for alert in alerts.list(open=None)} == {"young", "open"}


def test_what_an_async_caller_opens_joins_their_transaction(mainspring: Harness, mainspring_app: ms.App) -> None:
    async def act() -> None:
        async with mainspring_app.async_client() as client:
            async with await psycopg.AsyncConnection.connect(mainspring.dsn) as conn:
                await client.alerts.open(NEEDS, "kept", conn=conn)
            async with await psycopg.AsyncConnection.connect(mainspring.dsn) as conn:
                await client.alerts.open(NEEDS, "undone", conn=conn)
                await conn.rollback()

    asyncio.run(act())

    assert opened(mainspring) == [(NEEDS, "kept", 1)]
