"""What is printed cannot drive a terminal, shows no secret, and is said in words that people use."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.cli.conftest import Cli
from tests.databases import Database
from tests.db.engine import Engine

from mainspring.cli import output
from mainspring.text.sanitize import masked
from mainspring.text.span import ago, span
from mainspring.uuid7 import uuid7

#: Clear the screen, set the title, ring, backspace, C1 codes, turn the direction, hide, break the line, lone surrogate.
HOSTILE = "\x1b[2J\x1b]0;owned\x07\b\x9b31m\x85\u202egnp\u2066\u200b\ufeff\r\n\t\U000e0041"
SECRET = "sk_live_4eC39HqLyjWDarjtT1zdp7dc"

POISON = """
insert into mainspring.queue (name, paused_at, paused_by, pause_reason)
values (%(n)s, mainspring.now(), %(n)s, %(reason)s);
insert into mainspring.worker (id, host, pid, version, queues, tasks, concurrency, started_at, seen_at)
values (%(n)s, %(n)s, 7, %(n)s, array[%(n)s], array[%(n)s], 7, mainspring.now(), mainspring.now());
insert into mainspring.job (id, org_id, task, queue, priority, max_attempts, cancellable, payload, actor_type, actor_id,
                            request_id, correlation_id, key, created_at)
select id, %(n)s, %(n)s, %(n)s, 2, 5, true, %(payload)s::jsonb, 'user', %(n)s, %(n)s, %(n)s, %(n)s, mainspring.now()
from unnest(array[%(dead)s, %(waiting)s]) id;
insert into mainspring.waiting (id, org_id, task, queue, priority, due_at)
values (%(waiting)s, %(n)s, %(n)s, %(n)s, 2, mainspring.now());
insert into mainspring.finished (id, org_id, state, attempt, worker, epoch, started_at, finished_at, error)
values (%(dead)s, %(n)s, 'dead', 1, %(n)s, 1, mainspring.now(), mainspring.now(), %(error)s::jsonb);
insert into mainspring.attempt (org_id, job_id, epoch, attempt, worker, started_at, ended_at, outcome, error)
values (%(n)s, %(dead)s, 1, 1, %(n)s, mainspring.now(), mainspring.now(), 'dead', %(error)s::jsonb);
insert into mainspring.batch (org_id, id, name, on_failure, created_at, stopped_at, stop_reason)
values (%(n)s, %(dead)s, %(n)s, 'stop', mainspring.now(), mainspring.now(), %(reason)s);
insert into mainspring.member (org_id, batch_id, job_id) values (%(n)s, %(dead)s, %(dead)s);
insert into mainspring.schedule (org_id, name, rule, description, zone, task, job, paused_at, paused_by, pause_reason,
                                 created_at, changed_at)
select 'default', name, '{"kind": "every", "interval": "PT1H", "zone": "UTC"}', %(n)s, 'UTC', %(n)s,
       json_build_object('task', %(n)s::text, 'queue', %(n)s::text, 'payload', %(payload)s::json), mainspring.now(),
       %(n)s, %(reason)s, mainspring.now(), mainspring.now()
from unnest(array[%(n)s, 'nice']) name;
insert into mainspring.schedule_zone (org_id, schedule, declared, after, problem)
select 'default', name, false, mainspring.now(), %(reason)s from unnest(array[%(n)s, 'nice']) name;
insert into mainspring.breaker (name, failures, within, pause, longest, probes, used_at, forced, forced_at, forced_by,
                                forced_reason)
