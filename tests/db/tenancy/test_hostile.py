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
from tests.secured import Secured, superuser

from mainspring import Cipher, Client, Context, Registry, ValidationError, fixed
from mainspring.audit import ENGINE_NOUNS, written_event
from mainspring.db.schema.secure import cover, secure, unsecure
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


LOOSE = {
    "grant truncate on mainspring.job to mainspring_api": "mainspring_api may truncate job",
    "grant insert on mainspring.audit to mainspring_worker": "mainspring_worker may insert audit",
    "grant all on mainspring.epoch to public": "public may select epoch",
    "create policy oops on mainspring.finished using (true)": "table finished has a policy oops, which admits more",
    "alter function mainspring.cancel reset search_path": "function cancel takes names from who calls it",
    "grant mainspring_worker to mainspring_api": "mainspring_api is a member of mainspring_worker: revoke",
    "alter role mainspring_operator bypassrls": "mainspring_operator is a superuser or bypasses row-level security",
}


def test_status_does_not_say_secured_where_somebody_loosened_it(database: Database) -> None:
    with superuser(database) as conn:
        secure(conn)
        unseen = []
        for statement, gap in LOOSE.items():
            with conn.transaction(force_rollback=True):  # roles are the cluster's
                conn.execute(statement.encode())
                if not any(found.startswith(gap) for found in cover(conn).gaps):
                    unseen.append((gap, cover(conn).gaps))
        assert unseen == []
        assert cover(conn).gaps == []
        unsecure(conn)


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
