"""`mainspring doctor`: each finding is forced on a real database, and each threshold is looked at by itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import psycopg
import pytest
from msgspec.structs import replace
from tests.cli.conftest import Cli
from tests.databases import Database, fresh_database
from tests.db.engine import Engine
from tests.proofs.surroundings.pgbouncer import pooling

from mainspring.embedded import Cluster
from mainspring.health.doctor import Facts, Finding, findings
from mainspring.health.doctor.facts import (
    Engine as EngineFacts,
)
from mainspring.health.doctor.facts import (
    LaneFacts,
    Misplaced,
    PausedQueue,
    Pile,
    Prepared,
    ServerFacts,
    Session,
    Slot,
    TableFacts,
    Tickets,
)

SERVER = ServerFacts(
    version_num=180001, version="18.1", in_recovery=False, read_only=False, timeline="00000002", fsync=True,
    full_page_writes=True, synchronous_commit="on", autovacuum=True, max_connections=100, connections=10, sees_all=True,
    sessions=[], slots=[], prepared=[],
)  # fmt: skip
ENGINE = EngineFacts(
    movable_clock=False, secured=True, superuser_owns=False, workers=1, gone=0, lanes=[], paused=[],
    expired=Pile(count=0, seconds=None), dead=Pile(count=0, seconds=None), tables=[],
)  # fmt: skip
HEALTHY = Facts(
    round_trip_ms=0.3, skew_s=0.01, pooled=False, shared=False, listen_ms=0.5, listen_error=None, server=SERVER,
    engine=ENGINE, tickets=Tickets(looked=10, wrong=[]),
)  # fmt: skip
HOLDER = Session(pid=7, user="ada", name="psql", state="idle in transaction", seconds=61, snapshot=True)
LANE = LaneFacts(name="q:a", oldest_s=5, target_s=30, served=True, unknown=[])


def server(**changes: Any) -> Facts:
    return replace(HEALTHY, server=replace(SERVER, **changes))


def engine(**changes: Any) -> Facts:
    return replace(HEALTHY, engine=replace(ENGINE, **changes))


def test_healthy_surroundings_have_only_good_findings() -> None:
    found = findings(HEALTHY)
    assert {finding.level for finding in found} == {"ok"}
    assert len(found) >= 20


@pytest.mark.parametrize(
    ("facts", "name", "level", "what"),
    [
        (replace(HEALTHY, round_trip_ms=21.0), "connection", "warn", "a round trip takes 21.0 ms"),
        (server(version_num=140009, version="14.9"), "version", "problem", "PostgreSQL 14.9"),
        (server(version_num=150003, version="15.3"), "version", "warn", "PostgreSQL 15.3"),
        (server(version_num=190000, version="19.0"), "version", "warn", "newer than what the tests run on"),
        (server(in_recovery=True), "writable", "problem", "the server is a standby"),
        (server(read_only=True), "writable", "problem", "transactions are read-only"),
        (server(fsync=False), "fsync", "problem", "off: a crash of the machine can destroy the database"),
        (server(full_page_writes=False), "full_page_writes", "problem", "off"),
        (server(synchronous_commit="off"), "synchronous_commit", "problem", "acknowledged can be lost"),
        (server(autovacuum=False), "autovacuum", "problem", "off"),
        (server(connections=81), "connections", "warn", "81 of 100 connections are taken"),
        (server(connections=96), "connections", "problem", "96 of 100"),
        (replace(HEALTHY, listen_ms=None), "listen", "warn", "no notification arrives: workers only poll"),
        (replace(HEALTHY, skew_s=-1.5), "clock", "warn", "this machine is 1.5 s behind the database"),
        (replace(HEALTHY, skew_s=90.0), "clock", "warn", "this machine is 1 min 30 s ahead of the database"),
        (server(sessions=[HOLDER]), "snapshots", "warn", "session 7 (ada, psql, idle in transaction for 1 min 1 s)"),
        (server(sessions=[replace(HOLDER, seconds=901)]), "snapshots", "problem", "holds a snapshot"),
        (server(sessions=[replace(HOLDER, snapshot=False)]), "idle", "warn", "somebody left a transaction open"),
        (
            server(slots=[Slot(name="s", active=False, xids=100_001, wal_status=None)]),
            "snapshots", "warn", "replication slot s (inactive) holds back 100,001 transactions",
        ),
        (server(prepared=[Prepared(gid="g", seconds=61)]), "snapshots", "warn", "transaction g was prepared"),
        (replace(HEALTHY, schema_problem="it is old: run this.", engine=None), "schema", "problem", "it is old"),
        (engine(movable_clock=True), "time", "warn", "can be moved"),
        (engine(superuser_owns=True), "owner", "warn", "a superuser owns the tables"),
        (engine(workers=0, lanes=[LANE]), "workers", "problem", "jobs are due and no worker is alive"),
        (engine(lanes=[replace(LANE, served=False)]), "queues", "problem", "q:a: due for 5 s, and no living worker"),
        (engine(lanes=[replace(LANE, unknown=["t"])]), "queues", "problem", "q:a: no living worker knows t"),
        (engine(lanes=[replace(LANE, oldest_s=31)]), "queues", "warn", "late by 31 s, the target is 30 s"),
        (
            engine(paused=[PausedQueue(name="q:a", seconds=3601, by="ada", reason="paper")]),
            "paused", "warn", "q:a is paused by ada since 1 h (paper)",
        ),
        (engine(expired=Pile(count=2, seconds=31)), "leases", "problem", "2 leases expired up to 31 s ago"),
        (
            engine(expired=Pile(count=1, seconds=31), holder=HOLDER),
            "leases",
            "problem",
            "session 7 (psql, idle in transaction for 1 min 1 s) holds the first in an open transaction",
        ),
        (engine(dead=Pile(count=3, seconds=86_401)), "dead", "warn", "3 dead letters, the oldest 1 d old"),
        (
            engine(tables=[TableFacts(name="waiting", live=10, dead=50_001, vacuumed_s=None)]),
            "bloat", "warn", "waiting has 50,001 dead rows beside 10 live ones, last vacuumed never",
        ),
        (
            replace(HEALTHY, tickets=Tickets(looked=1, wrong=[Misplaced(id=UUID(int=7), tickets=2, job=False)])),
            "tickets", "problem", f"{UUID(int=7)} (2 tickets, no job)",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_found_and_says_what_to_do(facts: Facts, name: str, level: str, what: str) -> None:
    bad = [finding for finding in findings(facts) if finding.level != "ok"]
    assert [(finding.name, finding.level) for finding in bad] == [(name, level)]
    assert what in bad[0].what
    assert bad[0].todo


@pytest.mark.parametrize(
    "facts",
    [
        server(sessions=[replace(HOLDER, seconds=59)]),
        server(slots=[Slot(name="s", active=True, xids=None, wal_status="reserved")]),
        server(synchronous_commit="remote_apply"),
        engine(workers=0),
        engine(lanes=[LANE]),
        engine(paused=[PausedQueue(name="q:a", seconds=60, by=None, reason=None)], lanes=[replace(LANE, oldest_s=999)]),
        engine(expired=Pile(count=2, seconds=29)),
        engine(dead=Pile(count=3, seconds=60)),
        engine(tables=[TableFacts(name="job", live=50_000, dead=60_000, vacuumed_s=9)]),
    ],
)
def test_what_is_not_yet_wrong_is_no_finding(facts: Facts) -> None:
    assert [finding for finding in findings(facts) if finding.level != "ok"] == []


# -- on real databases


def look(cli: Cli, *arguments: str) -> dict[str, Finding]:
    answer = cli("doctor", "--json", *arguments)
    assert answer.code in (0, 1), answer.err
    document = json.loads(answer.out)
    assert document["healthy"] == (answer.code == 0)
    order = {"ok": 0, "warn": 1, "problem": 2}
    found = [Finding(**finding) for finding in document["findings"]]
    return {finding.name: finding for finding in sorted(found, key=lambda finding: order[finding.level])}


@contextmanager
def opened(database: Database, *statements: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database.dsn, application_name="ada's psql") as conn:
        for statement in statements:
            conn.execute(statement.encode())
        yield conn


def test_careless_test_cluster_is_told_apart_from_a_durable_one(
    cli: Cli, durable_cluster: Cluster, database: Database
) -> None:
    careless = look(cli)
    assert {careless[name].level for name in ("fsync", "synchronous_commit")} == {"problem"}
    assert (careless["time"].level, careless["listen"].level, careless["pooler"].level) == ("warn", "ok", "ok")
    with fresh_database(durable_cluster) as durable:
        found = look(cli, "--dsn", durable.dsn)
    assert {found[name].level for name in ("fsync", "full_page_writes", "synchronous_commit", "writable")} == {"ok"}


def test_doctor_says_in_words_what_to_do(cli: Cli) -> None:
    answer = cli("doctor")
    assert answer.code == 1
    assert "✗  fsync               off: a crash of the machine can destroy the database\n" in answer.out
    assert "→ set fsync = on in postgresql.conf and reload\n" in answer.out
    assert re.fullmatch(r"\d+ findings: \d problems, 1 warning\.", answer.out.splitlines()[-1])


def test_held_snapshot_and_open_transaction_are_seen(
    cli: Cli, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HELD", "IDLE_SESSION_S"):
        monkeypatch.setattr(f"mainspring.health.doctor.surroundings.{name}", 1.0)
    begin = "begin isolation level repeatable read"
    with opened(database, begin, "select from mainspring.job") as holder, opened(database, "select 1") as idle:
        age(holder, idle)
        found = look(cli)
        assert (
            f"session {holder.info.backend_pid} (mainspring, ada's psql, idle in transaction" in found["snapshots"].what
        )
        assert found["snapshots"].todo == f"end it: select pg_terminate_backend({holder.info.backend_pid})"
        assert f"session {idle.info.backend_pid} " in found["idle"].what


def age(*conns: psycopg.Connection[Any]) -> None:
    """Let transactions grow older than the second that the doctor waits: the server's own clock cannot be moved."""
    for conn in conns:
        conn.execute("select pg_sleep(greatest(0, 1.1 - extract(epoch from clock_timestamp() - now())))")


