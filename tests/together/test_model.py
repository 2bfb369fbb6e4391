"""Random flows and batches with random ends, kills and decisions, by the engine's SQL on two connections.

Whatever happens, a child first starts when all its parents have succeeded (I21), a batch finishes when all its members
have ended and not before, its on-finish job starts once for each time it finished, and at the end nothing is stuck.
"""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from uuid import UUID

import pytest
from tests.databases import Database
from tests.db.engine import Engine
from tests.together.stage import encode, enqueue_batch, enqueue_flow, job, sweep

from mainspring.job import Claim

ENDED = {"succeeded", "failed", "dead", "cancelled"}
TASKS = ("t", "tell")


class World:
    """What was enqueued, and what has been seen."""

    def __init__(self, one: Engine, other: Engine, seed: int) -> None:
        self.one, self.other, self.random = one, other, random.Random(seed)
        self.edges: dict[UUID, list[tuple[UUID, bool]]] = {}  # (parent, anyway) of a child
        self.batches: list[UUID] = []
        self.held: list[Claim] = []
        self.started: Counter[UUID] = Counter()
        self.did: Counter[str] = Counter()

    # -- what happens

    def enqueue_flow(self) -> None:
        count = self.random.randint(2, 7)
        links, edges = [], []
        for child in range(1, count):
            if parents := self.random.sample(range(child), self.random.randint(0, min(child, 3))):
                anyway = self.random.random() < 0.2
                links.append({"child": child, "parents": parents, "anyway": anyway})
                edges.append((child, parents, anyway))
        ids = enqueue_flow(self.one, [job(max_attempts=2) for _ in range(count)], links)
        for child, parents, anyway in edges:
            self.edges[ids[child]] = [(ids[parent], anyway) for parent in parents]

    def enqueue_batch(self) -> None:
        jobs = [job(max_attempts=2) for _ in range(self.random.randint(0, 5))]
        policy = self.random.choice(["keep_going", "keep_going", "stop"])
        self.batches.append(enqueue_batch(self.one, jobs, on_failure=policy))

    def add(self) -> None:
        open_ = [row[0] for row in self.one.rows("select id from mainspring.batches where state = 'running'")]
        if open_:
            about = {"id": self.random.choice(open_), "org_id": "default"}
            self.one.ask("enqueue_batch", {"batch": encode(about), "jobs": encode([job(max_attempts=2)])})

    def claim(self) -> None:
        states = self.states()
        finished = {row[0]: row[1] for row in self.one.rows("select on_finish, finished_at from mainspring.batch")}
        found = self.one.claim("w1", self.random.randint(1, 6), tasks=TASKS)
        for claim in found or self.one.claim("w1", tasks=TASKS, alone=True):
            if not self.started[claim.id]:
                for parent, anyway in self.edges.get(claim.id, ()):
                    allowed = ENDED if anyway else {"succeeded"}
                    assert states[parent] in allowed, "I21: a child started before its parents"
                assert finished.get(claim.id, "no on-finish job") is not None, "an on-finish job started too early"
            self.started[claim.id] += 1
            self.held.append(claim)

    def end(self) -> None:
        if self.held:
            claim = self.held.pop(self.random.randrange(len(self.held)))
            self.one.end(claim, self.random.choice(["complete"] * 4 + ["fail", "reject", "bury", "snooze", "release"]))

    def end_two_at_once(self) -> None:
        """In two transactions that do not see each other; of one batch or flow, if there are such two."""
        kin = self.one.rows(
            """
            select a.id, b.id from mainspring.running a join mainspring.running b on a.id < b.id
            where exists (select from mainspring.member x join mainspring.member y on y.batch_id = x.batch_id
                          where x.job_id = a.id and y.job_id = b.id)
               or exists (select from mainspring.dependency x join mainspring.dependency y on y.child = x.child
                          where x.parent = a.id and y.parent = b.id)
            order by 1, 2
            """
        )
        held = {claim.id: claim for claim in self.held}
        pairs = [pair for pair in kin if held.keys() >= set(pair)]
        if pairs:
            first, second = (held[id_] for id_ in self.random.choice(pairs))
            self.held = [claim for claim in self.held if claim not in (first, second)]
            with self.one.conn.transaction():
                self.one.complete("w1", first.epoch)
                with self.other.conn.transaction():
                    self.other.complete("w1", second.epoch)

    def kill(self) -> None:
        """Whatever runs is lost, and rescued."""
        self.held.clear()
        self.one.clock.set(self.one.clock.now() + timedelta(seconds=61))
        self.one.rescue()

    def decide(self) -> None:
        verb = self.random.choice(["replay", "discard", "cancel", "cancel_batch", "retry_failed"])
        if verb in ("cancel_batch", "retry_failed"):
            if self.batches:
                named = {
                    "id": str(self.random.choice(self.batches)),
                    "org": None,
                    "actor_type": "user",
                    "actor_id": "ada",
                }
                self.one.ask(verb, named | {"reason": "because"})
            return
        wanted = {"cancel": ("scheduled", "ready")}.get(verb, ("failed", "dead"))
        if found := sorted(id_ for id_, state in self.states().items() if state in wanted):
            getattr(self.one, verb)(self.random.choice(found))

    def sweep(self) -> None:
        sweep(self.one)

    def step(self) -> None:
        verbs = ["enqueue_flow", "enqueue_batch", "add", "kill", "decide", "decide", "sweep"]
        name = self.random.choice(verbs + ["claim"] * 5 + ["end"] * 8 + ["end_two_at_once"] * 2)
        self.did[name] += 1
        getattr(self, name)()
        self.check()

    # -- what must hold

    def states(self) -> dict[UUID, str]:
        return dict(self.one.rows("select id, state from mainspring.jobs"))

    def check(self) -> None:
        early = self.one.rows(
            """
            select b.id from mainspring.batch b where b.finished_at is not null and exists (
              select from mainspring.member m join mainspring.jobs j on j.id = m.job_id
              where m.batch_id = b.id and (m.state is null or m.state <> j.state))
            """
        )
        assert early == [], "a batch has finished, and a member has not"

    def drain(self) -> None:
        self.kill()
        for _ in range(100):
            self.one.clock.set(self.one.clock.now() + timedelta(minutes=5))
            sweep(self.one)
            self.claim()
            for claim in self.held:
                self.one.complete("w1", claim.epoch)
            self.held.clear()
        states = self.states()
        decided = {row[0] for row in self.one.rows("select job_id from mainspring.resolution")}
        for id_, state in states.items():
            if state not in ENDED:  # only what waits, by itself or through others, for somebody's decision
                assert any(
                    states[parent] not in ENDED or (states[parent] in ("failed", "dead") and parent not in decided)
                    for parent, anyway in self.edges[id_]
                    if not anyway or states[parent] not in ENDED
                ), "a job is stuck"
            elif state == "cancelled" or self.started[id_]:
                continue
            else:
                raise AssertionError(f"a {state} job that never started")
        self.check()
        assert {row[0] for row in self.one.rows("select state from mainspring.batches")} <= {"finished"}
        for id_ in self.batches:
            self._check_on_finish(id_)

    def _check_on_finish(self, id_: UUID) -> None:
        """It started at least once, and at most as often as the batch has finished."""
        (finished,) = self.one.rows(
            "select count(*) from mainspring.audit where event = 'batch.finished' and detail ->> 'batch' = %s", str(id_)
        )
        tellers = self.one.rows("select id, state from mainspring.jobs where idempotency_key = %s", f"batch:{id_}")
        ran = [teller for teller, state in tellers if self.started[teller]]
        cancelled = [teller for teller, state in tellers if state == "cancelled"]
        assert len(ran) <= finished[0]
        assert ran or cancelled, "the on-finish job never ran"


@pytest.mark.parametrize("seed", range(8))
def test_children_wait_for_parents_and_batches_for_members_whatever_happens(database: Database, seed: int) -> None:
    with database.connect() as one, database.connect() as other:
        world = World(Engine(one), Engine(other), seed)
        for _ in range(3):
            world.enqueue_flow()
            world.enqueue_batch()
        while world.did.total() < 140 or len(world.did) < 8:  # of the nine things that may happen
            world.step()
        world.drain()
