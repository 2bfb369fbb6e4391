"""Queues: listed, paused, resumed."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from tests.databases import Database
from tests.db.conftest import NOON
from tests.db.engine import Engine
from tests.documents import PLANNING_QUEUES

import mainspring as ms
from mainspring.client import Client
from mainspring.errors import DeclarationError
from mainspring.queue import QUEUES

#: How many sessions of this database wait for the barrier between claims and pauses.
WAITS = """
select count(*) from pg_locks l join pg_database d on d.oid = l.database and d.datname = current_database()
where l.locktype = 'advisory' and not l.granted
"""


@pytest.mark.rule("ENG-10.01", "ENG-10.11")
def test_the_named_queues_are_there_after_migration_and_those_of_an_application_when_it_works(
    database: Database, engine: Engine
) -> None:
    own = {"q:critical": 5, "q:default": 30, "q:notifications": 60, "q:maintenance": 900, "q:deadletter": None}

    assert targets(engine) == own
    assert own.keys() == set(QUEUES)
    declare(database, *PLANNING_QUEUES)
    assert targets(engine) == own | {"q:planning": 120, "q:exports": 300}


def test_a_queue_that_is_declared_no_longer_goes_and_what_people_said_of_it_stays(
    database: Database, engine: Engine
) -> None:
    declare(database, ms.Queue("mail", start_target="5s"), ms.Queue("print", start_target="1m"), ms.Queue("fax"))
    engine.pause("print", reason="no paper")
    declare(database, ms.Queue("elsewhere"), app="another")

    declare(database, ms.Queue("mail", start_target="9s"))

    left = {name: target for name, target in targets(engine).items() if name not in QUEUES}
    assert left == {"mail": 9, "print": None, "elsewhere": None}
    with Client(database.dsn) as client:
        assert next(queue for queue in client.queues() if queue.name == "print").pause_reason == "no paper"
        declare(database)
        assert "mail" not in {queue.name for queue in client.queues()}


def test_a_declared_queue_is_served_though_no_task_names_it(database: Database) -> None:
    tasks = ms.Registry("shop")

    @tasks.task
    def work() -> str:
        return "done"

    app = ms.App(tasks, dsn=database.dsn, maintenance=False, queues=[ms.Queue("exports")])
    with app.client() as client:
        job = client.enqueue(work.job().on_queue("exports"))
        assert app.run_due().succeeded == 1
        assert client.get(job.id).state == "succeeded"


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ({"name": ""}, "queue: its name"),
        ({"name": "q:default"}, "queue q:default: is the engine's own"),
        ({"name": "q:deadletter"}, "queue q:deadletter: is the engine's own"),
        ({"start_target": "soon"}, "queue exports: start_target is not a time span"),
        ({"start_target": 0}, "queue exports: start_target is not positive"),
    ],
)
def test_a_queue_that_cannot_work_is_refused_where_it_is_declared(said: dict[str, object], complaint: str) -> None:
    with pytest.raises(DeclarationError, match=complaint):
        ms.Queue(**{"name": "exports"} | said)  # type: ignore[arg-type]  # wrong on purpose


def test_a_queue_is_declared_once_and_as_a_queue() -> None:
    with pytest.raises(DeclarationError, match="queue exports is declared twice"):
        ms.App(queues=[ms.Queue("exports"), ms.Queue("exports", start_target=5)])
    with pytest.raises(DeclarationError, match="'exports' is not a queue, such as"):
        ms.App(queues=["exports"])  # type: ignore[list-item]  # wrong on purpose


def declare(database: Database, *queues: ms.Queue, app: str = "planning") -> None:
    """What a worker of an application does when it starts."""
    ms.App(ms.Registry(app), dsn=database.dsn, maintenance=False, queues=queues).run_due()


def targets(engine: Engine) -> dict[str, float | None]:
    """Every queue that has a row, with its target in seconds."""
    found = engine.rows("select name, extract(epoch from start_target) from mainspring.queue")
    return {name: None if seconds is None else float(seconds) for name, seconds in found}


@pytest.mark.rule("ENG-10.11")
def test_a_queue_whose_oldest_job_waits_past_the_target_is_late(database: Database, engine: Engine) -> None:
    engine.enqueue_many([{"priority": 3}, {"queue": "q:own"}, {"queue": "q:critical", "delay": "PT1H"}])
    with Client(database.dsn) as client:
        engine.clock.advance(seconds=30)
        assert [queue.name for queue in client.queues() if queue.late] == []
        engine.clock.advance(seconds=1)
        found = {queue.name: queue for queue in client.queues()}
        depths = [client.depth(name) for name in ("q:default", "q:critical")]

    assert [name for name, queue in found.items() if queue.late] == ["q:default"]
    assert (found["q:own"].oldest_age_s, found["q:own"].start_target_s) == (31, None)  # used, so it exists
    assert found["q:critical"].oldest_age_s is None
    assert depths == [1, 0]


@pytest.mark.rule("ENG-10.06")
def test_dead_jobs_are_shown_in_the_dead_letter_queue_and_replayed_to_their_own(engine: Engine) -> None:
    claim = engine.started(queue="q:notifications")
    engine.end(claim, "bury")

    assert engine.job(claim.id).queue == "q:deadletter"
    assert engine.claim(queues=["q:deadletter"]) == []
    engine.replay(claim.id)
    assert [found.id for found in engine.claim(queues=["q:notifications"])] == [claim.id]


@pytest.mark.rule("ENG-10.10", "ENG-20.06")
def test_a_paused_queue_gives_no_jobs_and_lets_running_ones_finish(engine: Engine) -> None:
    claim = engine.started()
    engine.enqueue_many([{}, {"queue": "q:other"}])
    engine.clock.advance(seconds=1)

    engine.pause("q:default", reason="migration")

    assert [found.queue for found in engine.claim(queues=["q:default", "q:other"])] == ["q:other"]
    assert engine.end(claim, "complete")
    (row,) = engine.rows("select paused_at, paused_by, pause_reason from mainspring.queue where paused_at is not null")
    assert row == (NOON + timedelta(seconds=1), "ada", "migration")

    assert engine.resume("q:default") is True
    assert engine.resume("q:default") is False
    assert len(engine.claim()) == 1
    before_and_after = "detail #>> '{before,paused_by}', detail #>> '{after,paused_by}'"
    events = engine.rows(
        f"select event, by, detail ->> 'reason', {before_and_after} from mainspring.trail where id > 0"
    )
    assert events == [
        ("queue.paused", "ada", "migration", None, "ada"),
        ("queue.resumed", "ada", None, "ada", None),
    ]


@pytest.mark.rule("ENG-10.10")
def test_a_pause_holds_for_rescued_jobs_and_for_queues_without_a_row(engine: Engine) -> None:
    claim = engine.started(queue="q:own")
    engine.clock.advance(minutes=2)
    engine.rescue()
    engine.enqueue(queue="q:own")

    engine.pause("q:own")

    assert engine.claim(queues=["q:own"]) == []
    engine.resume("q:own")
    assert claim.id in [found.id for found in engine.claim(queues=["q:own"])]


def test_no_claim_of_a_queue_commits_after_its_pause_returned(database: Database, engine: Engine) -> None:
    """A claim that did not see the pause may still be open: the pause waits until it has ended (I10)."""
    engine.enqueue_many([{}, {}])
    returned = threading.Event()

    def pause() -> None:
        with Client(database.dsn) as client:
            client.pause("q:default")
        returned.set()

    thread = threading.Thread(target=pause)
    with database.connect() as worker:
        with worker.transaction():
            assert len(Engine(worker).claim("w1", 1)) == 1
            thread.start()
            while engine.rows(WAITS) != [(1,)]:
                assert not returned.wait(0.002), "the pause did not wait for the open claim"
            assert engine.rows("select paused_at is not null from mainspring.queue where name = 'q:default'") == [
                (True,)
            ]
        thread.join()

        assert returned.is_set()
        assert Engine(worker).claim("w1") == []


def test_a_claim_that_begins_while_a_pause_waits_sees_it(database: Database, engine: Engine) -> None:
    engine.enqueue_many([{}, {}])
    found: list[int] = []

    def pause() -> None:
        with Client(database.dsn) as client:
            client.pause("q:default")

    def claim() -> None:
        with database.connect() as conn:
            found.append(len(Engine(conn).claim("w2")))

    threads = [threading.Thread(target=pause), threading.Thread(target=claim)]
    with database.connect() as worker, worker.transaction():
        Engine(worker).claim("w1", 1)
        for count, thread in enumerate(threads, 1):
            thread.start()
            while engine.rows(WAITS) != [(count,)]:
                threads[0].join(0.002)
    for thread in threads:
        thread.join()

    assert found == [0]