def test_broken_invariant_is_found_in_the_sample_and_in_the_whole(cli: Cli, database: Database) -> None:
    with database.connect() as conn:
        engine = Engine(conn)
        engine.enqueue_many([{} for _ in range(1100)])
        assert "1,100 jobs" in look(cli, "--deep")["tickets"].what
        columns = "id, org_id, task, queue, priority, due_at"
        oldest = "select id from mainspring.job order by id limit 1"
        (row,) = engine.rows(f"delete from mainspring.waiting where id = ({oldest}) returning {columns}")
        assert look(cli)["tickets"].level == "ok"
        found = look(cli, "--deep")["tickets"]
        assert (found.level, f"{row[0]} (0 tickets)" in found.what) == ("problem", True)
        insert = f"insert into mainspring.waiting ({columns}) values (%s, %s, %s, %s, %s, %s)".encode()
        conn.execute(insert, row)
        newest = engine.started(queue="q:x")
        conn.execute(insert, [newest.id, "x", "t", "q", 2, "now"])
        assert f"{newest.id} (2 tickets)" in look(cli)["tickets"].what
        conn.execute("delete from mainspring.waiting where queue = 'q'")


def test_what_the_engine_left_behind_is_found(cli: Cli, database: Database) -> None:
    with database.connect() as conn:
        engine = Engine(conn)
        engine.clock.set(engine.clock.now())
        lost, buried = engine.started(), engine.started(task="b")
        engine.end(buried, "bury")
        engine.pause("q:exports", "printer")
        engine.clock.advance(days=2)
        assert "jobs are due" not in look(cli)["workers"].what
        engine.enqueue()
        found = look(cli)
        assert found["workers"].what == "jobs are due and no worker is alive"
        assert found["leases"].what.startswith("1 lease expired up to 1 d 23 h ago")
        assert found["dead"].what == "1 dead letter, the oldest 2 d old"
        with database.connect() as holder, holder.transaction():
            holder.execute("select from mainspring.running where id = %s for update", [lost.id])
            assert f"session {holder.info.backend_pid} (" in look(cli)["leases"].what
        assert found["paused"].what == "q:exports is paused by ada since 2 d (printer)"
        conn.execute(
            """
            insert into mainspring.worker (id, host, pid, version, queues, tasks, concurrency, started_at, seen_at)
            values ('w', 'h', 1, '1', '{q:x}', '{t}', 1, mainspring.now(), mainspring.now())
            """
        )
        assert "q:default: due for" in look(cli)["queues"].what
        conn.execute("update mainspring.worker set queues = '{q:default}', tasks = '{u}'")
        assert look(cli)["queues"].what == "q:default: no living worker knows t"
        conn.execute("update mainspring.worker set tasks = '{t}'")
        assert look(cli)["queues"].level == "ok"
        engine.clock.advance(seconds=25)
        conn.execute("update mainspring.worker set seen_at = mainspring.now()")
        engine.clock.advance(seconds=10)
        assert look(cli)["queues"].what == "q:default: the oldest job is late by 35 s, the target is 30 s"
        assert lost.id


