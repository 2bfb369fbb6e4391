"""Crashes at every step, leases that are lost on the way, and two workers at once: at most one more, never none."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from tests.contrib.notify.conftest import MIDNIGHT, TEMPLATES, Recording, rows
from tests.databases import Database

import mainspring as ms
from mainspring.config import WorkerConfig
from mainspring.contrib.notify import Notification, Notify, Template, Undeliverable
from mainspring.db import notify as db
from mainspring.errors import DatabaseUnavailable
from mainspring.outcome import Failure
from mainspring.testing import Crash, Harness
from mainspring.virtual.clock import Clock

POINTS = ["before the reservation", "before the call", "after the call", "before the stamp"]


class Crashing:
    """A template and a sender that die once at a point."""

    def __init__(self, mail: Recording, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.dead = False
        self.seen: list[str] = []
        if point == "before the call":
            mail.fails = [Crash()]
        elif point == "after the call":
            mail.lost = [Crash()]
        elif point == "before the stamp":
            stamp = db.stamp

            def dies(*given: Any) -> Any:
                self.die()
                return stamp(*given)

            monkeypatch.setattr(db, "stamp", dies)
        self.point = point

    def die(self) -> None:
        if not self.dead:
            self.dead = True
            raise Crash

    async def fill(self, conn: Any, note: Notification) -> dict[str, int]:
        """Another value on every attempt, as a signed link has."""
        self.seen.append(note.status)
        if self.point == "before the reservation":
            self.die()
        return {"n": len(self.seen)}


@pytest.mark.rule("RENT-5.07", "PLAN-3.12")
@pytest.mark.parametrize("finds", [False, True])
@pytest.mark.parametrize("point", POINTS)
def test_a_crash_anywhere_means_at_most_one_more_message_and_never_none(
    mainspring: Harness, mail: Recording, point: str, finds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    mail.finds = finds
    crashing = Crashing(mail, point, monkeypatch)
    template = Template("t", "T", "Message {{ n }}", html="<p>{{ n }}</p>", fill=crashing.fill)
    notify = Notify(senders=[mail], templates=[template])
    with Harness(mainspring.dsn, ms.App(blocks=[notify], maintenance=False)) as harness:
        (asked,) = notify.send("ana", "t", by=harness.client)
        harness.advance(minutes=10, raise_errors=False)

        reached = point in ("after the call", "before the stamp")
        assert len(mail.taken) == (2 if reached and not finds else 1)
        assert {one.key for one in mail.taken} == {str(asked.id)}
        assert len({(one.text, one.html) for one in mail.taken}) == 1  # under one key the same words
        asks = [call.split()[0] for call in mail.calls].count("find")
        assert asks == (0 if point == "before the reservation" else 1)
        assert rows(harness, "status") == ["sent"]
        assert harness.client.get(asked.job_id).state == "succeeded"


@pytest.mark.rule("PLAN-3.14")
def test_two_runs_put_one_row_into_the_inbox(
    mainspring: Harness, notify: Notify, mail: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    Crashing(mail, "before the stamp", monkeypatch)  # after the insert, in the same transaction
    notify.send("ana", "everywhere", by=mainspring.client, channels=["in_app"])
    mainspring.advance(minutes=10, raise_errors=False)

    assert len(notify.inbox("ana", by=mainspring.client)) == 1
    assert rows(mainspring, "status, attempts") == [("sent", 2)]


@pytest.mark.rule("RENT-5.07")
@pytest.mark.parametrize("error", [Failure("the line broke", code="HttpException"), TimeoutError()])
def test_a_lost_answer_is_asked_about_and_sent_again_under_the_same_key(
    mainspring: Harness, notify: Notify, mail: Recording, error: Exception
) -> None:
    mail.finds, mail.lost = True, [error]
    (asked,) = notify.send("ana", "greeting", {"name": "Ana"}, by=mainspring.client)
    mainspring.advance(hours=1, raise_errors=False)

    assert mail.calls == [f"send {asked.id}", f"find {asked.id}"]
    assert rows(mainspring, "status, provider_id") == [("sent", "found")]


def test_while_an_earlier_end_is_unknown_a_refusal_proves_nothing(
    mainspring: Harness, notify: Notify, mail: Recording
) -> None:
    mail.lost = [Failure("the line broke", code="HttpException")]
    mail.fails = [None, ms.RetryAfter(60)]
    notify.send("ana", "greeting", {"name": "Ana"}, by=mainspring.client)
    mainspring.advance(hours=2, raise_errors=False)

    asks = [call.split()[0] for call in mail.calls]
    assert asks == ["send", "find", "send", "find", "send"]
    assert rows(mainspring, "status, attempts") == [("sent", 3)]


def test_a_job_that_kills_workers_is_a_failed_notification_until_it_is_replayed(
    mainspring: Harness, notify: Notify, mail: Recording
) -> None:
    mail.fails = [Crash(), Crash(), Crash()]
    (asked,) = notify.send("ana", "greeting", {"name": "Ana"}, by=mainspring.client)
    mainspring.advance(hours=1, raise_errors=False)

    assert mainspring.client.get(asked.job_id).state == "dead"
    assert rows(mainspring, "status, error") == [("failed", "LEASE_EXPIRED")]

    mainspring.client.replay(asked.job_id, reason="mended")
    mainspring.drain()
    assert rows(mainspring, "status, error") == [("sent", None)]


def test_a_database_that_is_lost_before_the_stamp_costs_one_message_at_most(
    mainspring: Harness, notify: Notify, mail: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    stamp, lost = db.stamp, [DatabaseUnavailable("gone")]

    def breaks(*given: Any) -> Any:
        if lost:
            raise lost.pop()
        return stamp(*given)

    monkeypatch.setattr(db, "stamp", breaks)
    notify.send("ana", "greeting", {"name": "Ana"}, by=mainspring.client)
    mainspring.advance(hours=1, raise_errors=False)

    assert len(mail.taken) == 2
    assert len({one.key for one in mail.taken}) == 1
    assert rows(mainspring, "status") == ["sent"]


# -- real workers -----------------------------------------------------------------------------------------------------

FAST = WorkerConfig(wakeups=False, poll_interval=timedelta(milliseconds=20), grace=timedelta(seconds=1), processes=1)


class Town:
    """A database with a recipient, at noon, for workers in the test's own loop."""

    def __init__(self, app: ms.App, conn: psycopg.Connection[Any]) -> None:
        self.app, self.conn = app, conn

    async def work(self, app: ms.App | None = None) -> None:
        """Let one worker after another run what is due."""
        async with asyncio.timeout(30):
            for _ in range(2):
                await (app or self.app).worker(FAST).drain()

    def steal(self) -> None:
        """Let the leases of all running jobs expire, and take the jobs back."""
        Clock(self.conn).advance(seconds=61)
        self.conn.execute("select mainspring.rescue(1000, 3)")


