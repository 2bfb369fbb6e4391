"""The checker of the nemesis sees each kind of wrong in the files of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tests.databases import Database
from tests.db.engine import Engine
from tests.proofs.chaos.workload import LEDGER
from tests.proofs.nemesis import workload
from tests.proofs.nemesis.checker import Seen, judge
from tests.proofs.nemesis.plan import RATES, SHORT, SLOTS

import mainspring as ms

PAIR = ["job-1", "job-2"]
ERROR = {"code": "X", "class": "retryable", "message": "m", "stack": None}


class Files:
    """Writes what handlers and clients would have written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def say(self, kind: str, *words: object) -> None:
        with (self.folder / f"{kind}-0.txt").open("a") as file:
            file.write(" ".join(map(str, words)) + "\n")

    def ran(self, job: str, task: str, began: float, ended: float, *, label: str = "-", epoch: int = 1) -> None:
        self.say("stamp", "began", began, job, epoch, task, 7, label)
        self.say("stamp", "ended", ended, job, epoch, task, 7, "done")


def exceeded(files: Files) -> None:
    most, per = RATES["paced"]
    for number in range(most + 1):
        files.ran(f"job-{number}", "paced", number * per / (most + 2), number * per)


def crowded(files: Files) -> None:
    for number in range(SLOTS + 1):
        files.ran(f"job-{number}", "slot", 1.0 + number / 100, 2.0)


def overtaken(files: Files) -> None:
    files.ran("job-1", "change", 1.0, 2.0, label="s/1")
    files.ran("job-2", "change", 1.5, 2.5, label="s/2")


def hasty_child(files: Files) -> None:
    files.ran("job-1", "part", 1.0, 2.0, label="flow/p")
    files.ran("job-2", "part", 1.5, 2.5, label="flow/c")


def twice(files: Files) -> None:
    for job in PAIR:
        files.ran(job, "tick", 1.0, 1.0, label="1700000000.0")


def gap(files: Files) -> None:
    files.ran("job-1", "tick", 1.0, 1.0, label="1700000000.0")
    files.ran("job-2", "tick", 3.0, 3.0, label="1700000002.0")


def both(files: Files) -> None:
    files.ran("job-1", "version", 1.0, 2.0, label="key/0")
    files.ran("job-2", "version", 1.5, 2.5, label="key/0")


def unheard(files: Files) -> None:
    files.ran("job-1", "version", 1.0, 2.0, label="key/3")
    files.say("sent", "latest", "key", 4)


def gone(files: Files) -> None:
    files.say("sent", "job", "00000000-0000-0000-0000-000000000000", "pulse")


def half(files: Files) -> None:
    files.ran("job-1", "part", 1.0, 2.0, label="flow/p")
    files.say("sent", "whole", "flow", 2)


def forgetful(files: Files) -> None:
    for value in PAIR:
        files.say("stamp", "kept", 1.0, "job-1", 0, value)


def hanging(files: Files) -> None:
    files.say("call", "asked", 1, 10.0, "enqueue:pulse")


def slow(files: Files) -> None:
    files.say("call", "asked", 1, 10.0, "enqueue:pulse")
    files.say("call", "answered", 1, 10.0 + 3 * SHORT.stall)


def odd(files: Files) -> None:
    files.say("call", "asked", 1, 10.0, "enqueue:pulse")
    files.say("call", "odd", 1, "SchemaError", "no such table")
    files.say("call", "answered", 1, 11.0)


WRONGS: list[tuple[Callable[[Files], None], str]] = [
    (exceeded, "rate exceeded"),
    (crowded, "too many at once"),
    (overtaken, "out of order"),
    (hasty_child, "a child before its parent"),
    (twice, "an instant twice"),
    (gap, "an instant is missing"),
    (both, "two of one key at once"),
    (unheard, "a key's last word is lost"),
    (gone, "lost"),
    (half, "lost"),
    (forgetful, "a step forgot"),
    (hanging, "a client hangs"),
    (slow, "a client waited"),
    (odd, "an odd answer"),
]


@pytest.fixture
def files(tmp_path: Path, database: Database) -> Files:
    with database.connect() as conn:
        conn.execute(LEDGER)
    return Files(tmp_path)


def faults(files: Files, database: Database, seen: Seen | None = None) -> str:
    return judge(files.folder, database.dsn, replace(SHORT, used=0.5), seen or Seen()).faults


@pytest.mark.parametrize(("tell", "wrong"), WRONGS, ids=[tell.__name__ for tell, _ in WRONGS])
def test_it_sees_what_is_wrong(files: Files, database: Database, tell: Callable[[Files], None], wrong: str) -> None:
    assert faults(files, database) == ""
    tell(files)
    assert faults(files, database) == wrong


def test_what_a_handler_did_after_its_lease_was_gone_counts_for_nothing(files: Files, database: Database) -> None:
    files.ran("job-1", "change", 1.0, 5.0, label="s/1", epoch=1)
    files.ran("job-1", "change", 2.0, 2.5, label="s/1", epoch=2)
    files.ran("job-2", "change", 3.0, 3.5, label="s/2", epoch=3)
    assert faults(files, database) == ""


def test_a_limit_that_is_not_used_is_wrong(files: Files, database: Database) -> None:
    most, per = RATES["paced"]
    jobs = [f"job-{number}" for number in range(2 * most)]
    for number, job in enumerate(jobs):
        files.ran(job, "paced", number * per, number * per)
    assert faults(files, database, Seen(finale={"paced": jobs})) == "a limit is not used"


def test_an_innocent_job_must_not_be_buried_and_a_killer_must(files: Files, database: Database) -> None:
    with database.connect() as conn:
        engine = Engine(conn)
        engine.end(engine.started(task="kill"), "bury", error=ERROR)
        assert faults(files, database) == ""
        engine.end(engine.started(task="pulse"), "bury", error=ERROR)
        assert faults(files, database) == "buried"


def test_a_killer_has_a_budget(files: Files, database: Database) -> None:
    with database.connect() as conn:
        killer = Engine(conn).started(task="kill")
        Engine(conn).end(killer, "bury", error=ERROR)
    for epoch in range(4):
        files.say("stamp", "began", 1.0, killer.id, epoch, "kill", 7, "-")
    assert faults(files, database) == "over its crash budget"


@pytest.mark.parametrize(
    ("delay", "wrong"), [(timedelta(0), "has not ended"), (timedelta(hours=1), "waits for nothing")]
)
def test_who_waits_at_the_end_is_told(files: Files, database: Database, delay: timedelta, wrong: str) -> None:
    with ms.Client(database.dsn) as client:
        client.enqueue(workload.pulse.job(sent=0.0).after(delay))
    assert faults(files, database) == wrong


def test_a_success_without_a_handler_is_wrong(files: Files, database: Database) -> None:
    with database.connect() as conn:
        claim = Engine(conn).started(task="pulse")
        Engine(conn).end(claim, "complete")
    files.say("sent", "job", claim.id, "pulse")
    assert faults(files, database) == "never ran"
