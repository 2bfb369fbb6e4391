"""Events of the domain: under its own names, with the change that they report, without secrets."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.rows import TupleRow
from tests.databases import Database
from tests.worker.stage import Stage

import mainspring as ms
from mainspring import AsyncClient, Client, ValidationError
from mainspring.audit import MAX_DETAIL, written_event
from mainspring.checks import check_subject
from mainspring.db.wire.sql import Sql
from mainspring.worker import Worker

tasks = ms.Registry("audit_tests")


@tasks.task
async def freeze(ctx: ms.Context, *, tenant: int) -> None:
    async with ctx.complete() as conn:
        await conn.execute("insert into frozen values (%s)", [tenant])
        ctx.audit("subscription.frozen", tenant=tenant)


@tasks.task
def freeze_in_thread(ctx: ms.SyncContext, *, tenant: int) -> None:
    ctx.audit("subscription.frozen", tenant=tenant)


@tasks.task(retry=ms.fixed(1, attempts=1))
async def fail_after(ctx: ms.Context) -> None:
    ctx.audit("subscription.frozen")
    raise RuntimeError("no")


@tasks.task
async def record_by_client(ctx: ms.Context) -> None:
    async with ctx.complete() as conn:
        await CLIENTS[0].audit.record("subscription.frozen", conn=conn)


@tasks.task
async def confirm(ctx: ms.Context) -> None:
    ctx.audit("booking.confirmed", subject="booking 17", price=3)


@tasks.task
def confirm_in_thread(ctx: ms.SyncContext) -> None:
    with ctx.transaction():
        ctx.audit("booking.confirmed", subject="booking 17", price=3)


CLIENTS: list[AsyncClient] = []
FIELDS = "event, actor_type, actor_id, job_id, task, attempt, org_id, project_id, request_id, correlation_id, detail"


@pytest.fixture
def sql(database: Database) -> Any:
    with database.connect() as conn:
        conn.execute("create table frozen (tenant integer)")
        yield conn


def stored(sql: psycopg.Connection[TupleRow]) -> list[TupleRow]:
    return sql.execute(f"select {FIELDS} from mainspring.audit where event !~ '^job' order by id".encode()).fetchall()


@pytest.mark.anyio
@pytest.mark.rule("ENG-20.03")
@pytest.mark.parametrize("task", [freeze, freeze_in_thread])
async def test_what_a_job_changes_is_audited_by_system_under_the_domain_s_name(
    database: Database, sql: psycopg.Connection[TupleRow], task: Any
) -> None:
    project = UUID(int=3)
    job = task.job(tenant=7).for_org("acme").by("ada").in_project(project).traced(request_id="r", correlation_id="c")
    with Client(database.dsn) as client:
        id_ = client.enqueue(job).id

    await Worker(database.dsn, tasks).drain()

    assert stored(sql) == [
        ("subscription.frozen", "system", "SYSTEM", id_, task.name, 1, "acme", project, "r", "c", {"tenant": 7})
    ]


@pytest.mark.anyio
async def test_a_client_inside_a_handler_writes_in_the_name_of_its_job(
    database: Database, sql: psycopg.Connection[TupleRow]
) -> None:
    async with AsyncClient(database.dsn) as client:
        CLIENTS[:] = [client]
        id_ = (await client.enqueue(record_by_client.job().for_org("acme").by("ada"))).id
        await Worker(database.dsn, tasks).drain()
    (row,) = stored(sql)
    assert row[1:7] == ("system", "SYSTEM", id_, "record_by_client", 1, "acme")


@pytest.mark.anyio
@pytest.mark.rule("ENG-20.04")
async def test_an_attempt_that_fails_leaves_no_event_of_what_it_did_not_do(
    database: Database, sql: psycopg.Connection[TupleRow]
) -> None:
    with Client(database.dsn) as client:
        client.enqueue(fail_after.job())
    await Worker(database.dsn, tasks).drain()
    assert stored(sql) == []


@pytest.mark.rule("ENG-20.04")
def test_a_client_s_event_commits_with_the_caller_s_transaction(
    database: Database, sql: psycopg.Connection[TupleRow]
) -> None:
    caller = ms.Caller(org_id="acme", actor_type="user", actor_id="ada", request_id="r", correlation_id="c")
    with Client(database.dsn, caller=caller) as client, database.connect() as conn:
        with conn.transaction(force_rollback=True):
            client.audit.record("invoice.paid", {"amount": 3}, conn=conn)
        assert stored(sql) == []
        with conn.transaction():
            client.audit.record("invoice.paid", {"amount": 3}, conn=conn)
            client.audit.record("invoice.sent", org="other", conn=conn)
    assert stored(sql) == [
        ("invoice.paid", "user", "ada", None, None, None, "acme", None, "r", "c", {"amount": 3}),
        ("invoice.sent", "user", "ada", None, None, None, "other", None, "r", "c", {}),
    ]


@pytest.mark.anyio
async def test_what_jobs_clients_and_sql_write_about_a_thing_is_found_by_its_subject(
    database: Database, sql: psycopg.Connection[TupleRow]
) -> None:
    with Client(database.dsn) as client:
        client.enqueue_many([confirm.job(), confirm_in_thread.job()])
        await Worker(database.dsn, tasks).drain()
        client.audit.record("booking.paid", {"amount": 3}, subject="booking 17")
        client.audit.record("booking.paid", subject="booking 18")
        client.audit.record("booking.paid", subject="booking 17", org="other")
        client.audit.record("booking.counted")
        sql.execute("select mainspring.record_business('booking.ended', '{}', 'default', p_subject => 'booking 17')")

        found = client.audit.events(subject="booking 17")
        assert [(one.event, one.org_id, one.detail) for one in found] == [
            ("booking.ended", "default", {}), ("booking.paid", "other", {}), ("booking.paid", "default", {"amount": 3}),
            ("booking.confirmed", "default", {"price": 3}), ("booking.confirmed", "default", {"price": 3}),
        ]  # fmt: skip
        assert {one.subject for one in found} == {"booking 17"}
        assert {one.task for one in found} == {None, "confirm", "confirm_in_thread"}
        assert [one.id for one in client.audit.events(subject="booking 17", before=found[1].id, limit=1)] == [
            found[2].id
        ]
        assert len(client.audit.events(subject="booking 17", org="other")) == 1
        assert client.audit.events(event="booking.counted")[0].subject is None
        assert client.audit.events(subject="booking 1") == []


@pytest.mark.parametrize("subject", ["", " ", "a\nb", "x" * 201, 17])
def test_an_unfit_subject_is_refused_by_its_name(sql: psycopg.Connection[TupleRow], subject: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        check_subject(subject)
    assert caught.value.field == "subject"
    with pytest.raises(psycopg.Error) as refused:
        sql.execute(
            "select mainspring.record_business('a.b', '{}', 'acme', p_subject => %s)",
            [subject if isinstance(subject, str) else ""],
        )
    assert (refused.value.sqlstate, refused.value.diag.message_detail) == ("MS001", "subject")


@pytest.mark.mainspring_new
def test_events_about_a_thing_are_found_by_an_index(sql: psycopg.Connection[TupleRow]) -> None:
    sql.execute(
        """insert into mainspring.audit (org_id, at, event, actor_type, actor_id, subject)
           select 'acme', mainspring.now(), 'booking.paid', 'user', 'ada', 'booking ' || n % 500
           from generate_series(1, 5000) n"""
    )
    sql.execute("analyze mainspring.audit")
    names = ("event", "actor", "job", "correlation", "since", "until", "before", "newest")
    for org in (None, "acme"):
        about = dict.fromkeys(names) | {"org": org, "subject": "booking 17", "limit": 50}
        ((plan,),) = sql.execute("explain (format json) " + Sql()["list_audit"], about).fetchall()
        assert "'Index Name': 'audit_subject'" in str(plan), org


@pytest.mark.parametrize(
    ("event", "detail", "field"),
    [
        ("", {}, "event"),
        ("paid", {}, "event"),
        ("Invoice.Paid", {}, "event"),
        ("invoice.paid\n", {}, "event"),
        ("invoice." + "x" * 100, {}, "event"),
        ("job.succeeded", {}, "event"),
        ("queue.paused", {}, "event"),
        (None, {}, "event"),
        ("a.b", {"x": object()}, "detail"),
        ("a.b", {"x": "\ud800"}, None),
        ("a.b", {"x": "y" * MAX_DETAIL}, "detail"),
        ("a.b", {str(n): n for n in range(5000)}, "detail"),
    ],
)
def test_an_unfit_event_is_refused_by_the_name_of_its_field(
    event: Any, detail: dict[str, Any], field: str | None
) -> None:
    if field is None:
        assert written_event(event, detail) == '{"x":"�"}'
        return
    with pytest.raises(ValidationError) as caught:
        written_event(event, detail)
    assert caught.value.field == field
    assert len(str(caught.value)) < 200


def test_secrets_do_not_reach_the_trail(database: Database, sql: psycopg.Connection[TupleRow]) -> None:
    with Client(database.dsn) as client:
        client.audit.record(
            "card.added",
            {"api_key": "k-canary", "note": "password=canary", "list": [{"token": "canary"}, "sk_live_canary12345"]},
            subject="card sk_live_canary12345",
        )
        assert [event.subject for event in client.audit.events()] == ["card ***"]
    ((*_, detail),) = stored(sql)
    assert detail == {"api_key": "***", "note": "password=***", "list": [{"token": "***"}, "***"]}


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ("null, '{}', 'acme'", "event"),
        ("'job.faked', '{}', 'acme'", "event"),
        ("'a.b', null, 'acme'", "detail"),
        ("'a.b', '[]', 'acme'", "detail"),
        ("'a.b', jsonb_build_object('x', repeat('y', 20000)), 'acme'", "detail"),
        ("'a.b', '{}', null", "org"),
        ("'a.b', '{}', ' '", "org"),
        ("'a.b', '{}', 'acme', gen_random_uuid()", "job"),
        ("'a.b', '{}', 'acme', p_actor_type => 'robot'", "actor_type"),
        ("'a.b', '{}', 'acme', p_actor_id => e'a\\nb'", "actor_id"),
        ("'a.b', '{}', 'acme', p_request_id => ''", "request_id"),
    ],
)
def test_the_function_refuses_by_the_name_of_the_field(
    sql: psycopg.Connection[TupleRow], arguments: str, field: str
) -> None:
    with pytest.raises(psycopg.Error) as caught:
        sql.execute(f"select mainspring.record_business({arguments})".encode())
    assert (caught.value.sqlstate, caught.value.diag.message_detail) == ("MS001", field)
    assert stored(sql) == []


@pytest.mark.anyio
async def test_a_stop_that_interrupts_a_handler_leaves_its_start_on_the_trail(database: Database) -> None:
    import asyncio

    slow = ms.Registry("slow")

    @slow.task
    async def sleep() -> None:
        await asyncio.sleep(60)

    async with AsyncClient(database.dsn) as client:
        with database.connect() as conn:
            stage = Stage(database, conn, client)
            job = await stage.enqueue(sleep.job())
            worker = stage.worker(slow)
            await worker.start()
            await stage.until(lambda: worker.running == 1)
            await worker.stop()
            trail = [event.event for event in await client.audit.trail(job)]
    assert trail == ["job.enqueued", "job.started", "job.released"]