@pytest.fixture
def town(database: Database, notify: Notify) -> Iterator[Town]:
    app = ms.App(dsn=database.dsn, blocks=[notify], maintenance=False)
    with app.client() as client, database.connect() as conn:
        Clock(conn).set(MIDNIGHT + timedelta(hours=12))
        notify.save_recipient("ana", email="ana@example.com", phone="+351900000007", by=client)
        yield Town(app, conn)


@pytest.mark.anyio
@pytest.mark.rule("RENT-5.03")
async def test_of_two_workers_at_once_one_sends(town: Town, notify: Notify, mail: Recording, sms: Recording) -> None:
    with town.app.client() as client:
        for n in range(25):
            notify.send("ana", "both", {"name": n}, by=client)
    workers = [town.app.worker(FAST) for _ in range(2)]
    async with asyncio.timeout(30):
        await asyncio.gather(*(worker.drain() for worker in workers))

    assert len(mail.taken) == len({one.key for one in mail.taken}) == 25
    assert len(sms.taken) == len({one.key for one in sms.taken}) == 25


@pytest.mark.anyio
async def test_one_whose_lease_is_lost_while_it_sends_cannot_stamp_what_another_has(
    town: Town, notify: Notify, mail: Recording
) -> None:
    mail.during = lambda: town.steal() if len(mail.taken) == 1 else None
    with town.app.client() as client:
        (asked,) = notify.send("ana", "greeting", {"name": "Ana"}, by=client)
        await town.work()
        state = client.get(asked.job_id)

    assert len(mail.taken) == 2
    assert len({one.key for one in mail.taken}) == 1
    assert state.state == "succeeded"
    assert (state.attempt, state.crashes) in {(2, 1), (2, 0), (1, 0)}  # who lives takes the crash back, sooner or later