select name, 1, '1 s', '1 s', '1 s', 1, mainspring.now(), 'open', mainspring.now(), %(n)s, %(reason)s
from unnest(array[%(n)s, 'nice']) name;
insert into mainspring.limit (name, queue, concurrency, set_at, set_by)
values ('nice', 'q:default', 1, mainspring.now(), %(n)s);
insert into mainspring.fair (queue, set_at, set_by) values ('q:default', mainspring.now(), %(n)s)
"""


def harmless(text: str) -> bool:
    return all(c == "\n" or c.isprintable() for c in text)


def test_hostile_text_becomes_one_harmless_line() -> None:
    shown = output.line(HOSTILE + "\ud800")
    assert harmless(shown)
    assert "\n" not in shown
    assert shown.startswith(r"\x1b[2J\x1b]0;owned\x07\x08\x9b31m\x85\u202egnp")
    assert output.line("Grüße, 你好 🎉 ✓") == "Grüße, 你好 🎉 ✓"


@pytest.mark.parametrize(
    "arguments",
    [["job", "list"], ["job", "show"], ["job", "explain"], ["dead", "list"], ["dead", "show"], ["queue", "list"],
     ["worker", "list", "-v"], ["top", "--once"], ["doctor"], ["batch", "list"], ["batch", "show"],
     ["schedule", "list"], ["schedule", "show", "nice"], ["breaker", "list"], ["breaker", "show", "nice"],
     ["limit", "list"], ["limit", "show", "nice"], ["queue", "fair"]],
)  # fmt: skip
@pytest.mark.parametrize("machine", [[], ["--json"]])
def test_no_command_lets_a_name_drive_the_terminal_or_shows_a_secret(
    cli: Cli, database: Database, arguments: list[str], machine: list[str]
) -> None:
    with database.connect() as conn:
        job = poison(Engine(conn))
    given = [job] if arguments[-1] in ("show", "explain") else []
    answer = cli(*arguments, *given, *machine)
    assert answer.code in (0, 1), answer.err
    assert harmless(answer.out), answer.out
    assert SECRET not in answer.out
    assert "hunter2" not in answer.out
    if machine:
        json.loads(answer.out)


def poison(engine: Engine) -> Any:
    """Rows that somebody wrote by hand, called something hostile: jobs, a worker, a queue, a batch, a schedule, …"""
    name = f"a{HOSTILE}z"
    payload = {"password": "hunter2", "note": f"key {SECRET}", name: [name, {"api_key": "hunter2"}]}
    error = {"code": name, "message": f"{name} token={SECRET}", "stack": f"{name}\npassword=hunter2"}
    values: dict[str, Any] = {
        "n": name,
        "payload": json.dumps(payload),
        "error": json.dumps(error),
        "reason": f"{name} {SECRET}",
    }
    values |= {"dead": uuid7(), "waiting": uuid7()}
    for statement in POISON.split(";"):
        engine.conn.execute(statement.encode(), values)
    return values["dead"]


def test_error_on_stderr_is_one_harmless_line(cli: Cli) -> None:
    answer = cli("job", "list", "--state", HOSTILE)
    assert answer.code == 2
    assert harmless(answer.err)
    assert answer.err.count("\n") == 1


def test_json_document_keeps_what_it_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    output.as_json({"name": HOSTILE, "clef": "\U0001d11e"})
    printed = capsys.readouterr().out
    assert harmless(printed)
    assert json.loads(printed) == {"name": HOSTILE, "clef": "\U0001d11e"}


def test_secrets_are_masked_by_name_and_by_shape_at_any_depth() -> None:
    value = {"user": "ada", "a": [{"Token": 7, "b": f"x {SECRET}"}], "db_password": {"x": 1}, "secret": None, "n": 1.5}
    assert masked(value) == {
        "user": "ada", "a": [{"Token": "***", "b": "x ***"}], "db_password": "***", "secret": None, "n": 1.5,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0 ms"), (0.5, "500 ms"), (0.9999, "1 s"), (9.94, "9.9 s"), (9.96, "10 s"), (59.9, "1 min"), (61, "1 min 1 s"),
     (3600, "1 h"), (86_399, "23 h 59 min"), (90_061, "1 d 1 h"), (-90, "1 min 30 s"), (40_000_000, "462 d 23 h")],
)  # fmt: skip
def test_span_is_said_in_the_two_largest_units(seconds: float, said: str) -> None:
    assert span(seconds) == span(timedelta(seconds=seconds)) == said


def test_instant_is_said_by_its_distance() -> None:
    now = datetime(2030, 1, 31, 12, tzinfo=UTC)
    distances = {0.4: "now", 59.6: "1 min ago", -7200: "in 2 h", 86_400 * 3: "3 d ago"}
    assert {s: ago(now - timedelta(seconds=s), now) for s in distances} == distances


def test_times_are_relative_for_people_and_absolute_for_machines(cli: Cli, database: Database) -> None:
    with database.connect() as conn:
        engine = Engine(conn)
        engine.clock.set(datetime(2030, 1, 31, 12, tzinfo=UTC))
        job = engine.enqueue().id
        engine.clock.advance(minutes=3)
    (line,) = [line for line in cli("job", "list").out.splitlines() if str(job) in line]
    assert "3 min ago" in line
    assert "2030-01-31 12:00:00Z (3 min ago)" in cli("job", "show", job).out
    assert cli("job", "list", "--json").json[0]["created_at"].startswith("2030-01-31T12:00:00")


@pytest.mark.parametrize("columns", [60, 100, 140, 200])
def test_on_a_terminal_of_any_width_an_id_can_be_copied_and_no_value_is_lost(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    job = str(uuid7())
    row = (job, "send_receipt", "failed", "q:notifications", "1/8", "3 min ago", None, "VALIDATION_ERROR: is missing")

    output.table(("ID", "TASK", "STATE", "QUEUE", "ATTEMPT", "CREATED", "DUE", "ERROR"), [row], "")

    shown = re.sub(r"\x1b\[\d*m", "", capsys.readouterr().out)
    assert job in shown
    assert max(map(len, shown.splitlines())) <= columns
    words = shown.split()
    assert all(word in words for value in row if value for word in value.split())


def test_reader_who_has_seen_enough_is_no_error(database: Database) -> None:
    with database.connect() as conn:
        Engine(conn).enqueue_many([{} for _ in range(500)])
    command = f"{sys.executable} -m mainspring.cli job list --limit 500 --dsn '{database.dsn}' | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_terminal_that_knows_only_ascii_is_served(database: Database) -> None:
    with database.connect() as conn:
        job = Engine(conn).enqueue(task="grüße").id
    done = subprocess.run(
        [sys.executable, "-m", "mainspring.cli", "job", "explain", str(job), "--dsn", database.dsn],
        env={"PYTHONIOENCODING": "ascii", "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "No worker is alive" in done.stdout
