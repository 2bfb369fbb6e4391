"""Workers on a secured schema: claims span organisations, what a handler does is bound to that of its job."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from tests.secured import Secured
from tests.worker.stage import SETTINGS

from mainspring import AsyncClient, Context, NewJob, Registry, SyncContext, WorkerConfig
from mainspring.job import SYSTEM, Claim
from mainspring.worker import Worker
from mainspring.worker.executor import Authorize

pytestmark = pytest.mark.anyio

NOTES = """
    create table note (
      org_id text not null default current_setting('mainspring.org'),
      project_id uuid default nullif(current_setting('mainspring.project', true), '')::uuid,
      text text not null);
    insert into note (org_id, text) values ('acme', 'of acme'), ('globex', 'of globex');
    alter table note enable row level security;
    create policy organisation on note using (org_id = (select current_setting('mainspring.org', true)));
    grant select, insert, update, delete on note to mainspring_worker
"""
ORGS = ("acme", "globex", "o'brien \\ söhne; drop table note --")


@pytest.fixture
async def client(secured: Secured) -> AsyncIterator[AsyncClient]:
    """As the application connects."""
    secured.do(NOTES)
    async with AsyncClient(secured.dsn("api"), secured=True) as client:
        yield client


@pytest.fixture
def tasks() -> Registry:
    return Registry("test")


async def drain(secured: Secured, tasks: Registry, *, authorize: Authorize | None = None, **settings: Any) -> Worker:
    config = WorkerConfig(**(SETTINGS | settings))
    worker = Worker(secured.dsn("worker"), tasks, config=config, authorize=authorize)
    async with asyncio.timeout(30):
        await worker.drain()
    return worker


def states(secured: Secured) -> set[tuple[str, str]]:
    return set(secured.do("select org_id, state from mainspring.jobs"))


@pytest.mark.rule("ENG-5.11", "ENG-19.03", "ENG-19.04")
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_one_worker_runs_jobs_of_all_and_each_sees_its_own(
    secured: Secured, client: AsyncClient, tasks: Registry, kind: str
) -> None:
    seen: dict[str, Any] = {}
    look, keep = (
        "select current_setting('mainspring.org'), array_agg(text order by text) from note",
        "insert into note (text) values ('new')",
    )
    if kind == "async":

        @tasks.task(name="look")
        async def look_async(ctx: Context) -> None:
            async with ctx.complete() as conn:
                await conn.execute("delete from note where text = 'new'")
                seen[ctx.job.org_id] = await (await conn.execute(look)).fetchone()
                await conn.execute(keep)
    else:

        @tasks.task(name="look")
        def look_sync(ctx: SyncContext) -> None:
            with ctx.complete() as conn:
                seen[ctx.job.org_id] = conn.execute(look).fetchone()
                conn.execute(keep)

    for org in ORGS:
        await client.enqueue(tasks.get("look").job().for_org(org))
    await drain(secured, tasks, transactions=1, threads=1)  # on one connection, after each other

    assert seen == {"acme": ("acme", ["of acme"]), "globex": ("globex", ["of globex"]), ORGS[2]: (ORGS[2], None)}
    assert states(secured) == {(org, "succeeded") for org in ORGS}
    assert {row[0] for row in secured.do("select org_id from note where text = 'new'")} == set(ORGS)


@pytest.mark.rule("ENG-19.05")
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_job_of_a_project_is_bound_to_the_project(
    secured: Secured, client: AsyncClient, tasks: Registry, kind: str
) -> None:
    p, q = UUID(int=1), UUID(int=2)
    for project, text in ((p, "of p"), (q, "of q")):
        secured.do("insert into note (org_id, project_id, text) values ('acme', %s, %s)", project, text)
    secured.do("""
        create policy project on note as restrictive to mainspring_worker
          using (project_id is not distinct from nullif(current_setting('mainspring.project', true), '')::uuid)
    """)
    if kind == "async":

        @tasks.task(name="shout")
        async def shout_async(ctx: Context) -> None:
            async with ctx.complete() as conn:
                await conn.execute("update note set text = upper(text)")
    else:

        @tasks.task(name="shout")
        def shout_sync(ctx: SyncContext) -> None:
            with ctx.complete() as conn:
                conn.execute("update note set text = upper(text)")

    shout = tasks.get("shout")
    await client.enqueue(shout.job().for_org("acme").in_project(p))
    await drain(secured, tasks, transactions=1, threads=1)
    assert {row[0] for row in secured.do("select text from note")} == {"OF P", "of q", "of acme", "of globex"}

    await client.enqueue(shout.job().for_org("acme"))  # after one of a project, on the same connection
    await drain(secured, tasks, transactions=1, threads=1)
    assert {row[0] for row in secured.do("select text from note")} == {"OF P", "of q", "OF ACME", "of globex"}


@pytest.mark.rule("ENG-19.03")
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_job_has_follow_ups_in_its_own_organisation_only(
    secured: Secured, client: AsyncClient, tasks: Registry, kind: str
) -> None:
    if kind == "async":

        @tasks.task(name="work")
        async def work_async(ctx: Context, *, to: str) -> None:
            await ctx.enqueue(end.job().for_org(to))
    else:

        @tasks.task(name="work")
        def work_sync(ctx: SyncContext, *, to: str) -> None:
            ctx.enqueue(end.job().for_org(to))

    @tasks.task
    async def end() -> None: ...

    work = tasks.get("work")
    good = await client.enqueue(work.job(to="acme").for_org("acme"))
    bad = await client.enqueue(work.job(to="globex").for_org("acme"))
    await drain(secured, tasks)

    assert (await client.get(good.id, org="acme")).state == "succeeded"
    refused = await client.get(bad.id, org="acme")
    assert (refused.state, refused.error and refused.error["code"]) == ("failed", "OWNERSHIP_VIOLATION")
    assert states(secured) == {("acme", "succeeded"), ("acme", "failed")}


@pytest.mark.rule("ENG-19.03", "ENG-19.10")
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_housekeeping_owns_no_business_rows_and_fans_out_into_a_job_for_each_organisation(
    secured: Secured, client: AsyncClient, tasks: Registry, kind: str
) -> None:
    seen: list[Any] = []
    if kind == "async":

        @tasks.task(name="sweep")
        async def sweep_async(ctx: Context) -> None:
            await ctx.enqueue(*(clean.job().for_org(org) for org in ORGS))
            async with ctx.complete() as conn:
                seen.append(await (await conn.execute("select count(*) from note")).fetchone())
    else:

        @tasks.task(name="sweep")
        def sweep_sync(ctx: SyncContext) -> None:
            ctx.enqueue(*(clean.job().for_org(org) for org in ORGS))
            with ctx.complete() as conn:
                seen.append(conn.execute("select count(*) from note").fetchone())

    @tasks.task
    async def clean(ctx: Context) -> None:
        async with ctx.complete() as conn:
            await conn.execute("delete from note")

    async with AsyncClient(secured.dsn("operator"), secured=True) as operator:
        await operator.enqueue(tasks.get("sweep").job().for_org(SYSTEM))
    await drain(secured, tasks)

    assert seen == [(0,)]
    assert states(secured) == {(org, "succeeded") for org in (SYSTEM, *ORGS)}
    assert secured.do("select * from note") == []


async def test_long_jobs_retries_cancellations_and_results_work_as_ever(
    secured: Secured, client: AsyncClient, tasks: Registry
) -> None:
    @tasks.task
    async def long(ctx: Context) -> int:
        steps = await ctx.step("one", lambda: 1)
        await ctx.checkpoint({"at": steps})
        await ctx.progress(1, 2)
        if ctx.job.attempt == 1:
            raise ConnectionError
        return steps

    @tasks.task
    async def never() -> None: ...

    @tasks.task
    def blocking(ctx: SyncContext) -> int:
        return int(ctx.step("one", lambda: 1))

    job = await client.enqueue(long.job().for_org("acme"))
    other = await client.enqueue(blocking.job().for_org("globex"))
    later = await client.enqueue(never.job().after(timedelta(days=1)).for_org("acme"))
    assert await client.cancel(later.id, org="globex") == "not_found"
    assert await client.cancel(later.id, org="acme") == "cancelled"
    await drain(secured, tasks)
    secured.do("update mainspring.waiting set due_at = mainspring.now()")
    await drain(secured, tasks)

    assert await client.result(job.id, org="acme") == 1
    assert await client.result(other.id, org="globex") == 1
    assert [a.outcome for a in await client.attempts(job.id, org="acme")] == ["retried", "succeeded"]


@pytest.mark.rule("ENG-19.01", "ENG-19.02")
@pytest.mark.parametrize(
    ("org", "actor", "reason"),
    [
        ("nowhere", "jane", "there is no organisation nowhere"),
        ("globex", "jane", "globex is closed"),
        ("acme", "joe", "joe may not work for acme any more"),
    ],
)
async def test_without_the_right_a_job_fails_and_its_handler_is_not_called(
    secured: Secured, client: AsyncClient, tasks: Registry, org: str, actor: str, reason: str
) -> None:
    called: list[str] = []
    directory = {"acme": {"jane", "joe"}, "globex": {"jane"}}

    @tasks.task
    async def work(ctx: Context) -> None:
        called.append(ctx.job.actor_id)

    def allowed(job: Claim) -> str | None:
        if job.org_id not in directory:
            return f"there is no organisation {job.org_id}"
        if not directory[job.org_id]:
            return f"{job.org_id} is closed"
        return (
            None if job.actor_id in directory[job.org_id] else f"{job.actor_id} may not work for {job.org_id} any more"
        )

    bad = await client.enqueue(work.job().by(actor).for_org(org))
    good = await client.enqueue(work.job().by("jane").for_org("acme"))
    directory["globex"].clear()  # between the enqueue and the run
    directory["acme"].remove("joe")
    await drain(secured, tasks, authorize=allowed)

    assert (await client.get(good.id, org="acme")).state == "succeeded"
    found = await client.get(bad.id, org=org)
    assert (found.state, found.attempt, called) == ("failed", 1, ["jane"])
    assert found.error is not None
    assert (found.error["code"], found.error["message"]) == ("OWNERSHIP_VIOLATION", reason)


@pytest.mark.rule("ENG-19.09")
async def test_who_asked_and_who_did_it_are_kept_apart(secured: Secured, client: AsyncClient, tasks: Registry) -> None:
    @tasks.task
    async def work() -> None: ...

    job = await client.enqueue(work.job().by("jane").for_org("acme"))
    worker = await drain(secured, tasks)

    found, (attempt,) = await client.get(job.id, org="acme"), await client.attempts(job.id, org="acme")
    assert (found.actor_type, found.actor_id, attempt.worker) == ("user", "jane", worker.id)


@pytest.mark.rule("ENG-29.07")
@pytest.mark.parametrize(
    "statement",
    [
        "update mainspring.job set payload = '{}'",
        "update mainspring.audit set event = 'x'",
        "delete from mainspring.audit",
        "update mainspring.clock set at = null",
        "delete from mainspring.migration",
        "insert into mainspring.job (id) values (gen_random_uuid())",
        "update mainspring.queue set paused_at = now()",
        "select mainspring.pause('q:default', 'user', 'x', 'x')",
        "select mainspring.replay(gen_random_uuid(), null, 'user', 'x', 'x')",
        "create table mainspring.mine ()",
        "alter table mainspring.job disable row level security",
        "drop policy worker on mainspring.job",
        "create or replace function mainspring.now() returns timestamptz language sql return '2030-01-01'::timestamptz",
        "set role mainspring",
    ],
)
async def test_a_worker_may_do_its_work_and_nothing_else(secured: Secured, statement: str) -> None:
    with secured.connect("worker") as conn, pytest.raises(psycopg.errors.InsufficientPrivilege):
        conn.execute(statement.encode())


async def test_a_worker_prunes_rescues_and_seals_for_everybody(
    secured: Secured, client: AsyncClient, tasks: Registry
) -> None:
    @tasks.task
    async def work() -> None: ...

    jobs: list[NewJob] = [work.job().for_org(org) for org in ("acme", "globex")]
    await client.enqueue_many(jobs)
    await drain(secured, tasks)
    with secured.connect("worker") as conn:
        pruned = conn.execute(
            "select mainspring.prune('{succeeded}', mainspring.now() + interval '1 s', 100)"
        ).fetchone()
        async with asyncio.timeout(30):  # a seal waits for transactions of the whole server, also those of other tests
            sealed = [await _sealed(conn, org, 3) for org in ("acme", "globex")]
    assert (pruned, sealed) == ((2,), [3, 3])


async def _sealed(conn: psycopg.Connection[Any], org: str, wanted: int) -> int:
    """Seal until so many rows are sealed."""
    rows = 0
    while rows < wanted:
        found = conn.execute("select mainspring.seal(%s, 100)", [org]).fetchone()
        assert found is not None
        rows += found[0]
        await asyncio.sleep(0.01)
    return rows


async def test_a_job_is_completed_in_a_transaction_of_the_applications_own_login(
    secured: Secured, client: AsyncClient, tasks: Registry
) -> None:
    secured.do("grant select, insert on note to mainspring_api")

    @tasks.task
    async def keep(ctx: Context) -> None:
        async with await psycopg.AsyncConnection.connect(secured.dsn("api")) as conn:
            await ctx.complete_in(conn, result="kept")
            await conn.execute("insert into note (text) values ('new')")  # of the organisation that it is now bound to

    @tasks.task
    async def other(ctx: Context) -> None:
        async with await psycopg.AsyncConnection.connect(secured.dsn("api")) as conn:
            await conn.execute("set local mainspring.org to 'globex'")
            await ctx.complete_in(conn)

    done = await client.enqueue(keep.job().for_org("acme"))
    foreign = await client.enqueue(other.job().for_org("acme"))
    await drain(secured, tasks)

    assert (await client.get(done.id, org="acme")).result == "kept"
    assert ("acme", "new") in secured.do("select org_id, text from note")
    found = await client.get(foreign.id, org="acme")
    assert (found.state, (found.error or {})["code"]) == ("retrying", "LEASE_EXPIRED")