@pytest.mark.anyio
async def test_a_worker_that_lost_the_lease_before_its_reservation_sends_nothing(town: Town, mail: Recording) -> None:
    seen: list[int] = []

    async def slow(conn: Any, note: Notification) -> dict[str, Any]:
        seen.append(1)
        if len(seen) == 1:
            town.steal()
        return {}

    notify = Notify(senders=[mail], templates=[Template("t", "T", "x", fill=slow)])
    app = ms.App(dsn=town.app.dsn, blocks=[notify], maintenance=False)
    with app.client() as client:
        notify.send("ana", "t", by=client)
        await town.work(app)

    assert len(mail.taken) == 1
    assert len(seen) == 2


def test_the_spam_limit_holds_for_workers_that_reserve_at_once(database: Database, mail: Recording) -> None:
    notify = Notify(senders=[mail], templates=TEMPLATES)
    app = ms.App(dsn=database.dsn, blocks=[notify], maintenance=False)
    with app.client() as client:
        notify.save_recipient("ana", email="ana@example.com", by=client)
        asked = [notify.send("ana", "greeting", {"name": n}, by=client)[0] for n in range(32)]

    def reserve(one: Any) -> str:
        with psycopg.connect(database.dsn, autocommit=True) as conn:
            query = "select answer from mainspring.reserve_notification('default', %s, %s, 't', 't', null, 5, '1 hour')"
            row = conn.execute(query, [one.id, one.job_id]).fetchone()
            assert row is not None
            return str(row[0])

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(reserve, asked))

    assert answers.count("reserved") == 5
    assert answers.count("wait") == 27


def test_a_permanent_failure_after_an_unknown_end_is_still_a_failure(
    mainspring: Harness, notify: Notify, mail: Recording
) -> None:
    mail.lost = [Failure("the line broke", code="HttpException")]
    mail.fails = [None, Undeliverable("gone", code="EMAIL_ADDRESS_INVALID")]
    notify.send("ana", "greeting", {"name": "Ana"}, by=mainspring.client)
    mainspring.advance(hours=1, raise_errors=False)

    assert rows(mainspring, "status, error") == [("failed", "EMAIL_ADDRESS_INVALID")]


@pytest.mark.parametrize("reached", [True, False])
@pytest.mark.parametrize("objection", ["opted_out", "no_longer_holds"])
def test_what_is_not_wanted_any_more_but_is_out_is_logged_as_sent(
    mainspring: Harness, mail: Recording, objection: str, reached: bool
) -> None:
    wanted: list[bool] = [True]

    async def still(conn: Any, note: Notification) -> bool:
        return wanted[-1]

    notify = Notify(senders=[mail], templates=[Template("t", "T", "x", still=still)])
    mail.finds = True
    (mail.lost if reached else mail.fails).append(Failure("the line broke", code="HttpException", counts=False))
    with Harness(mainspring.dsn, ms.App(blocks=[notify], maintenance=False)) as harness:
        notify.send("ana", "t", by=harness.client)
        harness.drain(raise_errors=False)
        if objection == "opted_out":
            notify.save_recipient("ana", opt_out=["t"], by=harness.client)
        else:
            wanted.append(False)
        harness.advance(hours=1)

        assert len(mail.taken) == int(reached)
        assert [call.split()[0] for call in mail.calls] == ["send", "find"]
        assert rows(harness, "status, reason") == [("sent", None) if reached else ("skipped", objection)]
