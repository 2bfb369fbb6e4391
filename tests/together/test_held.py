"""Jobs that are held twice: behind one of their key, and until others are done."""

from __future__ import annotations

from tests.databases import Database
from tests.db.engine import Engine
from tests.together.stage import enqueue_batch, job

TASKS = ["t", "tell"]


def test_an_on_finish_job_behind_a_running_one_of_its_key_starts_when_both_are_done(database: Database) -> None:
    with database.connect() as conn:
        engine = Engine(conn)
        engine.enqueue("tell", key="k")
        (before,) = engine.claim(tasks=TASKS)
        enqueue_batch(engine, [job()], on_finish=job("tell", key="k"))
        (member,) = engine.claim(tasks=TASKS)
        engine.complete("w1", member.epoch)
        engine.complete("w1", before.epoch)
        assert [found.task for found in engine.claim(tasks=TASKS)] == ["tell"]
