"""Several workers and people in random turns, on a real database with virtual time, against the model."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar, TypeVar
from uuid import UUID

import psycopg
from hypothesis import HealthCheck, Phase, settings
from hypothesis import seed as with_seed
from hypothesis.stateful import rule, run_state_machine_as_test
from tests.db.engine import ERROR, LEASE, Engine
from tests.proofs.model.actions import OUTCOMES, actions
from tests.proofs.model.model import Job, KeyReusedError, Wanted
from tests.proofs.model.world import World

from mainspring.job import Claim
from mainspring.outcome import Move, Outcome, decide
from mainspring.retry import fixed

T = TypeVar("T")
RETRY = fixed(30, attempts=3)


class Machine(World):
    """The steps: each does the same to the database and to the model."""

    @rule(action=actions)
    def step(self, action: tuple[str, dict[str, Any]]) -> None:
        name, parameters = action
        self.sound = False
        self.steps[name] += 1
        getattr(self, name)(**parameters)

    # -- enqueue

    def _wanted(self, fields: dict[str, Any]) -> Wanted:
        self.last += 1
        mode = fields["mode"] if fields["key"] else None
        return Wanted(
            **fields | {"mode": mode, "reset": fields["reset"] and fields["key"] is not None},
            id=UUID(int=self.last),
            ttl=timedelta(days=7),
            wait=timedelta(seconds=60) if mode == "debounce" else None,
        )

    def enqueue(self, batch: list[dict[str, Any]]) -> None:
        self._enqueue([self._wanted(fields) for fields in batch], self.engine)

    def _enqueue(self, wanted: Sequence[Wanted], engine: Engine) -> None:
        """What the model answers, the database answers; what it refuses leaves no trace."""
        after = self.model.copy()
        expected: list[tuple[UUID, str, str]] | None = None
        try:
            expected = after.enqueue(wanted)
        except KeyReusedError:
            after = self.model
        found: list[tuple[UUID, str, str]] | None = None
        try:
            with engine.conn.transaction():  # a savepoint, where there is a transaction already
                found = [(a.id, a.answer, a.state) for a in engine.enqueue_many([want.wire() for want in wanted])]
        except psycopg.Error as error:
            if error.sqlstate != "MS002":
                raise
        assert found == expected, f"enqueue answered {found}, not {expected}"
        self.model = after
        self.free |= {id_ for id_, answer, _ in found or [] if answer == "reset"}

    def roll_back(self, batch: list[dict[str, Any]]) -> None:
        before = self.model
        with self.engine.conn.transaction(force_rollback=True):
            wanted = [self._wanted(fields) for fields in batch]
            self.ghosts |= {want.id for want in wanted}
            self._enqueue(wanted, self.engine)
        self.model = before
        self.free.clear()

    def race(self, fields: dict[str, Any]) -> None:
        """Two connections enqueue one key; the second waits for the first to commit, and then knows of it."""
        first, second = (self._wanted(fields | {"key": fields["key"] or "k1"}) for _ in range(2))
        problem: list[BaseException] = []
        pid = self.other.conn.info.backend_pid

        def late() -> None:
            try:
                self._enqueue([second], self.other)
            except BaseException as error:
                problem.append(error)

        with self.engine.conn.transaction():
            self._enqueue([first], self.engine)
            thread = threading.Thread(target=late)
            thread.start()
            waits = "select cardinality(pg_blocking_pids(%s)) > 0"
            while thread.is_alive() and not self.engine.rows(waits, pid)[0][0]:
                time.sleep(0.0005)
        thread.join()
        if problem:
            raise problem[0]

    # -- workers

    def claim(
        self,
        worker: str,
        total: int,
        queues: tuple[str, ...],
        limit: int,
        tasks: tuple[str, ...],
        oldest: bool,
        rescued: int,
        alone: bool,
    ) -> None:
        limits = [limit] * len(queues)
        if alone:
            expected = self.model.next_alone(queues, tasks)
        else:
            expected = self.model.claimable(total, queues, limits, tasks, oldest, rescued)
        found = self.engine.claim(
            worker, total, queues=queues, limits=limits, tasks=tasks, oldest=oldest, rescued=rescued, alone=alone,
            lease=LEASE,
        )  # fmt: skip
        assert [claim.id for claim in found] == expected, (
            f"claimed {[c.id.int for c in found]}, not {[i.int for i in expected]}"
        )
        for claim in found:
            job = self.model.jobs[claim.id]
            assert claim.id not in self.cancelled, "I9: a cancelled job started"
            assert claim.queue not in self.model.paused, "I10: claimed from a paused queue"
            old = [old.epoch for _, old in self.claims if old.id == claim.id]
            assert all(claim.epoch > epoch for epoch in old), "I3: the epoch of a job did not grow"
            self.model.claim(worker, job, claim.epoch, LEASE)
            assert claim.attempt == job.attempt <= claim.max_attempts, "I6: an attempt beyond the limit"
            assert (claim.crashes, claim.suspect, claim.due_at) == (job.crashes, job.suspect, job.due_at)
            self.claims.append((worker, claim))

    def end(self, i: int, stale: bool, thief: str | None, how: str) -> None:
        """An attempt ends: one that runs, or any that ever ran, reported by its worker or by another."""
        held = [] if stale else [(w, claim) for w, claim in self.claims if self.model.held(w, claim.epoch)]
        if not (held or self.claims):
            return
        worker, claim = _pick(held or self.claims, i)
        worker = thief or worker
        job = self.model.held(worker, claim.epoch)
        self.steps["stale"] += job is None
        if how in OUTCOMES:
            self._settle(worker, claim, job, OUTCOMES[how])
        else:
            self._complete(worker, claim, job, how)

    def _complete(self, worker: str, claim: Claim, job: Job | None, how: str) -> None:
        if how == "plain":
            done = self.engine.complete(worker, claim.epoch) == [claim.epoch]
        elif how == "result":
            done = self.engine.complete_with(worker, {claim.epoch: {"n": 1}}) == [claim.epoch]
        else:
            done = self._complete_in_own_transaction(worker, claim)
        assert done is (job is not None), "I3: a completion was accepted or refused wrongly"
        if job is not None:
            self.model.settle(job, "complete")

    def _complete_in_own_transaction(self, worker: str, claim: Claim) -> bool:
        try:
            with self.engine.conn.transaction():
                self.engine.conn.execute("insert into effect values (%s)", [claim.id])
                self.engine.ask("complete_one", [worker, claim.epoch, None])
        except psycopg.Error as error:
            if error.sqlstate != "MS005":
                raise
            return False
        self.effects.add(claim.id)
        return True

    def _settle(self, worker: str, claim: Claim, job: Job | None, outcome: Outcome) -> None:
        move = decide(claim, outcome, RETRY)
        assert isinstance(move, Move)
        error = ERROR if move.error else None
        done = self.engine.settle(
            worker, {"epoch": claim.epoch, "verb": move.verb, "delay": move.delay, "error": error}
        )
        assert done == ([claim.epoch] if job else []), f"I3: {move.verb} was accepted or refused wrongly"
        if job is not None:
            self.model.settle(job, move.verb, move.delay)

    def renew(self, worker: str) -> None:
        epochs = [claim.epoch for _, claim in self.claims]
        mine = [(epoch, job) for epoch in epochs if (job := self.model.held(worker, epoch))]
        renewed = self.engine.renew(worker, *epochs, lease=LEASE)
        assert renewed == {epoch: job.cancel_asked for epoch, job in mine}, (
            "I3: a renewal was accepted or refused wrongly"
        )
        for _, job in mine:
            job.lease_until = self.model.now + LEASE

    def advance(self, span: timedelta) -> None:
        self.model.now = self.engine.clock.set(self.model.now + span)

    def rescue(self, crash: bool) -> None:
        """Take back what is expired; after a crash of all workers that is all that runs."""
        if crash:
            self.advance(LEASE)
        found = {job: state for job, _, state in self.engine.rescue()}
        assert found == self.model.rescue(), "rescue took back something else"

    # -- people

    def _job(self, i: int) -> tuple[UUID, Job | None]:
        """A job of this world, or one that is gone or never was."""
        id_ = _pick([*self.model.jobs, UUID(int=2**64)], i)
        return id_, self.model.jobs.get(id_)

    def cancel(self, i: int) -> None:
        running = [id_ for id_, job in self.model.jobs.items() if job.place == "running"]
        id_ = _pick(running, i) if running and i % 3 else self._job(i)[0]
        job = self.model.jobs.get(id_)
        answer = self.engine.cancel(id_)
        assert answer == (self.model.cancel(job) if job else "not_found"), f"cancel answered {answer}"
        if answer == "cancelled":
            self.cancelled.add(id_)

    def reschedule(self, i: int, span: timedelta) -> None:
        id_, job = self._job(i)
        at = self.model.now + span - timedelta(seconds=30)  # some lie in the past
        if job is not None and job.place == "waiting":
            job.due_at = max(at, self.model.now)
            assert self.engine.reschedule(id_, at) == job.state(self.model.now)
        else:
            assert self.engine.reschedule(id_, at) is None

    def prioritize(self, i: int, priority: int) -> None:
        id_, job = self._job(i)
        if job is not None and job.place == "waiting":
            assert self.engine.prioritize(id_, priority) == job.priority
            job.priority = priority
        else:
            assert self.engine.prioritize(id_, priority) is None

    def replay(self, i: int) -> None:
        broken = [id_ for id_, job in self.model.jobs.items() if job.place in ("failed", "dead")]
        id_ = _pick(broken, i) if broken and i % 4 else self._job(i)[0]
        job = self.model.jobs.get(id_)
        expected = self.model.replay(job) if job else (False, None)
        assert self.engine.replay(id_) == expected, "I16: replay was accepted or refused wrongly"
        self.free |= {id_} if expected[0] else set()

    def discard(self, i: int) -> None:
        broken = [id_ for id_, job in self.model.jobs.items() if job.place in ("failed", "dead")]
        id_ = _pick(broken, i) if broken and i % 4 else self._job(i)[0]
        job = self.model.jobs.get(id_)
        assert self.engine.discard(id_) is (self.model.discard(job) if job else False)

    def pause(self, queue: str) -> None:
        self.engine.pause(queue)
        self.model.paused.add(queue)

    def resume(self, queue: str) -> None:
        assert self.engine.resume(queue) is (queue in self.model.paused)
        self.model.paused.discard(queue)

    def prune(self, states: tuple[str, ...], age: int) -> None:
        gone = self.model.prune(states, timedelta(seconds=age))
        assert self.engine.prune(states, age=f"{age} s") == len(gone)
        self.free |= set(gone)


def _pick(items: Sequence[T], i: int) -> T:
    return items[-1 - i % len(items)]


def run_machine(dsn: str, *, seed: int, max_examples: int, steps: int, shrink: bool = False) -> Counter[str]:
    """Drive random worlds through a migrated database with a movable clock; raises AssertionError when one breaks.

    Returns how often each rule ran. `shrink` looks for the shortest failing example, which takes minutes.
    """

    class Bound(Machine):
        _shared: ClassVar[list[psycopg.Connection[Any]]] = []

    Bound.dsn, Bound.steps = dsn, Counter()
    phases = (Phase.generate, Phase.shrink) if shrink else (Phase.generate,)
    try:
        run_state_machine_as_test(
            with_seed(seed)(Bound),
            settings=settings(
                max_examples=max_examples,
                stateful_step_count=steps,
                deadline=None,
                database=None,
                phases=phases,
                suppress_health_check=list(HealthCheck),
            ),
        )
    except psycopg.Error as error:
        raise AssertionError(f"the database refused a step: {error}") from error
    finally:
        for conn in Bound._shared:
            conn.close()
    return Bound.steps
