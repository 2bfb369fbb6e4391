"""`mainspring top`: what happens, drawn for 80 by 24, by statements that never read a hot table whole."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from rich.console import Console
from tests.cli.conftest import Cli
from tests.databases import Database
from tests.db.engine import Engine
from tests.db.test_statements import numbered, scans

from mainspring.cli.board import draw
from mainspring.db.pulse import MOST_COUNTED, Board, FailureCount, LanePulse, Pulse, WorkerLoad
from mainspring.db.wire.sql import Sql

AT = datetime(2030, 1, 31, 12, tzinfo=UTC)
PULSE = Pulse(
    since=AT, until=AT + timedelta(seconds=2), enqueued=10, started=9, succeeded=8, retried=1, rescued=0, failed=0,
    dead=1, ready=MOST_COUNTED, later=3, running=4, pickup_ms=8.2, pickup_p95_ms=1234.0,
)  # fmt: skip


def lane(name: str, **changes: Any) -> LanePulse:
    idle = LanePulse(name=name, ready=0, running=1, oldest_s=None, target_s=5, paused_by=None)
    return replace(idle, **changes)


def board(lanes: int = 2, workers: int = 2, failures: int = 2) -> Board:
    return Board(
        queues=[lane(f"q:{n}", ready=n) for n in range(lanes)],
        workers=[
            WorkerLoad(id=f"host:{n}", host="h", running=n, concurrency=100, stopping=False, seen_s=2, gone=False)
            for n in range(workers)
        ],
        failures=[
            FailureCount(task=f"task{n}", code="E", count=n, message="x" * 200, ago_s=n) for n in range(failures)
        ],
        dead_letters=7,
    )


def picture(pulse: Pulse, board: Board, width: int = 80, height: int = 24, **kwargs: Any) -> list[str]:
    console = Console(width=width, height=height, force_terminal=False, color_system=None)
    with console.capture() as drawn:
        console.print(draw("mainspring top", pulse, board, kwargs.pop("history", ()), width=width, height=height))
    return drawn.get().rstrip("\n").split("\n")


@pytest.mark.parametrize(("width", "height"), [(80, 24), (60, 20), (200, 60), (40, 24)])
@pytest.mark.parametrize("many", [0, 1, 5, 50])
def test_frame_fits_into_its_terminal(width: int, height: int, many: int) -> None:
    lines = picture(PULSE, board(many, many, many), width, height, history=[1.0] * 60)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width


def test_small_terminal_shows_some_of_each() -> None:
    text = "\n".join(picture(PULSE, board(50, 50, 50)))
    for part in ("q:49", "host:49", "task0"):
        assert part in text


def test_numbers_are_rates_and_bounded_counts_say_so() -> None:
    text = "\n".join(picture(PULSE, board(), 120))
    assert "enqueued 5/s  started 4.5/s  succeeded 4/s  retried 0.5/s  failed 0.5/s" in text
    assert "starts after 8 ms (p95 1.2 s)  ready 10,000+ (+3 later)  running 4  7 dead letters" in text


def test_what_needs_attention_is_said_and_comes_first() -> None:
    lanes = [
        lane("q:a", ready=9),
        lane("q:b", ready=2, oldest_s=6),
        lane("q:c", paused_by="ada"),
        lane("q:d", running=0),
    ]
    text = picture(PULSE, Board(queues=lanes, workers=[], failures=[], dead_letters=0))
    rows = {line.split()[0]: line.split()[1:] for line in text if line.startswith("q:")}
    assert list(rows) == ["q:b", "q:a", "q:c"]
    assert rows["q:b"][-1] == "late"
    assert rows["q:c"][-3:] == ["paused", "by", "ada"]
    assert "none is alive" in "\n".join(text)


def test_one_frame_says_what_happened(cli: Cli, database: Database) -> None:
    with database.connect() as conn:
        engine = Engine(conn)
        engine.clock.set(engine.clock.now())
        claims = [engine.started() for _ in range(4)]
        engine.end(claims[0], "complete")
        engine.end(claims[1], "bury")
        engine.end(claims[2], "fail", delay="1 h")
        engine.enqueue_many([{"queue": "q:x"} for _ in range(3)])
        engine.pause("q:exports")
        engine.clock.advance(seconds=1)
        document = cli("top", "--once", "--json").json
        counts = ("started", "succeeded", "retried", "dead", "ready", "later", "running", "dead_letters")
        assert {name: document[name] for name in counts} == {
            "started": 4, "succeeded": 1, "retried": 1, "dead": 1, "ready": 3, "later": 1, "running": 1,
            "dead_letters": 1,
        }  # fmt: skip
        assert {q["name"]: q["ready"] for q in document["queues"] if q["ready"]} == {"q:x": 3}
        assert [(f["task"], f["code"], f["count"]) for f in document["failures"]] == [("t", "INTERNAL_ERROR", 2)]
        text = cli("top", "--once").out
    for part in ("q:x", "paused by ada", "none is alive", "INTERNAL_ERROR: no answer", "1 dead letter"):
        assert part in text


def test_failures_older_than_five_minutes_are_no_longer_shown(cli: Cli, database: Database) -> None:
    with database.connect() as conn:
        engine = Engine(conn)
        engine.clock.set(engine.clock.now())
        engine.end(engine.started(), "bury")
        engine.clock.advance(minutes=5)
    assert cli("top", "--once", "--json").json["failures"] == []


def test_stream_is_one_object_a_line_a_second(database: Database) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "mainspring.cli", "top", "--json", "--dsn", database.dsn],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    first, second = (json.loads(process.stdout.readline()) for _ in range(2))
    process.terminate()
    process.communicate()
    assert first["until"] == second["since"]


def test_live_view_is_left_by_q(database: Database) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(
            sys.executable,
            [sys.executable, "-m", "mainspring.cli", "top", "--dsn", database.dsn],
            os.environ | {"TERM": "xterm"},
        )
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    seen, deadline = b"", time.monotonic() + 20
    while b"FAILED" not in seen and time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.1)[0]:
            seen += os.read(terminal, 65536)
    os.write(terminal, b"q")
    while time.monotonic() < deadline and select.select([terminal], [], [], 5)[0]:
        try:
            seen += os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0
    assert b"q quits" in seen
    assert seen.rindex(b"\x1b[?1049l") > seen.rindex(b"FAILED")  # the screen is as it was before


@pytest.mark.mainspring_new
@pytest.mark.parametrize("name", ["pulse", "board"])
def test_a_look_reads_no_hot_table_whole(database: Database, name: str) -> None:
    """Among many timers, failures and finished jobs. `running` may be read: it is as large as the workers' slots."""
    with database.connect() as conn:
        for statement in FLOOD.split(";"):
            conn.execute(statement.encode())
        text = numbered(Sql()[name])
        values = {"pulse": "(mainspring.now() - interval '1 s')::text, '200 ms'", "board": "'30 s'"}[name]
        conn.execute("set plan_cache_mode = force_generic_plan")
        conn.execute(f"prepare look as {text}".encode())
        row = conn.execute(f"explain (format json) execute look({values})".encode()).fetchone()
        for table in ("job", "waiting", "finished", "attempt"):
            conn.execute(f"truncate mainspring.{table}".encode())
    assert row is not None
    whole = {table for table, how in scans(row[0][0]["Plan"]) if how == "Seq Scan"}
    assert whole & {"job", "waiting", "finished", "attempt"} == set()