@pytest.mark.parametrize("round_robin", [0, 1])
def test_pooler_in_transaction_mode_is_found_and_the_way_past_it_is_used(
    cli: Cli, database: Database, volatile_cluster: Cluster, monkeypatch: pytest.MonkeyPatch, round_robin: int
) -> None:
    with pooling(volatile_cluster, settings=f"server_round_robin = {round_robin}") as bouncer:
        dsn = bouncer.dsn(database.dsn)
        monkeypatch.setattr("mainspring.db.doctor.NOTIFICATION_PATIENCE_S", 0.2)
        found = look(cli, "--dsn", dsn)
        assert (found["pooler"].level, found["listen"].level) == ("warn", "warn")
        assert "MAINSPRING_LISTEN_DSN" in found["pooler"].todo
        monkeypatch.setenv("MAINSPRING_LISTEN_DSN", database.dsn)
        found = look(cli, "--dsn", dsn)
        assert found["pooler"].what == "a pooler in transaction mode; hints come past it"
        assert found["listen"].level == "ok"
        bouncer.forget(dsn)


def test_pooler_in_session_mode_is_told_apart(cli: Cli, database: Database, volatile_cluster: Cluster) -> None:
    with pooling(volatile_cluster, mode="session") as bouncer:
        dsn = bouncer.dsn(database.dsn)
        found = look(cli, "--dsn", dsn)
        assert (found["pooler"].what, found["listen"].level) == ("a pooler in session mode", "ok")
        bouncer.forget(dsn)


