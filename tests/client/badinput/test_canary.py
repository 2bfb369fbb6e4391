"""No value reaches the text of a statement: the server's own log of what it was asked to run says so."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.sql import SQL, Identifier, Literal
from tests.cli.conftest import Cli
from tests.client.badinput.lists import ODD_BUT_FINE
from tests.client.badinput.test_client import refusal_of, verbs
from tests.client.conftest import Awaited
from tests.databases import Database, superuser
from tests.db.engine import Engine

import mainspring as ms
from mainspring import AsyncClient, Client
from mainspring.embedded import Cluster
from mainspring.worker import Worker

tasks = ms.Registry("canary")
Statements = Callable[[], list[str]]


@tasks.task(retry=ms.fixed(60, attempts=1))
async def sing(ctx: ms.Context, *, song: str) -> None:
    ctx.audit("song.sung", song=song)
    if song.startswith("stop"):
        raise RuntimeError(song)


@tasks.task
async def where(ctx: ms.Context) -> None:
    async with ctx.complete() as conn:
        cursor = await conn.execute("select current_setting('mainspring.org', true)")
        ctx.result = (await cursor.fetchone() or [None])[0]


@pytest.fixture
def statements(database: Database, volatile_cluster: Cluster) -> Statements:
    """What the server was asked to run since the test began, without parameters."""
    name = Identifier(str(psycopg.conninfo.conninfo_to_dict(database.dsn)["dbname"]))
    settings = {"log_statement": "all", "log_parameter_max_length": "0", "log_parameter_max_length_on_error": "0"}
    with superuser(volatile_cluster) as conn:
        for setting, value in settings.items():
            conn.execute(SQL("alter database {} set {} = {}").format(name, Identifier(setting), Literal(value)))
    start = volatile_cluster.log.stat().st_size

    def read() -> list[str]:
        text = volatile_cluster.log.read_bytes()[start:].decode(errors="replace")
        entries = re.split(r"^\d{4}-\d\d-\d\d [^\n]*? (?=[A-Z]+:  )", text, flags=re.MULTILINE)
        return [entry for entry in entries if entry.startswith(("LOG:  statement", "LOG:  execute", "STATEMENT:"))]

    return read


def test_no_value_of_a_verb_reaches_sql_text(
    database: Database, statements: Statements, engine: Engine, cli: Cli
) -> None:
    import asyncio

    canary = f"canary-{uuid4()}"

    async def call() -> None:
        with Client(database.dsn) as sync:
            for _, longest, verb in verbs(Awaited(sync)):
                assert await refusal_of(verb, canary) is None or longest == 0 or longest < len(canary)
        async with AsyncClient(database.dsn) as client:
            for _, _, verb in verbs(Awaited(client)):
                await refusal_of(verb, canary)
            await client.enqueue(sing.job(song=canary).with_key(f"{canary}-1").by(canary).traced(request_id=canary))
            await client.enqueue(sing.job(song=f"stop {canary}").with_priority(0))
        await Worker(database.dsn, tasks).drain()

    asyncio.run(call())
    cli("job", "enqueue", canary, f"--key={canary}-2", "-f", f"v={canary}", "--queue", canary)
    cli("job", "list", "--task", canary, "--queue", canary, "--org", canary)
    cli("audit", "list", "--actor", canary)
    cli("job", "cancel", "--key", f"{canary}-2", "--reason", canary)

    seen = statements()
    assert len(seen) > 100
    assert [entry for entry in seen if canary in entry] == []
    assert engine.rows("select count(*) > 5 from mainspring.audit a where a::text ~ %s", canary) == [(True,)]


@pytest.mark.anyio
async def test_an_organisation_of_any_name_binds_its_own_transaction(database: Database) -> None:
    with Client(database.dsn) as client:
        jobs = {text: client.enqueue(where.job().for_org(text)).id for text in ODD_BUT_FINE}
        await Worker(database.dsn, tasks).drain()
        assert {text: client.result(job, org=text, timeout=0) for text, job in jobs.items()} == {t: t for t in jobs}


def test_tables_are_as_they_were(engine: Engine, database: Database) -> None:
    tables = "select count(*) from pg_tables where schemaname = 'mainspring'"
    before: Any = engine.rows(tables)
    with Client(database.dsn) as client:
        for text in ODD_BUT_FINE:
            job = client.enqueue(sing.job(song=text).with_key(text).for_org(text).on_queue(text)).id
            client.reschedule(job, delay=timedelta(0), reason=text)
            client.jobs(task=text, queue=text, org=text)
            client.audit.events(actor=text, org=text)
    assert engine.rows(tables) == before
