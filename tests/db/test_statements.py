"""The SQL texts: prepared against the real schema, using the index, saying what Python expects."""

from __future__ import annotations

import re
from typing import Any

import psycopg
import pytest
from tests.databases import Database
from tests.db.conftest import NOON
from tests.db.engine import Engine

from mainspring.config import DEFAULT_SCHEMA
from mainspring.db.schema.line import engine_line
from mainspring.db.wire.sql import Sql, render
from mainspring.job import Claim, Job

PINNED = ("enable_seqscan = off", "enable_hashjoin = off", "enable_mergejoin = off", "jit = off")


def numbered(text: str) -> str:
    """psycopg's placeholders as the server's: by position, or one number a name."""
    names: dict[str, int] = {}
    text = re.sub(r"%\((\w+)\)s", lambda m: f"${names.setdefault(m[1], len(names) + 1)}", text)
    count = 0

    def number(_: re.Match[str]) -> str:
        nonlocal count
        count += 1
        return f"${count}"

    return re.sub(r"%s", number, text)


def prepare_all(conn: psycopg.Connection[Any]) -> list[str]:
    sql = Sql()
    names = [name for name in sql.names() if "savepoint" not in name]  # commands, which PostgreSQL does not prepare
    for name in names:
        text = sql[name].replace("{worker}", "w").replace("{epoch}", "1")  # written into the text by its user
        conn.execute(f"prepare {name} as {numbered(text).removesuffix('; commit')}".encode())
    return names


def test_every_statement_can_be_prepared(database: Database) -> None:
    with database.connect() as conn:
        names = prepare_all(conn)
        assert conn.execute("select count(*) from pg_prepared_statements").fetchone() == (len(names),)


def test_every_statement_can_be_prepared_on_the_oldest_server(database15: Database) -> None:
    with database15.connect() as conn:
        names = prepare_all(conn)
        assert conn.execute("select count(*) from pg_prepared_statements").fetchone() == (len(names),)


def test_a_claim_has_the_fields_that_python_reads(engine: Engine) -> None:
    cursor = engine.conn.execute(
        engine.sql["claim"], ["w", "1 s", 1, [], [], [], [], [], [], [], False, 0, False, None]
    )
    assert cursor.description is not None
    assert tuple(column.name for column in cursor.description) == Claim.__struct_fields__


def test_the_view_of_jobs_has_the_fields_that_python_reads(engine: Engine) -> None:
    cursor = engine.conn.execute("select * from mainspring.jobs limit 0")
    assert cursor.description is not None
    assert tuple(column.name for column in cursor.description) == (*Job.__struct_fields__, "held_by")


def claim_statement() -> str:
    """The claim's own statement, cut out of its function, with parameters that find 500 jobs of two queues."""
    (text,) = [verb.text for verb in engine_line().verbs if verb.name == "{schema}.claim"]
    body = re.search(r"return query\n  (with rescued.*?);  --", render(text, DEFAULT_SCHEMA), re.DOTALL)
    assert body is not None
    low = "'{-infinity,-infinity}'::timestamptz[]"
    values = {
        "p_worker": "'w'",
        "p_lease": "'60 s'::interval",
        "p_total": "500",
        "p_queues": "'{q:default,q:other}'::text[]",
        "p_limits": "'{500,500}'::int[]",
        **{f"p_low{n}": low for n in range(4)},
        "p_tasks": "'{t}'::text[]",
        "p_oldest": "false",
        "p_rescued": "1",
        "p_alone": "false",
    }
    return re.sub(r"\bp_\w+", lambda m: values[m[0]], body[1])


def scans(plan: Any) -> list[tuple[str, str]]:
    """(table, index or kind of scan) of every node that reads a table."""
    found = []
    if "Relation Name" in plan and "Scan" in plan["Node Type"]:
        found.append((plan["Relation Name"], plan.get("Index Name", plan["Node Type"])))
    for child in plan.get("Plans", ()):
        found += scans(child)
    return found


@pytest.mark.rule("ENG-5.10")
def test_a_claim_finds_its_jobs_by_the_index(engine: Engine) -> None:
    check_claim_plan(engine)


