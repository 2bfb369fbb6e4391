"""The jobs that a worker holds: taken in when they are claimed, let go when they end, wait in vain or are lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

from mainspring.config import WorkerConfig
from mainspring.declare.registry import Registry
from mainspring.declare.task import Task
from mainspring.errors import UnknownTask
from mainspring.job import Claim
from mainspring.outcome import Error, Move
from mainspring.worker.attempt import LiveAttempt
from mainspring.worker.crew import START_PATIENCE_S, Crew
from mainspring.worker.executor import Executor
from mainspring.worker.outbox import Outcomes
from mainspring.worker.rates import gates_of
from mainspring.worker.service import job_log, log
from mainspring.worker.share import Share
from mainspring.worker.state import WorkerState


async def _unknown() -> None: ...


UNKNOWN: Task[Any, Any] = Task(_unknown, app="mainspring", name="unknown")  # stands in for a task that we do not know


def trust(config: WorkerConfig, sent_at: float) -> float:
    """Until when a lease that was asked for at `sent_at` may be trusted."""
    lease = config.lease.total_seconds()
    return sent_at + lease - min(max(lease * 0.1, 0.2), lease / 2)


class Tracker:
    """Knows which jobs are this worker's, and what became of those that were."""

    def __init__(self, state: WorkerState, registry: Registry, crews: Mapping[str, Crew], executor: Executor) -> None:
        self._config, self._attempts, self._outbox = state.config, state.attempts, state.outbox
        self._rates, self._signal, self._counts = state.rates, state.signal, state.counts
        self._announcer = state.announcer
        self._registry, self.crews, self._executor = registry, crews, executor
        self._stopping = False
        self._stood_still = -1.0  # until when this process last did, for a good part of a lease
        self._trust = trust(state.config, 0.0)
        self.doubtful: list[Claim] = []  # whose leases we could not renew: others may have taken them for a crash
        self.ends: Counter[str] = Counter()  # the verbs that the database has accepted, beside plain successes

    # -- taken in

    def accept(self, claims: list[Claim], crew: Crew | None, asked_at: float) -> None:
        """Take claimed jobs in; one that no crew asked for runs alone."""
        if not claims:
            return
        now, trusted = asyncio.get_running_loop().time(), trust(self._config, asked_at)
        get, attempts, crews = self._registry.get, self._attempts, self.crews
        for claim in claims:
            try:
                attempt = LiveAttempt(claim, get(claim.task), now, trusted)
            except UnknownTask:
                self._refuse(claim, crew)
                continue
            attempts[claim.epoch] = attempt
            attempt.alone = crew is None
            attempt.crew = crew or crews[attempt.task.runs]
            if claim.gates is not None and claim.gates != "[]":
                self._rates.receive(attempt, gates_of(claim.gates))
            if self._stopping:  # the claim was under way when the stop came
                self._executor.give_back(attempt)
            else:
                attempt.crew.add(attempt)

    def _refuse(self, claim: Claim, crew: Crew | None) -> None:
        error = Error("UNKNOWN_JOB_TYPE", "permanent", f"Unknown job type: {claim.task}")
        now = asyncio.get_running_loop().time()
        attempt = LiveAttempt(claim, UNKNOWN, now, now)
        attempt.alone = crew is None
        self._outbox.move(attempt, Move("reject", error=error))
        if claim.crashes or crew is None:
            (crew or self.crews["async"]).suspect_ended(attempt)

    # -- written

    def written(self, outcomes: Outcomes, accepted: dict[int, str | None]) -> None:
        """These are committed, and told; what the database refused to record was no longer ours."""
        succeeded = outcomes.succeeded
        if len(accepted) != len(outcomes):
            refused = [attempt for attempt in outcomes.attempts if attempt.claim.epoch not in accepted]
            succeeded = [attempt for attempt in succeeded if attempt.claim.epoch in accepted]
            self._refused(refused, {attempt.claim.epoch: move.verb for attempt, move in outcomes.moves})
        # Some own transactions had committed, unseen by their handlers.
        succeeded += [
            attempt for attempt, move in outcomes.moves if accepted.get(attempt.claim.epoch, move.verb) is None
        ]
        self._counts["succeeded"] += len(succeeded)
        if self._announcer is not None:
            self._announcer.succeeded(succeeded)
        for attempt, move in outcomes.moves:
            if (verb := accepted.get(attempt.claim.epoch)) is not None:
                self.ends[verb] += 1
                if self._announcer is not None:
                    self._announcer.moved(attempt, move, verb)

    def _refused(self, attempts: list[LiveAttempt], verbs: dict[int, str]) -> None:
        if not attempts:
            return
        self._counts["stale"] += len(attempts)
        job_log.warning("lease_lost: %d outcomes were refused because the job was no longer ours", len(attempts))
        for attempt in attempts:
            self._absolve(attempt)
            if self._announcer is not None:
                self._announcer.stale(attempt, verbs.get(attempt.claim.epoch, "complete"))

    # -- lost

    def stood_still(self, now: float) -> None:
        """This process did, until now: leases that end by that may be the fault of a job."""
        self._stood_still = now

    def expire(self, attempt: LiveAttempt) -> None:
        """A lease could not be renewed in time."""
        self._absolve(attempt)
        self.lose(attempt)

    def _absolve(self, attempt: LiveAttempt) -> None:
        """An outage took the lease, unless this process stood still since it was renewed: then it is a crash.

        As soon as the database answers, we give the job back or say that we live.
        """
        if self._stood_still <= attempt.trusted_until - self._trust:
            self.doubtful.append(attempt.claim)
            self._signal.set()

    def lose(self, attempt: LiveAttempt) -> None:
        """A lease can no longer be trusted: stop the handler, write nothing more."""
        self._counts["lost"] += 1
        job_log.warning("lease_lost: stopping job %s of %s", attempt.claim.id, attempt.claim.task)
        if self._announcer is not None:
            self._announcer.lost(attempt)
        started = attempt.handle is not None
        if (attempt.claim.crashes or attempt.alone) and not started and not attempt.settled:
            attempt.crew.suspect_ended(attempt)
        attempt.settled = True
        if started:
            attempt.crew.left.add(attempt)  # until its handler heeds it
        else:
            self._rates.give_back(attempt)
        attempt.interrupt("lost")
        self._attempts.pop(attempt.claim.epoch, None)

    # -- given back

    def stop(self) -> None:
        """Give back what has not started, and whatever else comes."""
        self._stopping = True
        for crew in self.crews.values():
            for attempt in crew.give_back(float("inf")):
                self._executor.give_back(attempt)

    def give_back_late(self, now: float) -> None:
        """Give back what has waited too long for a slot or a rate."""
        for crew in self.crews.values():
            for attempt in crew.give_back(now - START_PATIENCE_S):
                if attempt.shares:
                    self._counts["late"] += 1
                    for share in self._rates.give_back(attempt, late=True):
                        self._late(share.limit)
                self._executor.give_back(attempt)

    def _late(self, limit: str) -> None:
        log.warning("limit %s: jobs that it let in could not be started in time, and go back", limit)
        if self._announcer is not None:
            self._announcer.limit_late(limit)

    def give_back_gated(self, share: Share) -> None:
        """Give back what waits for a rate that is no more."""
        for crew in self.crews.values():
            for attempt in crew.give_back_gated(share=share):
                self._executor.give_back(attempt)

    def give_back_all(self) -> None:
        """Give back what still runs: threads that did not look at their token. Fencing keeps them harmless."""
        for attempt in list(self._attempts.values()):
            self._executor.give_back(attempt)
