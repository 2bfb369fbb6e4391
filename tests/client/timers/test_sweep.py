"""Fallback sweeps: what should have happened, and no timer covers, is enqueued once."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from tests.logged import lines, logged

import mainspring as ms
from mainspring.errors import DeclarationError
from mainspring.events import SweepFound
from mainspring.observe import Log, Metrics
from mainspring.testing import Harness

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
QUERY = "select id, org from sheet where status = 'pending' and approve_at <= %(now)s"


@pytest.fixture
def tasks() -> ms.Registry:
    return ms.Registry("staffing")


@pytest.fixture
def mainspring_app(tasks: ms.Registry) -> ms.Registry:
    return tasks


@pytest.fixture
def approve(tasks: ms.Registry, mainspring: Harness) -> ms.Task[..., Any]:
    @tasks.task(retry=ms.fixed(60, attempts=1))
    async def approve(ctx: ms.Context, *, sheet_id: int, note: str = "swept") -> None:
        """Approve a sheet."""
        async with ctx.complete() as conn:
            await conn.execute("update sheet set status = %s where id = %s", [note, sheet_id])

    mainspring.clock.set(NOON)
    mainspring.conn.execute(
        "create table sheet (id bigint, org text default 'default', status text, approve_at timestamptz)"
    )
    return approve


@pytest.fixture
def late(mainspring: Harness) -> Callable[..., None]:
    def add(*ids: int, hours: float = -1, org: str = "default") -> None:
        due = NOON + timedelta(hours=hours)
        with mainspring.conn.cursor() as cursor:
            cursor.executemany("insert into sheet values (%s, %s, 'pending', %s)", [(id_, org, due) for id_ in ids])

    return add


@pytest.fixture
def sweep(tasks: ms.Registry, approve: ms.Task[..., Any]) -> ms.Task[..., Any]:
    def job(row: Any) -> ms.NewJob:
        return approve.job(sheet_id=row.id).with_key(f"approve:{row.id}").for_org(row.org)

    return tasks.sweep("late-approvals", every=timedelta(minutes=5), query=QUERY, job=job, limit=3)


def swept(mainspring: Harness, sweep: ms.Task[..., Any]) -> None:
    """Run a whole sweep, and nothing else."""
    mainspring.client.enqueue(sweep.job().for_org("SYSTEM"))
    mainspring.drain(queue="q:maintenance")


def jobs(mainspring: Harness) -> list[ms.Job]:
    return [job for job in mainspring.client.jobs(limit=1000) if job.task == "approve"]


def statuses(mainspring: Harness) -> dict[int, str]:
    return dict(mainspring.conn.execute("select id, status from sheet").fetchall())


def test_what_no_timer_covers_is_enqueued_once(mainspring: Harness, sweep: Any, late: Callable[..., None]) -> None:
    late(1, 2)
    late(3, hours=1)  # not due yet

    swept(mainspring, sweep)
    swept(mainspring, sweep)

    assert sorted(job.payload["sheet_id"] for job in jobs(mainspring)) == [1, 2]
    mainspring.drain()
    swept(mainspring, sweep)
    mainspring.drain()
    assert statuses(mainspring) == {1: "swept", 2: "swept", 3: "pending"}
    assert len(jobs(mainspring)) == 2


def test_what_a_timer_covers_is_left_alone_whatever_its_payload(
    mainspring: Harness, approve: Any, sweep: Any, late: Callable[..., None]
) -> None:
    late(1, 2)
    extended = approve.job(sheet_id=1, note="by its timer").at(NOON + timedelta(hours=1)).with_key("approve:1")
    mainspring.client.timers.set(extended)

    swept(mainspring, sweep)

    assert sorted(job.payload["note"] for job in jobs(mainspring)) == ["by its timer", "swept"]
    mainspring.advance(hours=1)
    assert statuses(mainspring) == {1: "by its timer", 2: "swept"}


def test_what_runs_is_left_alone_and_not_run_again_behind_it(
    mainspring: Harness, approve: Any, sweep: Any, late: Callable[..., None]
) -> None:
    late(1)
    mainspring.crash(approve.job(sheet_id=1).with_key("approve:1"))  # its worker holds the lease

    swept(mainspring, sweep)

    assert [job.state for job in jobs(mainspring)] == ["running"]


def test_a_failed_one_follows_the_mode_of_its_key(
    mainspring: Harness, tasks: ms.Registry, approve: Any, late: Callable[..., None]
) -> None:
    late(1)
    mainspring.conn.execute("alter table sheet add check (status = 'pending')")  # approving fails

    def sweeping(name: str, mode: Any) -> Any:
        return tasks.sweep(
            name, every=timedelta(hours=1), query=QUERY,
            job=lambda row: approve.job(sheet_id=row.id).with_key(f"{name}:{row.id}", mode),
        )  # fmt: skip

    for mode, jobs_then in (("keep", 1), ("live", 2), ("reset_failed", 1)):
        task = sweeping(f"sweep-{mode}", mode)
        for _ in range(2):
            swept(mainspring, task)
            mainspring.drain(raise_errors=False)
        found = [job for job in jobs(mainspring) if job.idempotency_key == f"sweep-{mode}:1"]
        assert ([job.state for job in found], mode) == (["dead"] * jobs_then, mode)
    trail = mainspring.conn.execute("select count(*) from mainspring.audit where event = 'job.reset'").fetchone()
    assert trail == (1,)


@pytest.mark.rule("STAFF-17.10")
def test_pages_follow_each_other_by_the_last_row_and_miss_nothing(
    mainspring: Harness, sweep: Any, late: Callable[..., None]
) -> None:
    late(*range(10))

    swept(mainspring, sweep)

    assert sorted(job.payload["sheet_id"] for job in jobs(mainspring)) == list(range(10))
    pages = [job.result["rows"] for job in mainspring.client.jobs(task="late-approvals")]
    assert pages[::-1] == [3, 3, 3, 1]


@pytest.mark.parametrize("kind", ["uuid", "text", "timestamptz", "numeric", "date"])
def test_any_column_that_is_unique_can_be_paged_by(
    mainspring: Harness, tasks: ms.Registry, approve: Any, kind: str
) -> None:
    kinds: dict[str, list[Any]] = {
        "uuid": [uuid4() for _ in range(5)], "text": ["a'b", "%s", "c", "d", '"'],
        "timestamptz": [NOON + timedelta(microseconds=n) for n in range(5)],
        "numeric": ["1.5", "2.25", "3", "4", "5"], "date": [NOON.date() + timedelta(days=n) for n in range(5)],
    }  # fmt: skip
    mainspring.conn.execute(f'create table thing ("a %b" {kind})'.replace("%", "%"))
    for value in kinds[kind]:
        mainspring.conn.execute("insert into thing values (%s)", [value])
    task = tasks.sweep(
        "things", every=timedelta(hours=1), query='select "a %%b", row_number() over () as n from thing', by="a %b",
        job=lambda row: approve.job(sheet_id=row.n).with_key(f"thing:{getattr(row, 'a %b')}"), limit=2,
    )  # fmt: skip

    swept(mainspring, task)

    assert len({job.idempotency_key for job in jobs(mainspring)}) == 5


def test_jobs_of_several_organisations_are_each_its_own(
    mainspring: Harness, sweep: Any, late: Callable[..., None]
) -> None:
    late(1)
    late(2, org="acme")

    swept(mainspring, sweep)

    assert {job.org_id for job in jobs(mainspring)} == {"default", "acme"}
    assert all(job.parent_id is not None for job in jobs(mainspring))


def test_a_page_that_fails_enqueues_nothing_and_is_tried_again(
    mainspring: Harness, tasks: ms.Registry, approve: Any, late: Callable[..., None]
) -> None:
    late(1, 2)
    broken = [True]

    def job(row: Any) -> ms.NewJob:
        if row.id == 2 and broken:
            raise ZeroDivisionError
        return approve.job(sheet_id=row.id).with_key(f"approve:{row.id}")  # type: ignore[no-any-return] # a fixture's

    task = tasks.sweep("breaks", every=timedelta(hours=1), query=QUERY, job=job)
    mainspring.client.enqueue(task.job().for_org("SYSTEM"))
    mainspring.drain(raise_errors=False)
    assert jobs(mainspring) == []
    broken.clear()
    mainspring.advance(minutes=10)
    assert statuses(mainspring) == {1: "swept", 2: "swept"}


def test_params_are_bound_and_a_function_is_asked_for_each_page(
    mainspring: Harness, tasks: ms.Registry, approve: Any, late: Callable[..., None]
) -> None:
    late(1, 2, 3)
    late(4, hours=-3)
    waits = iter([timedelta(hours=2)] * 2 + [timedelta(0)] * 5)
    task = tasks.sweep(
        "by-settings", every=timedelta(hours=1), limit=1,
        query="select id, '%%' as sign from sheet where status = %(status)s and approve_at <= %(now)s - %(wait)s",
        params=lambda: {"status": "pending", "wait": next(waits)},
        job=lambda row: approve.job(sheet_id=row.id, note=row.sign).with_key(f"approve:{row.id}"),
    )  # fmt: skip

    swept(mainspring, task)

    assert [(job.payload["sheet_id"], job.payload["note"]) for job in jobs(mainspring)] == [(4, "%")]
    swept(mainspring, task)
    assert sorted(job.payload["sheet_id"] for job in jobs(mainspring)) == [1, 2, 3, 4]
    assert list(waits) == []  # a page for each row, and the empty one behind them


def test_a_page_is_tried_again_and_stopped_as_the_sweep_says(
    mainspring: Harness, tasks: ms.Registry, approve: Any
) -> None:
    def params() -> dict[str, Any]:
        raise ZeroDivisionError

    task = tasks.sweep(
        "impatient", every=timedelta(hours=1), query=QUERY, job=lambda row: approve.job(sheet_id=row.id),
        retry=ms.fixed(7, attempts=2), timeout=timedelta(seconds=3), params=params,
    )  # fmt: skip

    first = mainspring.run_one(task.job().for_org("SYSTEM"), raise_errors=False)

    assert (task.timeout, first.state, first.job.max_attempts) == (timedelta(seconds=3), "retrying", 2)
    assert first.job.due_at == NOON + timedelta(seconds=7)
    mainspring.advance(seconds=7, raise_errors=False)
    assert mainspring.client.get(first.job.id).state == "dead"


def test_a_sweep_that_finds_something_says_so(
    mainspring: Harness, tasks: ms.Registry, sweep: Any, late: Callable[..., None]
) -> None:
    late(1, 2)
    with mainspring.working() as working:
        job = mainspring.client.enqueue(sweep.job().for_org("SYSTEM")).id
        found = mainspring.wait_for("sweep.found", job_id=job)
        mainspring.wait_for("job.succeeded", job_id=job)
    assert isinstance(found, SweepFound)
    assert (found.sweep, found.count) == ("late-approvals", 2)
    metrics = Metrics(tasks)
    metrics(working.events)
    shown = {sample.name: sample for family in metrics.collect() for sample in family.samples if "swept" in sample.name}
    assert shown["mainspring_swept_total"].labels == {"sweep": "late-approvals"}
    assert shown["mainspring_swept_total"].value == 2


def test_a_sweep_that_finds_nothing_says_nothing(mainspring: Harness, sweep: Any) -> None:
    with mainspring.working() as working:
        mainspring.client.enqueue(sweep.job().for_org("SYSTEM"))
        mainspring.wait_for("job.succeeded")
    assert not [event for event in working.events if event.name == "sweep.found"]


def test_it_runs_by_its_schedule(
    mainspring: Harness, tasks: ms.Registry, sweep: Any, late: Callable[..., None]
) -> None:
    late(1)
    app = ms.App(tasks, dsn=mainspring.dsn, maintenance=False)
    assert app.run_due().processed == 0  # its schedule is written, and counts from here
    assert app.run_due(now=NOON + timedelta(minutes=4)).processed == 0
    assert app.run_due(now=NOON + timedelta(minutes=5)).succeeded == 2  # the sweep, and what it found
    assert statuses(mainspring) == {1: "swept"}
    assert app.run_due(now=NOON + timedelta(minutes=10)).succeeded == 1


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"every": timedelta(0)}, "every"), ({"query": " "}, "query"), ({"query": None}, "query"),
        ({"job": "approve"}, "job"), ({"by": ""}, "by"), ({"by": "a\0b"}, "by"), ({"limit": 0}, "limit"),
        ({"limit": 1001}, "limit"), ({"every": timedelta(microseconds=1)}, "every"),
        ({"params": 7}, "params"), ({"params": {"now": 7}}, "params: now"), ({"params": {"x": {}}}, "params: x"),
        ({"query": "select %(wait)s"}, "params: wait"), ({"query": "select %s"}, "params"),
    ],
)  # fmt: skip
def test_a_wrong_declaration_is_refused_at_once(tasks: ms.Registry, wrong: dict[str, Any], field: str) -> None:
    right: dict[str, Any] = {"every": timedelta(hours=1), "query": QUERY, "job": lambda row: row}
    with pytest.raises(DeclarationError, match=rf"^sweep s: {field}: "):
        tasks.sweep("s", **(right | wrong))
    assert "s" not in tasks


@pytest.mark.parametrize(("made", "field"), [("nothing", "job"), ("no key", "key")])
def test_what_cannot_be_swept_fails_for_good(
    mainspring: Harness, tasks: ms.Registry, approve: Any, late: Callable[..., None], made: str, field: str
) -> None:
    late(1)
    task = tasks.sweep(
        "wrong", every=timedelta(hours=1), query=QUERY,
        job=lambda row: None if made == "nothing" else approve.job(sheet_id=row.id),  # type: ignore[arg-type,return-value]
    )  # fmt: skip
    ran = mainspring.run_one(task.job().for_org("SYSTEM"), raise_errors=False)
    assert (ran.state, ran.job.error and ran.job.error["message"].startswith(f"{field}: ")) == ("failed", True)


def test_a_race_with_somebody_who_sets_the_timer_leaves_one(
    mainspring: Harness, tasks: ms.Registry, approve: Any, late: Callable[..., None]
) -> None:
    """Between the page's query and its enqueue somebody else sets the timer, with another payload, and it starts."""
    late(1)
    timer = approve.job(sheet_id=1, note="by its timer").with_key("approve:1")

    def job(row: Any) -> ms.NewJob:
        Context().run(mainspring.crash, timer)  # by somebody else, not in the name of the sweep
        return approve.job(sheet_id=row.id).with_key(f"approve:{row.id}")  # type: ignore[no-any-return] # a fixture's

    task = tasks.sweep("races", every=timedelta(hours=1), query=QUERY, job=job)
    with mainspring.working(queues={"q:maintenance": 1}):
        job_id = mainspring.client.enqueue(task.job().for_org("SYSTEM")).id
        mainspring.wait_for("job.succeeded", job_id=job_id)
    assert [(found.state, found.payload["note"]) for found in jobs(mainspring)] == [("running", "by its timer")]


def test_logs_warn_of_it() -> None:
    with logged() as stream:
        Log()([SweepFound("late-approvals", 3, uuid4())])
    assert [line["level"] for line in lines(stream, "sweep.found")] == ["warning"]
