"""What somebody tries who has a login of a role and means harm: to forge, to blind, to stop, to reach further."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.errors import CheckViolation, InsufficientPrivilege
from tests.databases import Database
from tests.db.engine import ERROR, Engine
from tests.secured import Secured, superuser

from mainspring import Cipher, Client, Context, Registry, ValidationError, fixed
from mainspring.audit import ENGINE_NOUNS, written_event
from mainspring.db.schema.secure import cover
from mainspring.db.wire.bound import binding
from mainspring.uuid7 import uuid7
from mainspring.worker import Worker

DEEP = '{"reason": "x", "a": ' + "[" * 100 + "]" * 100 + "}"
DEEPER = '{"reason": "x", "a": ' + "[" * 7000 + "]" * 7000 + "}"


@pytest.fixture
def acme(secured: Secured) -> Iterator[psycopg.Connection]:
    """A hostile application of an organisation."""
    with secured.connect("api", "acme") as conn:
        yield conn


# -- the trail


@pytest.mark.parametrize("noun", ENGINE_NOUNS)
def test_nobody_writes_events_under_names_of_the_engine(acme: psycopg.Connection, noun: str) -> None:
    with pytest.raises(ValidationError, match="event: is a name of the engine"):
        written_event(f"{noun}.erased", {})
    with pytest.raises(psycopg.Error, match="event: is a name of the engine"):
        acme.execute("select mainspring.record_business(%s, '{}', 'acme')", [f"{noun}.erased"])


def test_every_noun_that_the_engine_writes_is_its_own(secured: Secured) -> None:
    sources = secured.do("select prosrc from pg_proc where pronamespace = 'mainspring'::regnamespace")
    nouns = set(re.findall(r"'([a-z_]+)\.[a-z_]+'", str([row[0] for row in sources]).replace("\\'", "'")))
    assert {"job", "cipher", "dead_letters"} <= nouns
    assert nouns - {"mainspring"} <= set(ENGINE_NOUNS)  # mainspring.org is a setting


def test_who_wrote_a_business_event_is_who_says_it_not_what_it_says(acme: psycopg.Connection) -> None:
    acme.execute(
        """select mainspring.record_business('invoice.paid', '{"by": "the boss"}', 'acme', p_actor_id => 'me')"""
    )

    assert acme.execute("select by from mainspring.trail").fetchall() == [("me",)]


@pytest.mark.parametrize("detail", [DEEP, DEEPER], ids=["deep", "deeper than parsers go"])
def test_an_event_that_would_hide_those_beside_it_is_refused(secured: Secured, detail: str) -> None:
    with secured.connect("api", "acme") as api, pytest.raises(psycopg.Error, match="detail: is nested deeper"):
        api.execute("select mainspring.record_business('invoice.paid', %s, 'acme')", [detail])
    bulk = "select mainspring.record_bulk('acme', 'dead_letters.replay', 'user', 'me', %s)"
    with secured.connect("operator", "acme") as operator, pytest.raises(CheckViolation):
        operator.execute(bulk, [detail])
    by_hand = """
        insert into mainspring.audit (org_id, at, event, actor_type, actor_id, detail)
        values ('acme', now(), 'job.failed', 'user', 'me', %s)
    """
    with secured.connect("worker") as worker, pytest.raises(CheckViolation):
        worker.execute(by_hand, [detail])
    with Client(secured.dsn("operator"), secured=True) as client:
        assert client.audit.events(org="acme") == []


# -- a stolen login of a worker


@pytest.fixture
def thief(secured: Secured) -> Iterator[psycopg.Connection]:
    """Somebody who has the login of a worker, and a dead job of an organisation."""
    with secured.connect("api", "acme") as api:
        api.execute("""select mainspring.enqueue('pay', '{"to": "Ada"}', org_id => 'acme', max_attempts => 1)""")
    with secured.connect("worker") as conn:
        worker = Engine(conn)
        (job,) = worker.claim("w1", tasks=["pay"])
        worker.settle("w1", {"epoch": job.epoch, "verb": "bury", "error": ERROR})
        yield conn


@pytest.mark.rule("ENG-19.08", "ENG-29.07")
@pytest.mark.parametrize("verb", ["replay", "reset", "prune"])
def test_a_stolen_worker_replays_nothing_without_a_trace(thief: psycopg.Connection, verb: str) -> None:
    with thief.transaction(force_rollback=True):
        thief.execute("select set_config('mainspring.verb', %s, true)", [verb])
        thief.execute("""
            insert into mainspring.waiting (id, org_id, task, queue, priority, due_at)
            select id, org_id, task, queue, priority, created_at from mainspring.job
        """)
        with pytest.raises(psycopg.Error, match="is replayed by replay"):
            thief.execute("delete from mainspring.finished")
    assert thief.execute("select state from mainspring.jobs").fetchall() == [("dead",)]


@pytest.mark.rule("ENG-19.08", "ENG-29.07")
def test_a_stolen_worker_puts_no_other_payload_in_place_without_a_trace(thief: psycopg.Connection) -> None:
    def swap(*before: str) -> None:
        with thief.transaction():
            for statement in before:
                thief.execute(statement.encode())
            thief.execute("select set_config('mainspring.verb', 'prune', true)")
            ((job,),) = thief.execute("delete from mainspring.job returning id").fetchall()
            thief.execute("delete from mainspring.finished")
            thief.execute("set local mainspring.org to 'acme'")
            again = """select mainspring.enqueue('pay', '{"to": "Eve"}', org_id => 'acme', id => %s)"""
            thief.execute(again, [job])

    with pytest.raises(psycopg.Error, match="a job is removed by prune only, which leaves its events"):
        swap()
    assert thief.execute("select payload from mainspring.jobs").fetchall() == [({"to": "Ada"},)]
    swap("""
        insert into mainspring.audit (org_id, at, event, job_id, actor_type, actor_id)
        select org_id, now(), 'job.enqueued', id, 'user', 'me' from mainspring.job
    """)
    told = "select count(*) from mainspring.trail where event = 'job.enqueued'"
    assert thief.execute(told).fetchone() == (2,)  # twice, which no job is by itself


def test_a_worker_prunes_by_the_same_rules(thief: psycopg.Connection, secured: Secured) -> None:
    with secured.connect("operator", "acme") as operator:
        operator.execute("select mainspring.discard(id, null, 'user', 'me', 'x') from mainspring.jobs")
    prune = "select mainspring.prune('{dead}', mainspring.now() + interval '1 s', 100)"
    assert thief.execute(prune).fetchone() == (1,)
    left = "select (select count(*) from mainspring.job), (select count(*) from mainspring.finished)"
    assert thief.execute(left).fetchone() == (0, 0)
    events = [event for (event,) in thief.execute("select event from mainspring.trail order by id").fetchall()]
    assert {"job.enqueued", "job.started", "job.deadlettered", "job.discarded"} <= set(events)


# -- the engine's own organisation


@pytest.mark.rule("ENG-19.10", "ENG-29.07")
def test_an_application_cannot_choose_the_organisation_of_the_engine(secured: Secured) -> None:
    """A job of SYSTEM may have follow-ups in every organisation: who makes one reaches them all."""
    for role in ("operator", "worker"):
        with secured.connect(role, "SYSTEM") as conn:
            conn.execute("select mainspring.enqueue('sweep', org_id => 'SYSTEM')")
    refused: list[str] = []
    with secured.connect("api", "SYSTEM") as api:
        assert api.execute("select count(*) from mainspring.jobs").fetchone() == (0,)
        assert api.execute("select count(*) from mainspring.trail").fetchone() == (0,)
        for attempt in (
            "select mainspring.enqueue('sweep', org_id => 'SYSTEM')",
            "select mainspring.add_key('SYSTEM', gen_random_uuid(), 'x')",
            "select mainspring.record_business('a.b', '{}', 'SYSTEM')",
        ):
            with pytest.raises(InsufficientPrivilege) as caught:
                api.execute(attempt.encode())
            refused.append(str(caught.value).partition(" for ")[0])
        cancel = "select mainspring.cancel(%s, 'SYSTEM', 'user', 'me', 'x')"
        for (job,) in secured.do("select id from mainspring.job"):
            assert api.execute(cancel, [job]).fetchone() == ("not_found",)
    assert set(refused) == {"new row violates row-level security policy"}
    assert secured.do("select org_id, state from mainspring.jobs") == [("SYSTEM", "ready")] * 2


@pytest.mark.rule("ENG-19.10")
def test_a_login_that_changes_its_role_is_whom_it_plays(secured: Secured) -> None:
    with superuser(secured.database) as conn, conn.transaction(force_rollback=True):
        conn.execute("create role pooler login noinherit in role mainspring_api, mainspring_operator")
        conn.execute("set local session authorization pooler; set local mainspring.org to 'SYSTEM'")
        conn.execute("set local role mainspring_operator; select mainspring.enqueue('sweep', org_id => 'SYSTEM')")
        conn.execute("set local role mainspring_api")
        with pytest.raises(InsufficientPrivilege, match="row-level security"):
            conn.execute("select mainspring.enqueue('sweep', org_id => 'SYSTEM')")


# -- rights that somebody gave


def test_what_everybody_was_given_is_taken_away(database: Database) -> None:
    """Row-level security says nothing of truncate, nor of functions that somebody puts beside ours."""
    with superuser(database) as conn:
        conn.execute("grant all on all tables in schema mainspring to public")
        conn.execute("grant all on all sequences in schema mainspring to public")
        conn.execute("grant all on schema mainspring to public")
    with closing(Secured(database)) as secured, secured.connect("api", "acme") as api:
        assert cover(secured.conn).gaps == []
        for attempt in (
            "truncate mainspring.job, mainspring.waiting",
            "insert into mainspring.waiting (id) values (gen_random_uuid())",
            "select setval('mainspring.epoch', 1)",
            "create function mainspring.refuse(varchar, varchar) returns void language sql as 'select 1'",
        ):
            with pytest.raises(InsufficientPrivilege):
                api.execute(attempt.encode())


# -- keys


@pytest.mark.anyio
@pytest.mark.parametrize("wrapped", [b"", b"x", b"y" * 60], ids=["empty", "short", "junk"])
async def test_a_key_that_nobody_can_open_harms_its_organisation_only(secured: Secured, wrapped: bytes) -> None:
    tasks, cipher = Registry("keys"), Cipher(b"m" * 32)

    @tasks.task(retry=fixed(0, attempts=1))
    async def greet(*, name: str) -> None: ...

    with secured.connect("api", "acme") as api:
        api.execute("select mainspring.add_key('acme', %s, %s)", [uuid7(), wrapped])
        api.execute("""select mainspring.enqueue('greet', '{"name": "Ada"}', org_id => 'acme')""")
    with Client(secured.dsn("api"), secured=True, cipher=cipher) as client:
        client.enqueue(greet.job(name="Bob").for_org("globex"))
    async with asyncio.timeout(30):
        await Worker(secured.dsn("worker"), tasks, cipher=cipher).drain()

    states = dict(
        secured.do("select org_id, state || coalesce(': ' || (error ->> 'message'), '') from mainspring.jobs")
    )
    assert states["globex"] == "succeeded"
    assert "master key: does not open the keys" in states["acme"]


# -- names


@pytest.mark.anyio
@pytest.mark.rule("ENG-19.04")
@pytest.mark.parametrize("encoding", ["utf8", "latin1", "sjis"])
async def test_a_transaction_is_of_its_own_organisation_whatever_the_address_says_of_letters(
    secured: Secured, encoding: str
) -> None:
    tasks, bound = Registry("letters"), list[tuple[str, int]]()
    orgs = {"café", "日本", "ソ'; drop table mainspring.job; --", "o'\\", "\\'; select 1; --"}

    @tasks.task(retry=fixed(0, attempts=1))
    async def look(ctx: Context) -> None:
        async with ctx.complete() as tx:
            seen = await tx.execute("select current_setting('mainspring.org'), count(*) from mainspring.jobs")
            bound.extend(await seen.fetchall())

    with Client(secured.dsn("api"), secured=True) as client:
        client.enqueue_many([look.job().for_org(org) for org in orgs])
    async with asyncio.timeout(30):
        await Worker(make_conninfo(secured.dsn("worker"), client_encoding=encoding), tasks).drain()

    assert set(bound) == {(org, 1) for org in orgs}
    assert secured.do("select distinct state from mainspring.jobs") == [("succeeded",)]


def test_a_connection_in_another_encoding_is_bound_to_the_same_name(database: Database) -> None:
    for encoding in ("utf8", "latin1"):
        with psycopg.connect(database.dsn, client_encoding=encoding) as conn:
            command = binding(conn.pgconn, "café's \\")
            conn.execute(command.encode(conn.info.encoding))
            assert conn.execute("select current_setting('mainspring.org')").fetchone() == ("café's \\",)
