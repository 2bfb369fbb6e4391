"""What the engine promises, as a pure model: no database, no clock of its own.

Written from the rules, not from the SQL: a job, where it stands, and what each verb makes of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from mainspring.outcome import CRASH_BUDGET

LIVE_MODES = ("live", "replace", "debounce")
ENDED = ("succeeded", "failed", "dead", "cancelled")
NEVER = datetime(1, 1, 1, tzinfo=UTC)


class KeyReusedError(Exception):
    """The key belongs to a job with another task or payload."""


@dataclass(frozen=True)
class Wanted:
    """One enqueue."""

    id: UUID
    org: str
    task: str
    queue: str
    priority: int
    max_attempts: int
    cancellable: bool
    n: int  # the payload
    delay: timedelta | None
    key: str | None
    mode: str | None
    ttl: timedelta | None
    wait: timedelta | None
    reset: bool

    @property
    def print(self) -> tuple[str, int]:
        return self.task, self.n

    def due(self, now: datetime) -> datetime:
        return now + (self.wait or self.delay or timedelta(0))

    def wire(self) -> dict[str, object]:
        return {
            "id": self.id,
            "org_id": self.org,
            "task": self.task,
            "queue": self.queue,
            "priority": self.priority,
            "max_attempts": self.max_attempts,
            "cancellable": self.cancellable,
            "payload": {"n": self.n},
            "delay": self.delay,
            "key": self.key,
            "mode": self.mode,
            "ttl": self.ttl,
            "wait": self.wait,
            "reset": self.reset,
        }


@dataclass
class Job:
    """A job and its ticket."""

    want: Wanted
    due_at: datetime
    n: int
    max_attempts: int
    priority: int
    place: str = "waiting"  # waiting, running, or how it ended
    attempt: int = 0
    crashes: int = 0
    snoozes: int = 0
    retrying: bool = False
    suspect: bool = False
    after: UUID | None = None
    discarded: bool = False
    started_at: datetime = NEVER
    started: bool = False  # since it was enqueued, replayed or reset
    worker: str | None = None
    epoch: int | None = None
    lease_until: datetime | None = None
    cancel_asked: bool = False
    finished_at: datetime | None = None
    history: list[tuple[int, str]] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        return self.place in ENDED

    def state(self, now: datetime) -> str:
        if self.place != "waiting":
            return self.place
        if self.after is None and self.due_at <= now:
            return "ready"
        return "retrying" if self.retrying else "scheduled"


@dataclass
class Kills:
    """The workers that died by jobs of one task, each alone; three within an hour put it into quarantine."""

    workers: list[str] = field(default_factory=list)
    last_at: datetime = NEVER
    held: bool = False
    probe_at: datetime = NEVER

    def add(self, worker: str, now: datetime) -> None:
        if not self.held and self.last_at < now - timedelta(hours=1):
            self.workers = []
        self.workers = [*(one for one in self.workers if one != worker), worker]
        self.last_at = now
        if not self.held and len(self.workers) >= 3:
            self.held, self.probe_at = True, now


@dataclass
class Key:
    """What is remembered under a key."""

    job: UUID
    print: tuple[str, int]
    ttl: timedelta | None
    status: str | None = None  # once its job is pruned
    expires_at: datetime | None = None


class Model:
    """All jobs and keys."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.jobs: dict[UUID, Job] = {}
        self.keys: dict[tuple[str, str], Key] = {}
        self.paused: set[str] = set()
        self.expired: list[tuple[str, datetime]] = []  # the workers from which jobs were taken back
        self.kills: dict[str, Kills] = {}  # by task

    # -- enqueue

    def enqueue(self, wanted: Sequence[Wanted]) -> list[tuple[UUID, str, str]]:
        """The answers to a batch. Fresh keys come first, then those that are taken, in the order of their names."""
        answers: dict[int, tuple[UUID, str, str]] = {}
        again = []
        order = sorted(range(len(wanted)), key=lambda i: (wanted[i].org, wanted[i].key or "", i))
        for i in order:
            want = wanted[i]
            if want.key is None:
                answers[i] = self._create(want)
            elif (want.org, want.key) not in self.keys:
                self.keys[want.org, want.key] = Key(want.id, want.print, want.ttl)
                answers[i] = self._create(want)
            else:
                again.append(i)
        for i in again:
            answers[i] = self._again(wanted[i])
        return [answers[i] for i in range(len(wanted))]

    def _create(self, want: Wanted, after: UUID | None = None) -> tuple[UUID, str, str]:
        job = Job(want, want.due(self.now), want.n, want.max_attempts, want.priority, after=after)
        self.jobs[want.id] = job
        return want.id, "created", job.state(self.now)

    def _again(self, want: Wanted) -> tuple[UUID, str, str]:
        assert want.key is not None
        key = self.keys[want.org, want.key]
        job = self.jobs.get(key.job)
        mode = want.mode or "live"
        again = want.reset or mode == "reset_failed"
        same_task = job is not None and job.want.task == want.task
        if again and job is not None and job.place in ("failed", "dead", "cancelled") and same_task:
            self._back(job, want.due(self.now), n=want.n, max_attempts=want.max_attempts)
            key.print = want.print
            return key.job, "reset", self.jobs[key.job].state(self.now)
        if self._free(key, job, mode, again):
            self.keys[want.org, want.key] = Key(want.id, want.print, want.ttl)
            behind = key.job if job is not None and not job.ended else None
            return self._create(want, behind)
        if mode in ("replace", "debounce") and same_task:
            assert job is not None
            job.due_at, job.n, job.max_attempts = want.due(self.now), want.n, want.max_attempts
            key.print = want.print
            return key.job, "replaced", job.state(self.now)
        if key.print != want.print:
            raise KeyReusedError
        return key.job, "existing", job.state(self.now) if job else key.status or ""

    def _free(self, key: Key, job: Job | None, mode: str, again: bool) -> bool:
        if mode in LIVE_MODES:
            return job is None or job.ended or job.place == "running" or job.attempt > 0
        if job is None:
            expired = key.expires_at is not None and key.expires_at <= self.now
            return expired or (again and key.status in ("failed", "dead"))
        if mode == "window" and job.ended:
            assert job.finished_at is not None
            over = key.ttl is not None and job.finished_at + key.ttl <= self.now
            return over or (job.place == "cancelled" and job.attempt == 0)
        return False

    def _back(self, job: Job, due_at: datetime, *, n: int, max_attempts: int, suspect: bool = False) -> None:
        fresh = Job(job.want, due_at, n, max_attempts, job.want.priority, suspect=suspect, history=job.history)
        self.jobs[job.want.id] = fresh

    # -- a worker

    def claimable(
        self,
        total: int,
        queues: Sequence[str],
        limits: Sequence[int],
        tasks: Sequence[str],
        oldest: bool,
        rescued: int,
    ) -> list[UUID]:
        """The jobs that a claim takes, in the order in which it hands them out."""
        due = self._due()
        known = [job for job in due if job.want.task in tasks and not self._quarantined(job)]
        taken: list[Job] = []
        crashed = (j for j in known if j.crashes == 1 and j.want.queue in queues)
        taken += sorted(crashed, key=lambda j: (j.due_at, j.want.id))[:rescued]
        for queue, limit in zip(queues, limits, strict=True):
            lanes = []
            for priority in range(4):
                here = [job for job in due if job.want.queue == queue and job.priority == priority]
                if here:
                    lanes.append((min(job.due_at for job in here) if oldest else self.now, priority))
            mine: list[Job] = []
            for _, priority in sorted(lanes):
                lane = [j for j in known if j.want.queue == queue and j.priority == priority and not j.crashes]
                mine += sorted(lane, key=lambda j: (j.due_at, j.want.id))
            taken += mine[:limit]
        taken = taken[:total]
        return [j.want.id for j in sorted(taken, key=lambda j: (j.priority, j.due_at, j.want.id))]

    def next_alone(self, queues: Sequence[str], tasks: Sequence[str]) -> list[UUID]:
        """The job that a claim takes to run alone: one that crashed twice, else a probe of a task in quarantine."""
        known = [job for job in self._due() if job.want.task in tasks and job.want.queue in queues]
        known.sort(key=lambda j: (j.due_at, j.want.id))
        twice = [job for job in known if job.crashes > 1]
        probes = [job for job in known if self._quarantined(job) and self.kills[job.want.task].probe_at <= self.now]
        found = (twice or probes)[:1]
        for job in found:
            if self._quarantined(job):
                self.kills[job.want.task].probe_at = self.now + timedelta(seconds=1)
        return [job.want.id for job in found]

    def _due(self) -> list[Job]:
        ready = [job for job in self.jobs.values() if job.state(self.now) == "ready"]
        return [job for job in ready if job.want.queue not in self.paused]

    def _quarantined(self, job: Job) -> bool:
        kills = self.kills.get(job.want.task)
        return kills is not None and kills.held

    def claim(self, worker: str, job: Job, epoch: int, lease: timedelta) -> None:
        job.started_at = self.now
        job.place, job.worker, job.epoch, job.lease_until = "running", worker, epoch, self.now + lease
        job.attempt += 1
        job.started = True

    def held(self, worker: str, epoch: int) -> Job | None:
        """The job that this worker holds under this epoch."""
        return next((j for j in self.jobs.values() if j.epoch == epoch and j.worker == worker), None)

    def settle(self, job: Job, verb: str, delay: timedelta | None = None) -> None:
        """End an attempt."""
        assert job.epoch is not None
        if job.cancel_asked and verb in ("fail", "snooze", "defer", "release"):
            verb = "stop"
        outcome = {"complete": "succeeded", "fail": "retried", "reject": "failed", "bury": "dead", "stop": "cancelled"}
        if verb in outcome:
            job.history.append((job.epoch, outcome[verb]))
        if verb in ("fail", "snooze", "defer", "release"):
            job.attempt -= verb != "fail"
            job.snoozes += verb == "snooze"
            self._wait(job, self.now + (delay or timedelta(0)), retrying=verb == "fail")
        else:
            self._finish(job, {"complete": "succeeded", "reject": "failed", "bury": "dead", "stop": "cancelled"}[verb])

    def rescue(self) -> dict[UUID, str]:
        """Take back every job whose lease is over; a crash that others shared is nobody's."""
        found = {}
        running = [job for job in self.jobs.values() if job.lease_until is not None]
        taken = [job for job in running if job.lease_until is not None and job.lease_until <= self.now]
        taken.sort(key=lambda job: (job.lease_until, job.want.id))
        crowded = {job.worker for job in taken if self._crowded(job, [one for one in running if one is not job])}
        for job in taken:
            assert job.epoch is not None
            assert job.worker is not None
            job.history.append((job.epoch, "rescued"))
            self.expired.append((job.worker, self.now))
            shared = job.crashes < 2 and job.worker in crowded
            if not shared:
                self.kills.setdefault(job.want.task, Kills()).add(job.worker, self.now)
            job.crashes += 1
            if job.cancel_asked:
                self._finish(job, "cancelled")
            elif job.crashes >= CRASH_BUDGET or job.attempt >= job.max_attempts + (shared and job.max_attempts > 1):
                self._finish(job, "dead")
            else:
                job.attempt -= shared
                self._wait(job, self.now, retrying=False)
            found[job.want.id] = job.state(self.now)
        return found

    def _crowded(self, job: Job, others: list[Job]) -> bool:
        """Whether its worker held another job while it held this one."""
        before = any(worker == job.worker and at > job.started_at for worker, at in self.expired)
        return before or any(other.worker == job.worker for other in others)

    def _wait(self, job: Job, due_at: datetime, *, retrying: bool) -> None:
        job.place, job.due_at, job.retrying = "waiting", due_at, retrying
        job.worker = job.epoch = job.lease_until = None
        job.cancel_asked = False

    def _finish(self, job: Job, state: str) -> None:
        job.place, job.finished_at = state, self.now
        job.worker = job.epoch = job.lease_until = job.after = None
        job.cancel_asked = False
        for other in self.jobs.values():
            if other.after == job.want.id:
                other.after = None
                other.due_at = max(other.due_at, self.now)

    # -- people

    def cancel(self, job: Job) -> str:
        if job.ended:
            return "cancelled" if job.place == "cancelled" else "already_finished"
        if job.place == "running":
            if not job.want.cancellable:
                return "not_cancellable"
            job.cancel_asked = True
            return "cancel_requested"
        key = self.keys.get((job.want.org, job.want.key or ""))
        if job.after is not None and key is not None and key.job == job.want.id:
            before = self.jobs[job.after]
            key.job, key.print = job.after, (before.want.task, before.n)
        self._finish(job, "cancelled")
        return "cancelled"

    def replay(self, job: Job) -> tuple[bool, UUID | None]:
        key = self.keys.get((job.want.org, job.want.key)) if job.want.key else None
        if key is not None and key.job != job.want.id:
            other = self.jobs.get(key.job)
            if other is not None and not other.ended:
                return False, key.job
        if job.place not in ("failed", "dead"):
            return False, None
        self._back(job, self.now, n=job.n, max_attempts=job.max_attempts, suspect=job.place == "failed")
        if key is not None:
            assert job.want.key is not None
            self.keys[job.want.org, job.want.key] = Key(job.want.id, (job.want.task, job.n), key.ttl)
        return True, None

    def discard(self, job: Job) -> bool:
        if job.discarded or job.place not in ("failed", "dead"):
            return False
        job.discarded = True
        return True

    def prune(self, states: Sequence[str], age: timedelta) -> list[UUID]:
        """Remove what finished longer ago than `age`; keys remember how it ended."""
        gone = [
            job.want.id
            for job in self.jobs.values()
            if job.finished_at is not None
            and job.place in states
            and job.finished_at < self.now - age
            and (job.discarded or job.place in ("succeeded", "cancelled"))
        ]
        for id_ in gone:
            job = self.jobs.pop(id_)
            key = self.keys.get((job.want.org, job.want.key or ""))
            if key is not None and key.job == id_:
                assert job.finished_at is not None
                key.status = job.place if job.place in ("succeeded", "dead") else "failed"
                key.expires_at = job.finished_at + key.ttl if key.ttl is not None else None
        return gone

    def copy(self) -> Model:
        """The same world, to try something that is rolled back."""
        twin = Model(self.now)
        twin.jobs = {id_: replace(job, history=list(job.history)) for id_, job in self.jobs.items()}
        twin.keys = {name: replace(key) for name, key in self.keys.items()}
        twin.paused = set(self.paused)
        twin.expired = list(self.expired)
        twin.kills = {task: replace(kills, workers=list(kills.workers)) for task, kills in self.kills.items()}
        return twin