@pytest.mark.rule("ENG-5.10")
def test_a_claim_finds_its_jobs_by_the_index_on_the_oldest_server(database15: Database) -> None:
    with database15.connect() as conn:
        engine = Engine(conn)
        engine.clock.set(NOON)
        check_claim_plan(engine)


def check_claim_plan(engine: Engine) -> None:
    engine.enqueue_many([{"queue": f"q:{n % 20}"} for n in range(4000)])
    engine.enqueue_many([{"queue": ("q:default", "q:other")[n % 2]} for n in range(600)])
    engine.conn.execute("analyze mainspring.waiting, mainspring.job")
    with engine.conn.transaction(force_rollback=True):
        for setting in PINNED:
            engine.conn.execute(f"set local {setting}".encode())
        ((found,),) = engine.rows(f"explain (analyze, format json) {claim_statement()}")
    plan = found[0]["Plan"]

    reads = scans(plan)
    assert plan["Actual Rows"] == 500
    assert ("waiting", "waiting_claim") in reads
    assert ("waiting", "waiting_rescued") in reads
    assert {how for table, how in reads if table == "waiting"} <= {"waiting_claim", "waiting_rescued", "Tid Scan"}
    assert {how for table, how in reads if table == "job"} == {"job_pkey"}


@pytest.mark.rule("ENG-29.04")
def test_a_claim_reads_no_more_when_many_jobs_have_finished(engine: Engine) -> None:
    engine.enqueue_many([{"queue": ("q:default", "q:other")[n % 2]} for n in range(600)])
    before = pages_of_a_claim(engine)

    engine.conn.execute(
        """
        insert into mainspring.job (id, org_id, task, queue, priority, max_attempts, cancellable, payload, actor_type,
                                    actor_id, request_id, correlation_id, created_at)
        select gen_random_uuid(), 'default', 't', 'q:default', 2, 5, true, '{}', 'system', 'SYSTEM', 'r', 'c',
               mainspring.now()
        from generate_series(1, 60000);
        insert into mainspring.finished (id, org_id, state, attempt, finished_at)
        select j.id, j.org_id, 'succeeded', 1, mainspring.now() from mainspring.job j
        where not exists (select from mainspring.waiting w where w.id = j.id);
        """
    )

    assert pages_of_a_claim(engine) <= before * 1.5  # the index of `job` is a level deeper; nothing else may grow


def pages_of_a_claim(engine: Engine) -> int:
    """How many pages a claim of 500 jobs looks at."""
    engine.conn.execute("vacuum analyze mainspring.waiting, mainspring.job, mainspring.finished")
    with engine.conn.transaction(force_rollback=True):
        for setting in PINNED:
            engine.conn.execute(f"set local {setting}".encode())
        ((found,),) = engine.rows(f"explain (analyze, buffers, format json) {claim_statement()}")
    plan = found[0]["Plan"]
    assert plan["Actual Rows"] == 500
    return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])


def test_the_claim_pins_the_settings_that_its_plan_needs(engine: Engine) -> None:
    ((pinned,),) = engine.rows("select proconfig from pg_proc where oid = 'mainspring.claim'::regproc")
    wanted = {setting.replace(" ", "") for setting in PINNED} | {"plan_cache_mode=force_generic_plan"}
    assert wanted <= set(pinned)


def test_statements_prepared_on_empty_tables_still_drain_a_flood(engine: Engine) -> None:
    """The trap that the pinned settings close: a plan made for no rows met thousands, one scan of all for each."""
    conn = engine.conn
    conn.execute("analyze mainspring.waiting, mainspring.running, mainspring.job, mainspring.finished")
    for _ in range(6):  # psycopg prepares at the fifth
        assert engine.claim() == []
        assert engine.complete("w1", 0) == []
    engine.enqueue_many([{} for _ in range(1000)])

    conn.execute(
        "set statement_timeout = '2s'"
    )  # a claim that reads the whole table for each of its jobs would pass it
    for _ in range(2):
        found = engine.claim(n=500)
        assert len(found) == 500
        assert len(engine.complete("w1", *(claim.epoch for claim in found))) == 500

    assert engine.claim() == []