def test_schema_that_does_not_fit_is_a_finding_and_the_rest_is_still_looked_at(cli: Cli) -> None:
    found = look(cli, "--schema", "elsewhere")
    assert found["schema"].level == "problem"
    assert found["connection"].level == "ok"
    assert "workers" not in found


def test_read_only_role_is_a_finding(cli: Cli, database: Database) -> None:
    dsn = f"{database.dsn} options='-c default_transaction_read_only=on'"
    assert look(cli, "--dsn", dsn)["writable"].what == "transactions are read-only"


def test_database_that_is_away_is_a_finding(cli: Cli) -> None:
    answer = cli("doctor", "--dsn", "host=127.0.0.1 port=1 connect_timeout=2")
    assert answer.code == 1
    assert answer.out.startswith("✗  connection  ")
    assert "→ is the server up" in answer.out
    assert cli("doctor", "--dsn", "nonsense").code == 2


def test_oldest_server_is_examined_as_well(cli: Cli, database15: Database) -> None:
    assert look(cli, "--dsn", database15.dsn)["version"].level == "ok"


def test_doctor_waits_for_an_answer_as_long_as_every_command(
    cli: Cli, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAINSPRING_ANSWERED_WITHIN_SECONDS", "0.5")
    with database.connect() as conn, conn.transaction():
        conn.execute("lock table mainspring.worker")
        answer = cli("doctor")

    assert answer.code == 5
    assert "has not answered within 0.5 s" in answer.err
