"""One world of the machine: a database that is emptied at the start, the model of it, and what must hold.

After every step the database must show what the model says, and the invariants of the engine must hold by themselves:

====  ====================================================================================================
I1    a job whose enqueue committed is there until it is pruned
I2    a job whose enqueue was rolled back never appears
I3    one lease a job: its epochs only grow, and writes under an old or another worker's epoch change nothing
I4    an effect is committed if and only if its completion is
I5 6  no attempt beyond the limit, and three crashes end a job
I7    what is finished stays as it ended, but for replay, reset and prune
I8    a job that is not finished has a time, a lease, or a job of its key before it; at the end everything drains
I9    a cancelled job never starts; one asked to stop while it ran is not tried again
I10   nothing is claimed from a paused queue
I16   of a key at most one job has not started and at most one has started and is not finished
====  ====================================================================================================
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar
from uuid import UUID

import psycopg
from hypothesis.stateful import RuleBasedStateMachine, invariant
from tests.db.engine import ALL, LEASE, Engine
from tests.proofs.model.actions import QUEUES
from tests.proofs.model.model import Model

from mainspring.job import Claim

START = datetime(2026, 3, 2, 12, tzinfo=UTC)

_SEEN = b"""
select id, state, attempt, crashes, snoozes, due_at, held_by, priority, max_attempts, (payload -> 'n')::int, worker,
       epoch, lease_expires_at, cancel_requested_at is not null, finished_at, org_id, idempotency_key
from mainspring.jobs
"""
_COUNTED = b"""
select (select count(*) from mainspring.waiting) + (select count(*) from mainspring.running)
       + (select count(*) from mainspring.finished),
       array(select job_id from effect)
"""
_KEYS = b"select org_id, key, job_id, status, expires_at from mainspring.idempotency"


class World(RuleBasedStateMachine):
    """What the machine knows, and the checks."""

    dsn: ClassVar[str]
    steps: ClassVar[Counter[str]]
    _shared: ClassVar[list[psycopg.Connection[Any]]] = []  # kept over examples: connecting costs more than a step

    def __init__(self) -> None:
        super().__init__()
        if not self._shared:
            self._shared.extend(psycopg.connect(self.dsn, autocommit=True) for _ in range(2))
            self._shared[0].execute("create table if not exists effect (job_id uuid not null)")
        self.engine, self.other = Engine(self._shared[0]), Engine(self._shared[1])
        self.engine.clear()
        self.engine.conn.execute("truncate effect")
        self.engine.clock.set(START)
        self.model = Model(START)
        self.claims: list[tuple[str, Claim]] = []
        self.effects: set[UUID] = set()
        self.ghosts: set[UUID] = set()  # enqueued and rolled back
        self.cancelled: set[UUID] = set()  # answered so, and not reset since
        self.ended: dict[UUID, str] = {}  # as seen in the database
        self.free: set[UUID] = set()  # may leave their end in this step
        self.last = 0
        self.sound = False  # after the last step

    @invariant()
    def database_shows_what_the_model_says(self) -> None:
        seen = {row[0]: row for row in self.engine.conn.execute(_SEEN)}
        ((tickets, effects),) = self.engine.conn.execute(_COUNTED)
        self._check_rows(seen, tickets)
        self._check_keys()
        self._check_ends(seen)
        self._check_key_lives(seen)
        assert sorted(effects) == sorted(self.effects), "I4: effects and completions differ"
        self.sound = True

    def _check_rows(self, seen: dict[UUID, Any], tickets: int) -> None:
        model, now = self.model, self.model.now
        assert seen.keys() >= model.jobs.keys(), "I1: a job is lost"
        assert seen.keys() <= model.jobs.keys(), "I2: a job came from nowhere, or from a transaction rolled back"
        assert tickets == len(seen), "a job does not stand in exactly one ticket table"
        for id_, job in model.jobs.items():
            expected = (
                job.state(now),
                job.attempt,
                job.crashes,
                job.snoozes,
                None if job.ended else job.due_at,
                job.after,
                job.want.priority if job.ended else job.priority,
                job.max_attempts,
                job.n,
                job.worker,
                job.epoch,
                job.lease_until,
                job.cancel_asked,
                job.finished_at if job.ended else None,
            )
            assert seen[id_][1:15] == expected, f"job {id_.int}: the database shows {seen[id_][1:15]}, not {expected}"

    def _check_keys(self) -> None:
        found = {(row[0], row[1]): tuple(row[2:]) for row in self.engine.conn.execute(_KEYS)}
        assert found == {n: (key.job, key.status, key.expires_at) for n, key in self.model.keys.items()}

    def _check_ends(self, seen: dict[UUID, Any]) -> None:
        for id_, state in self.ended.items():
            if id_ not in self.free:
                assert id_ in seen, "I1: a finished job is gone without prune"
                assert seen[id_][1] == state, "I7: a finished job moved"
        self.cancelled -= self.free
        self.ended = {id_: row[1] for id_, row in seen.items() if row[1] in ALL}
        self.free.clear()

    def _check_key_lives(self, seen: dict[UUID, Any]) -> None:
        lives: Counter[tuple[str, str, str]] = Counter()
        for id_, row in seen.items():
            state, due_at, held_by, lease = row[1], row[5], row[6], row[12]
            if state in ALL:
                continue
            if held_by is not None:
                assert seen[held_by][1] not in ALL, "I8: a job is held by one that has ended"
            else:
                assert (lease or due_at) is not None, "I8: a job has neither a time nor a lease"
            started = "started" if self.model.jobs[id_].started else "not started"
            lives[row[15], row[16], started] += 1
        twice = [name for name, count in lives.items() if count > 1]
        assert not twice, f"I16: keys with two jobs: {twice}"

    def teardown(self) -> None:
        """Once faults stop everything ends: no job is stuck (I8). And the history is complete."""
        if not self.sound:  # a step failed already, and says more than what follows from it
            return
        if self.model.jobs.keys() - self.ended.keys():
            self._drain()
        history = "select job_id, epoch, outcome from mainspring.attempts order by epoch"
        found: dict[UUID, list[tuple[int, str]]] = {}
        for job_id, epoch, outcome in self.engine.rows(history):
            found.setdefault(job_id, []).append((epoch, outcome))
        assert found == {id_: job.history for id_, job in self.model.jobs.items() if job.history}

    def _drain(self) -> None:
        model, engine = self.model, self.engine
        for queue in model.paused:
            engine.resume(queue)
        model.paused.clear()
        for task in ("t", "u"):
            engine.ask("end_quarantine", [task, "w1"])
        model.kills.clear()
        for _ in range(20):
            model.now = engine.clock.set(model.now + timedelta(days=2))
            assert {job: state for job, _, state in engine.rescue()} == model.rescue()
            found = engine.claim("w1", queues=QUEUES, tasks=("t", "u"))
            found += engine.claim("w1", queues=QUEUES, tasks=("t", "u"), alone=True)
            for claim in found:
                model.claim("w1", model.jobs[claim.id], claim.epoch, LEASE)
                model.settle(model.jobs[claim.id], "complete")
            assert len(engine.complete("w1", *(claim.epoch for claim in found))) == len(found)
            if all(job.ended for job in model.jobs.values()):
                break
        self.free = set(self.ended)
        self.database_shows_what_the_model_says()
        assert all(job.ended for job in model.jobs.values()), "I8: a job is stuck"