FLOOD = """
insert into mainspring.job (id, org_id, task, queue, priority, max_attempts, cancellable, payload, actor_type, actor_id,
                            request_id, correlation_id, created_at)
select gen_random_uuid(), 'default', 't', 'q:default', 2, 5, true, '{}', 'system', 'x', 'x', 'x', now()
from generate_series(1, 20000);
insert into mainspring.waiting (id, org_id, task, queue, priority, due_at)
select id, 'default', 't', 'q:' || row_number() over () % 5, 2, now() + interval '1 h' from mainspring.job limit 10000;
insert into mainspring.finished (id, org_id, state, attempt, started_at, finished_at)
select gen_random_uuid(), 'default', 'succeeded', 1, now(), now() - (100000 - n) * interval '1 s'
from generate_series(1, 100000) n;
insert into mainspring.attempt (org_id, job_id, epoch, attempt, worker, started_at, ended_at, outcome)
select 'default', id, row_number() over (), 1, 'w', now() - row_number() over () * interval '1 s',
       now() - row_number() over () * interval '1 s', 'retried' from mainspring.job;
analyze mainspring.job, mainspring.waiting, mainspring.finished, mainspring.attempt
"""


def test_counts_stay_bounded(cli: Cli, database: Database) -> None:
    with database.connect() as conn:
        engine = Engine(conn)
        conn.execute(
            """
            insert into mainspring.waiting (id, org_id, task, queue, priority, due_at)
            select gen_random_uuid(), 'default', 't', 'q:x', n % 4, mainspring.now() - interval '1 min'
            from generate_series(1, 12000) n
            """
        )
        document = cli("top", "--once", "--json").json
        assert document["ready"] == MOST_COUNTED
        assert re.search(r"q:x +10,000\+", cli("top", "--once").out)
        engine.conn.execute("delete from mainspring.waiting")
