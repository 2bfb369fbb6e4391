"""Several workers and people in random turns, on a real database with virtual time, against the model.

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

import threading
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, TypeVar
from uuid import UUID

import psycopg
from hypothesis import HealthCheck, Phase, settings
from hypothesis import seed as with_seed
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from tests.db.engine import ALL, ERROR, Engine
from tests.model.model import Job, KeyReusedError, Model, Wanted

from mainspring.dedupe import MODES
from mainspring.job import Claim
from mainspring.outcome import Error, Failed, Interrupted, Move, Outcome, Snoozed, Stopped, decide
from mainspring.retry import fixed

T = TypeVar("T")

START = datetime(2026, 3, 2, 12, tzinfo=UTC)
WORKERS = ("w1", "w2", "w3")
QUEUES = ("q:default", "q:other")
LEASE = timedelta(seconds=60)
RETRY = fixed(seconds=30, attempts=3)
OUTCOMES: dict[str, Outcome] = {
    "retryable": Failed(Error("INTERNAL_ERROR", "retryable", "no answer")),
    "permanent": Failed(Error("BUSINESS_RULE", "permanent", "closed")),
    "snoozed": Snoozed(timedelta(seconds=45)),
    "stopped": Stopped(),
    "interrupted": Interrupted(),
}

index = st.integers(0, 255)  # of a job, a claim …: taken modulo their number
workers = st.sampled_from(WORKERS)
spans = st.sampled_from([1, 15, 45, 61, 600, 86_400, 8 * 86_400]).map(lambda seconds: timedelta(seconds=seconds))
enqueues: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    org=st.sampled_from(["a", "b"]),
    task=st.sampled_from(["t", "t", "t", "u"]),
    queue=st.sampled_from(QUEUES),
    priority=st.integers(0, 3),
    max_attempts=st.sampled_from([1, 2, 3, 9]),
    cancellable=st.sampled_from([True, True, False]),
    n=st.sampled_from([0, 0, 0, 1]),
    delay=st.sampled_from([None, None, timedelta(seconds=30), timedelta(hours=1)]),
    key=st.sampled_from([None, "k1", "k1", "k2"]),
    mode=st.sampled_from([None, None, *MODES]),
    reset=st.sampled_from([False, False, False, True]),
)

#: What may happen in a step: how often, and with what. Rules of their own would be switched off in whole worlds.
ACTIONS: dict[str, tuple[int, st.SearchStrategy[dict[str, Any]]]] = {
    "enqueue": (4, st.builds(dict, batch=st.lists(enqueues, min_size=1, max_size=3))),
    "race": (1, st.builds(dict, fields=enqueues)),
    "roll_back": (1, st.builds(dict, batch=st.lists(enqueues, min_size=1, max_size=2))),
    "claim": (
        5,
        st.builds(
            dict,
            worker=workers,
            total=st.integers(1, 6),
            queues=st.sampled_from([QUEUES, QUEUES[::-1], QUEUES[:1], QUEUES[1:]]),
            limit=st.integers(1, 4),
            tasks=st.sampled_from([("t", "u"), ("t",)]),
            oldest=st.booleans(),
            rescued=st.booleans(),
        ),
    ),
    "end": (
        7,
        st.builds(
            dict,
            i=index,
            stale=st.sampled_from([False, False, True]),
            thief=st.sampled_from([None, None, None, *WORKERS]),
            how=st.sampled_from(["plain", "result", "own", *OUTCOMES]),
        ),
    ),
    "renew": (1, st.builds(dict, worker=workers)),
    "advance": (3, st.builds(dict, span=spans)),
    "rescue": (3, st.builds(dict, crash=st.booleans())),
    "cancel": (2, st.builds(dict, i=index)),
    "reschedule": (1, st.builds(dict, i=index, span=spans)),
    "prioritize": (1, st.builds(dict, i=index, priority=st.integers(0, 3))),
    "replay": (2, st.builds(dict, i=index)),
    "pause": (1, st.builds(dict, queue=st.sampled_from(QUEUES))),
    "resume": (2, st.builds(dict, queue=st.sampled_from(QUEUES))),
    "prune": (
        1,
        st.builds(
            dict,
            states=st.sampled_from([ALL, ("succeeded",), ("failed", "dead", "cancelled")]),
            age=st.sampled_from([0, 600]),
        ),
    ),
}
actions = st.sampled_from([name for name, (weight, _) in ACTIONS.items() for _ in range(weight)]).flatmap(
    lambda name: st.tuples(st.just(name), ACTIONS[name][1])
)

_SEEN = b"""
select id, state, attempt, crashes, snoozes, due_at, held_by, priority, max_attempts, (payload -> 'n')::int, worker,
       epoch, lease_expires_at, cancel_requested_at is not null, finished_at, org_id, idempotency_key
from mainspring.jobs
"""
_TICKETS = b"""
select (select count(*) from mainspring.waiting) + (select count(*) from mainspring.running)
       + (select count(*) from mainspring.finished)
"""
_KEYS = b"select org_id, key, job_id, status, expires_at from mainspring.idempotency"


class Machine(RuleBasedStateMachine):
    """One world: a database that is emptied at the start, and the model of it."""

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
        rescued: bool,
    ) -> None:
        limits = [limit] * len(queues)
        expected = self.model.claimable(total, queues, limits, tasks, oldest, rescued)
        found = self.engine.claim(
            worker, total, queues=queues, limits=limits, tasks=tasks, oldest=oldest, rescued=rescued, lease=LEASE
        )
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

    # -- what must hold

    @invariant()
    def database_shows_what_the_model_says(self) -> None:
        seen = {row[0]: row for row in self.engine.conn.execute(_SEEN)}
        self._check_rows(seen)
        self._check_keys()
        self._check_ends(seen)
        self._check_key_lives(seen)
        effects = [row[0] for row in self.engine.conn.execute("select job_id from effect")]
        assert sorted(effects) == sorted(self.effects), "I4: effects and completions differ"
        self.sound = True

    def _check_rows(self, seen: dict[UUID, Any]) -> None:
        model, now = self.model, self.model.now
        assert seen.keys() >= model.jobs.keys(), "I1: a job is lost"
        assert seen.keys() <= model.jobs.keys(), "I2: a job came from nowhere, or from a transaction rolled back"
        (tickets,) = self.engine.conn.execute(_TICKETS).fetchone() or (None,)
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
        for _ in range(20):
            model.now = engine.clock.set(model.now + timedelta(days=2))
            assert {job: state for job, _, state in engine.rescue()} == model.rescue()
            found = engine.claim("w1", queues=QUEUES, tasks=("t", "u"))
            for claim in found:
                model.claim("w1", model.jobs[claim.id], claim.epoch, LEASE)
                model.settle(model.jobs[claim.id], "complete")
            assert len(engine.complete("w1", *(claim.epoch for claim in found))) == len(found)
            if all(job.ended for job in model.jobs.values()):
                break
        self.free = set(self.ended)
        self.database_shows_what_the_model_says()
        assert all(job.ended for job in model.jobs.values()), "I8: a job is stuck"


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
