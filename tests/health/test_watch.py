"""Watches: what is wrong opens an alert once, stays open while it is, and closes when it is over."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from tests.health.conftest import NOON, Told, case, minutes, opened

import mainspring as ms
from mainspring.errors import DeclarationError
from mainspring.health.watch import Watch
from mainspring.testing import Harness

ANYTHING: Any = lambda conn: []  # noqa: E731 (what no type checker lets through)
LATE = "select 'case ' || id, note from cases where kind = 'late' and due_at <= {schema}.now()"

ASKS = "select 'case ' || id from cases where due_at < now() - %(days)s * interval '1 day'"
ANY: Any = 1


async def lost(conn: psycopg.AsyncConnection[Any]) -> list[tuple[Any, ...]]:
    cursor = await conn.execute("select 'case ' || id, note, org from cases where kind = 'lost'")
    return await cursor.fetchall()


@pytest.fixture
def watches() -> list[Watch]:
    return [
        ms.watch("late-case", LATE, text="nobody has looked", severity="critical"),
        ms.watch("lost-case", lost, every=timedelta(minutes=5)),
        ms.watch("kept-case", "select id::text from cases where kind = 'kept'", close=False),
    ]


@pytest.mark.rule("STAFF-15.12")
def test_three_checks_in_breach_make_one_alert_which_closes_after_recovery(mainspring: Harness, told: Told) -> None:
    case(mainspring, 7, due_at=minutes(2))

    mainspring.advance(minutes=1)
    assert opened(mainspring) == []
    mainspring.advance(minutes=3)

    (alert,) = mainspring.client.alerts.list()
    assert (alert.name, alert.subject, alert.severity, alert.text) == (
        "late-case", "case 7", "critical", "nobody has looked",
    )  # fmt: skip
    assert (alert.opened_at, alert.last_at, alert.count) == (minutes(2), minutes(4), 3)
    assert told.short == [("late-case", "case 7", True)]

    mainspring.conn.execute("delete from cases")
    mainspring.advance(minutes=3)

    assert opened(mainspring) == []
    (over,) = mainspring.client.alerts.list(open=False)
    assert (over.id, over.count, over.closed_at, over.closed_by) == (alert.id, 3, minutes(5), "SYSTEM")
    assert told.short == [("late-case", "case 7", True), ("late-case", "case 7", False)]
    assert [(event.severity, event.text) for event in told.events] == [
        ("critical", "nobody has looked"), ("critical", "over: nobody has looked"),
    ]  # fmt: skip

    case(mainspring, 7)  # wrong again: a new alert
    mainspring.advance(minutes=1)
    assert [alert.count for alert in mainspring.client.alerts.list()] == [1]
    assert len(mainspring.client.alerts.list(open=None)) == 2


def test_each_row_is_an_alert_and_a_watch_runs_at_its_own_interval(mainspring: Harness) -> None:
    case(mainspring, 1, note="first")
    case(mainspring, 2)
    case(mainspring, 3, "lost", note="elsewhere", org="acme")
    case(mainspring, 4, "lost", note="here")

    mainspring.advance(minutes=4)
    assert opened(mainspring) == [("late-case", "case 1", 4), ("late-case", "case 2", 4)]
    mainspring.advance(minutes=6)

    found = {alert.subject: (alert.org_id, alert.text, alert.count) for alert in mainspring.client.alerts.list()}
    assert found == {
        "case 1": ("default", "first", 10),
        "case 2": ("default", "nobody has looked", 10),
        "case 3": ("acme", "elsewhere", 2),
        "case 4": ("default", "here", 2),
    }
    assert opened(mainspring, org="acme") == [("lost-case", "case 3", 2)]
    mainspring.conn.execute("delete from cases where id in (1, 3)")
    mainspring.advance(minutes=5)
    assert [subject for _, subject, _ in opened(mainspring)] == ["case 2", "case 4"]


def test_what_a_person_should_close_stays_open(mainspring: Harness) -> None:
    case(mainspring, 9, "kept")
    mainspring.advance(minutes=1)
    mainspring.conn.execute("delete from cases")
    mainspring.advance(minutes=2)

    assert opened(mainspring) == [("kept-case", "9", 1)]
    assert mainspring.client.alerts.close("kept-case", "9")


class TestBroken:
    @pytest.fixture
    def watches(self) -> list[Watch]:
        async def waits(conn: psycopg.AsyncConnection[Any]) -> list[Any]:
            raise TimeoutError("password=hunter2")

        return [
            ms.watch("no-table", "select subject from nowhere", severity="critical"),
            ms.watch("writes", "with gone as (delete from cases returning 1) select count(*)::text from gone"),
            ms.watch("function", waits),
            ms.watch("shape", "select 1, 2, 3, 4"),
            ms.watch("two", "select 'a'; delete from cases"),
            ms.watch("late-case", LATE),
        ]

    def test_one_that_cannot_be_asked_is_an_alert_and_stops_no_other(self, mainspring: Harness, told: Told) -> None:
        case(mainspring, 1)

        mainspring.advance(minutes=2)

        broken = {alert.subject: alert for alert in mainspring.client.alerts.list(name="watch-broken")}
        assert sorted(broken) == ["function", "no-table", "shape", "two", "writes"]
        assert all(alert.count == 2 and alert.opened_at == minutes(1) for alert in broken.values())
        assert [subject for subject, alert in broken.items() if alert.severity == "critical"] == ["no-table"]
        assert 'relation "nowhere" does not exist' in broken["no-table"].text
        assert broken["writes"].text.startswith("FeatureNotSupported")  # a part of a query writes nothing
        assert broken["function"].text == "TimeoutError: password=***"
        assert "a row is not (subject, text)" in broken["shape"].text
        assert opened(mainspring, name="late-case") == [("late-case", "case 1", 2)]
        assert mainspring.conn.execute("select count(*) from cases").fetchall() == [(1,)]
        assert sorted(told.short) == sorted(
            [("late-case", "case 1", True), *(("watch-broken", subject, True) for subject in broken)]
        )

        mainspring.conn.execute("create table nowhere (subject text)")
        mainspring.advance(minutes=1)

        assert [a.subject for a in mainspring.client.alerts.list(name="watch-broken", open=False)] == ["no-table"]


class TestParams:
    @pytest.fixture
    def settings(self) -> dict[str, Any]:
        return {"kind": "lost"}

    @pytest.fixture
    def watches(self, settings: dict[str, Any]) -> list[Watch]:
        of_kind = "select 'case ' || id, '100%%' from cases where kind = %(kind)s"
        return [
            ms.watch("given", f"{of_kind} and due_at <= {{schema}}.now() - %(age)s", params={
                "kind": "it's late", "age": timedelta(minutes=2), "unused": 1,
            }),
            ms.watch("asked", of_kind, params=lambda: settings),
            ms.watch("none", "select '100%%', '%s' from cases where kind like 'lo%' and id % 2 = 1"),
        ]  # fmt: skip

    def test_values_are_bound_by_the_driver_and_a_function_is_asked_each_time(
        self, mainspring: Harness, settings: dict[str, Any]
    ) -> None:
        case(mainspring, 1, "it's late")
        case(mainspring, 2, "lost")

        mainspring.advance(minutes=1)
        assert opened(mainspring) == [("asked", "case 2", 1)]

        settings["kind"] = "it's late"
        mainspring.advance(minutes=1)
        assert opened(mainspring) == [("asked", "case 1", 1), ("given", "case 1", 1)]
        assert {alert.text for alert in mainspring.client.alerts.list()} == {"100%"}

    def test_without_them_a_percent_sign_is_the_querys_own(self, mainspring: Harness) -> None:
        case(mainspring, 3, "lost")
        mainspring.advance(minutes=1)
        (alert,) = mainspring.client.alerts.list(name="none")
        assert (alert.subject, alert.text) == ("100%%", "%s")

    @pytest.mark.parametrize(
        ("wrong", "text"),
        [
            ({"kinds": 1}, "ValidationError: params: kind: is missing (did you mean 'kinds'?)"),
            ({"kind": {"a": 1}}, "ValidationError: params: kind: is a dict, which is no value of a column"),
            ({"kind": object()}, "ValueError: params: kind: cannot adapt type 'object'"),
            ({"kind": "a\0b"}, "ValueError: params: kind: PostgreSQL text fields cannot contain NUL"),
        ],
    )
    def test_what_a_function_answers_wrongly_is_an_alert_that_names_the_field(
        self, mainspring: Harness, settings: dict[str, Any], wrong: dict[str, Any], text: str
    ) -> None:
        settings.clear()
        settings.update(wrong)
        mainspring.advance(minutes=1)
        (alert,) = mainspring.client.alerts.list()
        assert (alert.name, alert.subject) == ("watch-broken", "asked")
        assert alert.text.startswith(text)


class TestTimeout:
    @pytest.fixture
    def watches(self) -> list[Watch]:
        async def slow(conn: psycopg.AsyncConnection[Any]) -> list[Any]:
            for _ in range(100):
                await conn.execute("select pg_sleep(0.05)")
            return []

        moment = timedelta(milliseconds=100)
        return [
            ms.watch("slow-query", "select 'a' from pg_sleep(60)", timeout=moment),
            ms.watch("slow-function", slow, timeout=moment),
            ms.watch("patient", "select 'a' from pg_sleep(0.2)"),
            ms.watch("usual", "select current_setting('statement_timeout')"),
            ms.watch("short", "select current_setting('statement_timeout')", timeout=moment),
        ]

    def test_what_takes_too_long_is_broken_and_the_next_has_its_own_time(self, mainspring: Harness) -> None:
        mainspring.advance(minutes=1)

        texts = {alert.subject: alert.text for alert in mainspring.client.alerts.list(name="watch-broken")}
        assert texts == {
            "slow-query": "QueryCanceled: canceling statement due to statement timeout",
            "slow-function": "TimeoutError: it has not answered within 100 ms",
        }
        found = [alert[:2] for alert in opened(mainspring) if alert[0] != "watch-broken"]
        assert found == [("patient", "a"), ("short", "100ms"), ("usual", "10s")]


def test_a_run_has_time_for_all_its_watches_and_is_tried_again_as_the_application_says() -> None:
    def task(*watches: Watch, **options: Any) -> ms.Task[..., Any]:
        return ms.App(ms.Registry("shop"), watches=watches, **options).registry.get("shop.watch")

    often, minute = ms.fixed(1, attempts=9), timedelta(minutes=1)
    few = task(ms.watch("late", LATE), watch_retry=often)
    assert (few.timeout, few.retry) == (timedelta(minutes=5), often)
    hourly = [ms.watch(f"hourly-{n}", LATE, timeout=minute, every=timedelta(hours=1)) for n in range(10)]
    many = task(ms.watch("late", LATE), *hourly)
    assert (many.timeout, many.retry) == (timedelta(minutes=11), ms.exponential())


class TestBounds:
    @pytest.fixture
    def watches(self) -> list[Watch]:
        async def writes(conn: psycopg.AsyncConnection[Any]) -> list[Any]:
            await conn.execute("delete from cases")
            return []

        return [ms.watch("many", "select 'case ' || id from cases order by id -- all of them"), ms.watch("sly", writes)]

    def test_of_too_many_rows_a_thousand_are_looked_at_and_nothing_is_closed(self, mainspring: Harness) -> None:
        mainspring.conn.execute("insert into cases select n, 'late' from generate_series(1, 1001) n")
        mainspring.advance(minutes=1)
        assert len(mainspring.client.alerts.list(name="many", limit=2000)) == 1000

        mainspring.conn.execute("delete from cases where id <= 10; insert into cases values (2000), (2001), (2002),"
                                " (2003), (2004), (2005), (2006), (2007), (2008), (2009)")  # fmt: skip
        mainspring.advance(minutes=1)  # 1,001 again
        assert len(mainspring.client.alerts.list(name="many", limit=2000)) == 1010

        mainspring.conn.execute("delete from cases where id > 20")
        mainspring.advance(minutes=1)
        assert len(mainspring.client.alerts.list(name="many", limit=2000)) == 10

    def test_a_condition_reads_only(self, mainspring: Harness) -> None:
        case(mainspring, 1)
        mainspring.advance(minutes=1)

        (alert,) = mainspring.client.alerts.list(name="watch-broken")
        assert (alert.subject, alert.text) == (
            "sly", "ReadOnlySqlTransaction: cannot execute DELETE in a read-only transaction",
        )  # fmt: skip
        assert opened(mainspring, name="many") == [("many", "case 1", 1)]  # the transaction around it still writes


class TestDead:
    @pytest.fixture
    def approve(self, tasks: ms.Registry) -> ms.Task[..., Any]:
        @tasks.task(retry=ms.fixed(1, attempts=1), subject="time_log_id", queue="q:approvals")
        async def auto_approve(*, time_log_id: int, permanent: bool = False) -> None:
            raise (ms.Permanent if permanent else RuntimeError)("no hold for token=abc")

        return auto_approve

    @pytest.fixture
    def watches(self, approve: ms.Task[..., Any]) -> list[Watch]:
        return [
            ms.watch_dead("auto-approval-failed", approve, subject="time log {time_log_id}", severity="critical"),
            ms.watch_dead("by-task", approve),
            ms.watch_dead("by-name", "auto_approve", "another"),
            ms.watch_dead("by-queue", queue="q:approvals", subject="{missing} of {task}"),
            ms.watch_dead("another-queue", "auto_approve", queue="q:default"),
        ]

    @pytest.mark.rule("STAFF-15.08", "STAFF-15.13")
    def test_a_final_failure_is_an_alert_until_somebody_decides(
        self, mainspring: Harness, approve: ms.Task[..., Any]
    ) -> None:
        dead = mainspring.client.enqueue(approve.job(time_log_id=9)).id
        failed = mainspring.client.enqueue(approve.job(time_log_id=10, permanent=True).for_org("acme")).id
        mainspring.advance(minutes=1, raise_errors=False)

        assert {mainspring.client.get(job).state for job in (dead, failed)} == {"dead", "failed"}
        (first,) = mainspring.client.alerts.list(name="auto-approval-failed", org="default")
        assert (first.subject, first.severity, first.text) == (
            "time log 9", "critical", "auto_approve: INTERNAL_ERROR: RuntimeError: no hold for token=***",
        )  # fmt: skip
        assert opened(mainspring, org="default") == [
            ("auto-approval-failed", "time log 9", 1),
            ("by-name", f"auto_approve {dead}", 1),
            ("by-queue", f"{dead} of auto_approve", 1),
            ("by-task", "auto_approve 9", 1),
        ]
        assert ("auto-approval-failed", "time log 10", 1) in opened(mainspring, org="acme")

        mainspring.client.dead.discard(dead, reason="paid by hand")
        mainspring.advance(minutes=1)
        assert opened(mainspring, org="default") == []
        assert len(opened(mainspring, org="acme")) == 4

        mainspring.client.dead.fix(failed, payload={"time_log_id": 10}, reason="one more try", org="acme")
        mainspring.advance(minutes=1, raise_errors=False)
        found = mainspring.client.alerts.list(name="auto-approval-failed", org="acme", open=None)
        assert [alert.count for alert in found] == [3]  # the job that fixes it failed as well, so it is not over


def test_applications_without_watches_have_no_schedule_for_them() -> None:
    assert [s.name for s in ms.App().registry.schedules() if "watch" in s.name] == []
    app = ms.App(ms.Registry("shop"), watches=[ms.watch("late-case", LATE)], authorize=lambda job: "nobody")
    (schedule,) = [s for s in app.registry.schedules() if "watch" in s.name]
    assert (schedule.name, schedule.task, schedule.org) == ("shop.watch.60s", "shop.watch", "SYSTEM")


@pytest.mark.parametrize(
    ("declare", "text"),
    [
        (lambda: ms.watch("Late", LATE), "watch: name: is not in lower case"),
        (lambda: ms.watch("watch-broken", LATE), "watch: name: watch-broken is the engine's own"),
        (lambda: ms.watch("late", " "), "watch late: condition: is not a query"),
        (lambda: ms.watch("late", ANYTHING), "watch late: condition: is neither a query nor an async function"),
        (lambda: ms.watch("late", LATE, severity=ANYTHING), "watch late: severity: is not critical or warning"),
        (lambda: ms.watch("late", LATE, every=timedelta(days=2)), "watch late: every: is not whole seconds"),
        (lambda: ms.watch("late", LATE, timeout=timedelta(0)), "watch late: timeout: is not from 1 ms to 1 minute"),
        (lambda: ms.watch("late", LATE, timeout=timedelta(hours=1)), "watch late: timeout: is not from 1 ms"),
        (lambda: ms.watch("late", lost, params={}), "watch late: params: are of a query; a function binds its own"),
        (lambda: ms.watch("late", ASKS, params={"day": 1}),
         "watch late: params: days: is missing (did you mean 'day'?)"),
        (lambda: ms.watch("late", ASKS, params={"days": {1}}), "watch late: params: days: is a set, which is no value"),
        (lambda: ms.watch("late", ASKS, params=ANY), "watch late: params: is neither a mapping nor a function"),
        (lambda: ms.watch("late", f"{ASKS} and id % 2 = 1", params=dict),
         "watch late: params: the query has a % that is not of %(name)s: write %%"),
        (lambda: ms.watch("late", "select %s", params={}), "watch late: params: the query has a % that"),
        (lambda: ms.watch_dead("dead"), "watch dead: needs a task or a queue"),
        (lambda: ms.watch_dead("dead", ""), "watch dead: is empty: it takes tasks"),
        (lambda: ms.App(watches=[ms.watch("a", "q"), ms.watch("a", "q")]), "watch a: is declared twice"),
        (lambda: ms.App(watches=[ANYTHING]), "is not made by watch or watch_dead"),
    ],
)  # fmt: skip
def test_mistakes_are_told_at_the_declaration(declare: Any, text: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        declare()
    assert text in str(caught.value)


def test_a_run_that_is_late_opens_at_the_instant_of_the_run(mainspring: Harness) -> None:
    case(mainspring, 1)
    mainspring.clock.set(NOON + timedelta(minutes=30, seconds=30))  # nobody looked for half an hour
    mainspring.advance(minutes=1)

    (alert,) = mainspring.client.alerts.list()
    assert (alert.opened_at, alert.count) == (minutes(31), 1)
