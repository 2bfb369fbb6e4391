"""Scheduler and worker without their loops: at one instant of virtual time, fire what is due and run what is due."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, cast

import msgspec

from mainspring.cipher import SEALED
from mainspring.db.cipher import Keyring
from mainspring.db.wire.run import AsyncDoor
from mainspring.db.wire.sql import Sql, render
from mainspring.declare.registry import ENGINE_REGISTRY
from mainspring.declare.schedule import Schedule
from mainspring.errors import MainspringError
from mainspring.events import subject_of
from mainspring.job import Claim, Enqueued, NewJob
from mainspring.outcome import Move
from mainspring.simulate.chance import Chance
from mainspring.simulate.messages import Messages
from mainspring.simulate.providers import SimulatedClock
from mainspring.simulate.scratch import MOVE, TIDY_SCRATCH
from mainspring.simulate.timeline import Fired, SimulatedAttempt, TimelineEntry, ids_of
from mainspring.states import WORDS
from mainspring.virtual.joined import AsyncView
from mainspring.virtual.ran import Crash
from mainspring.virtual.runner import VIRTUAL_WORKER, Runner
from mainspring.virtual.tasks import DeclaredTasks
from mainspring.worker.bounds import BEGINNING
from mainspring.worker.outbox import settle_row
from mainspring.worker.schedules.firing import FIRING_PORTION, Conn, Firing
from mainspring.worker.schedules.planning import FirePlan, rule_of

#: So many jobs are claimed at once: they run one after another, in the order in which they were claimed.
_CLAIM: Final = 200
#: After so many instants the dead rows of tables that are read at each are removed.
TIDY_EVERY: Final = 500
_LEASE: Final = timedelta(minutes=1)
#: More at one instant are probably jobs that enqueue each other.
MOST_AT_ONE_INSTANT: Final = 100_000
#: How often the zones in use are asked for while nothing happens that could change them.
SIMULATED_ZONES_EVERY: Final = timedelta(hours=1)
#: Statements that are asked with the same parameters at every instant.
SAME: Final = ("claim", "take_schedules", "next_simulated")


class Clockwork(Runner):
    """A runner that also fires schedules, and says what happened. Its clock is the scratch database's."""

    def __init__(
        self,
        tasks: DeclaredTasks,
        view: Messages,
        ring: Keyring,
        *,
        chance: Chance,
        watch: SimulatedClock,
        own: Conn,  # one that is whole, for others' code
        start: datetime,
        zone: str,
        maintenance: bool,
        **about: Any,
    ) -> None:
        self._keeping = _SimulatedFiring(Sql(tasks.schema), tasks.registry, ring, housekeeping=maintenance)
        super().__init__(
            tasks, cast(AsyncView, view), ring, firing=self._keeping,
            failing=lambda claim: chance.shake(claim.id, claim.attempt, "failed"), **about,
        )  # fmt: skip
        self._messages, self._chance, self._watch, self._own, self._zone = view, chance, watch, own, zone
        self._now = self._zones_at = start
        self._tasks = {"tasks": self._registry.names()}
        self._zoned = any(schedule.zones is not None for schedule in self._firing.schedules())
        self._paged = any(schedule.entities is not None for schedule in self._firing.schedules())
        self._due = self._expiring = self._probing = True
        self._filled: set[str] = set()  # the queues in which jobs wait
        self._claimed = self._visits = 0  # at this instant
        self._busy = True  # something happened at it; else what seems due still is somebody else's
        self._moves = 0
        self._crashed = False  # some attempt has; rescued jobs are looked for only then
        self._move, self._tidy = render(MOVE, self._sql.schema), render(TIDY_SCRATCH, self._sql.schema)
        self._causes: dict[str, tuple[str | None, str]] = {}  # by what began it: schedule, and zone
        self._begins = {schedule.name: schedule.task for schedule in self._firing.schedules()}

    async def sync(self) -> None:
        """Write what is declared to the database."""
        await self._view.execute("select setseed(%s)", [self._chance.fraction()])  # fair queues draw who is next
        await self._own.execute(self._move, [self._now])
        await self._own.execute("reset mainspring.now")  # the setting is the other connection's: this asks the table
        await self._firing.sync(self._own)
        if self._zoned:
            await self._fan_out.zones(self._own)

    async def next(self) -> datetime | None:
        """Write how the last attempts ended, and find the next instant at which something is due: now, if more is."""
        self._write()
        came = False
        while True:
            cursor = await self._view.execute(self._sql["next_simulated"], self._tasks)
            ((queues, ready, job, lease, schedule, probe),) = await cursor.fetchall()
            self._filled = set(queues)
            # Who ran or came has enqueued more; what cannot be claimed waits for the next instant.
            if ready and (self._claimed or came):
                return self._now
            if not await self._visited():
                break
            came = True
        known: list[datetime] = [
            at for at in (job, lease, schedule, probe) if at is not None and (at > self._now or self._busy)
        ]
        if (visit := self.visitors.next_at()) is not None:
            known.append(visit)
        if self._zoned:
            known.append(self._zones_at + SIMULATED_ZONES_EVERY)
        if not known:
            return None
        at = max(self._now, min(known))
        self._due, self._expiring = schedule is not None and schedule <= at, lease is not None and lease <= at
        self._probing = probe is not None and probe <= at
        return at

    async def move(self, to: datetime) -> None:
        """Set the clock."""
        if to > self._now:
            self._now = self._watch.at = to
            self._claimed = self._visits = 0
            self._chance.move(to)
            await self._view.execute(self._move, [to])
            self._moves += 1
            if self._moves % TIDY_EVERY == 0:
                self._messages.send()
                await self._own.execute(self._tidy)

    async def instant(self) -> list[TimelineEntry]:
        """Do what is due now, and say what happened: what fired first, then what ran."""
        if self._expiring and await self.rescue():
            self._crashed = True
        if self._probing:
            await self._breakers.tick()
        fired = await self._fire() if self._due else []
        ran = await self._work()
        self._due = self._expiring = self._probing = False
        asks = self._zoned and (ran or self._now >= self._zones_at + SIMULATED_ZONES_EVERY)
        if asks:
            self._zones_at = self._now
            await self._fan_out.zones(self._own, timedelta(0))
        self._busy = bool(fired or ran or asks)
        return [*fired, *ran]

    async def _visited(self) -> bool:
        """Whether others came whose time it is, when everything that was due is done; what they bring may be due."""
        at = self.visitors.next_at()
        if at is None or at > self._now:
            return False
        self._visits += 1
        if self._visits > MOST_AT_ONE_INSTANT:
            raise MainspringError(
                f"more than {MOST_AT_ONE_INSTANT} visits at {self._now}: a visitor wants to come again at once"
            )
        self._messages.send()  # they see what is so now
        self._chance.shake("visit", self._now, self._visits)
        self._busy = await self.visitors.visit()
        return self._busy

    async def _fire(self) -> list[Fired]:
        looked = FIRING_PORTION
        while looked == FIRING_PORTION:
            looked = await self._firing.fire(self._view)
        if self._paged:
            self._messages.send()
            while await self._fan_out.page(self._own):
                pass
        written, self._keeping.written = self._keeping.written, ()
        self._filled.update(job.queue for plan, _ in written for job in plan.jobs if job is not None)
        return [self._fired(plan, fire) for plan, fire in written]

    def _fired(self, plan: FirePlan, fire: dict[str, Any]) -> Fired:
        zone = rule_of(plan.due.rule, plan.due.zone).zone
        self._causes[str(fire["id"])] = fire["schedule"], zone
        return Fired(
            at=fire["instant"], zone=zone, schedule=fire["schedule"], org=fire["org_id"], how=fire["how"],
            reason=fire["reason"], instants=fire["instants"], job_id=fire.get("job_id"),
        )  # fmt: skip

    async def _work(self) -> list[SimulatedAttempt]:
        ran: list[SimulatedAttempt] = []
        claims = await self._claim()
        self._claimed = self._claimed + len(claims) if claims else 0
        if self._claimed > MOST_AT_ONE_INSTANT:
            raise MainspringError(
                f"more than {MOST_AT_ONE_INSTANT} jobs at {self._now}: do they enqueue each other without end?"
            )
        for self._asked, claim in enumerate(claims):
            self._chance.shake(claim.id, claim.attempt)
            ran.append(self._ran(claim, *await self.attempt(claim)))
        return ran

    async def _claim(self) -> list[Claim]:
        """Take what is due, from the queues in which something can be: each that is looked at costs."""
        queues = [queue for queue in self._queues if queue in self._filled or self._expiring or self._paged]
        low, share = [BEGINNING] * len(queues), [_CLAIM] * len(queues)
        scope = [queues, share, low, low, low, low, self._tasks["tasks"], False]
        rescued = _CLAIM if self._crashed else 0
        cursor = await self._view.execute(
            self._sql["claim"], [VIRTUAL_WORKER, _LEASE, _CLAIM, *scope, rescued, False, None]
        )
        found = await cursor.fetchall()
        if not found and self._crashed:  # what crashed twice runs alone
            cursor = await self._view.execute(self._sql["claim"], [VIRTUAL_WORKER, _LEASE, 1, *scope, 0, True, None])
            found = await cursor.fetchall()
        return [Claim(*row) for row in found]

    def _write(self) -> None:
        """Put how attempts ended into the next message."""
        outcomes = self._outbox.take()
        if len(outcomes.done) == 1:  # which costs half
            self._messages.add(self._sql["complete_one"], [VIRTUAL_WORKER, outcomes.done[0].claim.epoch, None])
        elif outcomes.done:
            self._messages.add(
                self._sql["complete"], [VIRTUAL_WORKER, [attempt.claim.epoch for attempt in outcomes.done]]
            )
        if outcomes.results:
            epochs = [attempt.claim.epoch for attempt, _ in outcomes.results]
            self._messages.add(
                self._sql["complete_with"], [VIRTUAL_WORKER, epochs, [text for _, text in outcomes.results]]
            )
        if outcomes.moves:
            moves = msgspec.json.encode([settle_row(attempt, move) for attempt, move in outcomes.moves]).decode()
            self._messages.add(self._sql["settle"], [VIRTUAL_WORKER, moves])

    def _ran(self, claim: Claim, error: BaseException | None, move: Move | None) -> SimulatedAttempt:
        sealed = claim.payload.startswith(SEALED)
        schedule, zone = self._cause(claim, sealed=sealed)
        said = move.error if move is not None else None
        why = f"{said.code}: {said.message}" if said else None
        state = "crashed" if isinstance(error, Crash) else WORDS[move.verb if move is not None else "complete"]
        if move is not None and move.gate is not None:  # such as breaker:stripe
            why = move.gate.replace(":", " ", 1)
        return SimulatedAttempt(
            at=self._now, zone=zone, task=claim.task, org=claim.org_id, job_id=claim.id, attempt=claim.attempt,
            state=state, schedule=schedule, follows=schedule is not None and self._begins.get(schedule) != claim.task,
            subject=None if sealed else self._subject(claim), key=claim.key, error=why,
            due_at=self._now + move.delay if move is not None and move.delay is not None else None,
        )  # fmt: skip

    def _cause(self, claim: Claim, *, sealed: bool) -> tuple[str | None, str]:
        """The schedule that has led to a job, and the zone it is seen in: else that of the job which began it."""
        if claim.correlation_id == str(claim.id) and not sealed and (said := subject_of(claim.payload, "zone")):
            self._causes[claim.correlation_id] = None, str(said["zone"])
        return self._causes.get(claim.correlation_id, (None, self._zone))

    def _subject(self, claim: Claim) -> dict[str, Any] | None:
        """Whom a job is about: a message goes by its template, others by their task's subject and their ids."""
        message = subject_of(claim.payload, "notification_id")
        if message is not None:
            params = [claim.org_id, str(message["notification_id"])]
            self._messages.add(self._sql["message_of"], params, answer := self._messages.cursor())
            self._messages.send()
            if answer.rows:
                return dict(zip(("template", "channel", "to"), answer.rows[0], strict=True))
        return ids_of(claim.payload, self._registry.get(claim.task).subject)

    def _cancelled(self, epoch: int) -> bool:
        if not self._asked:  # asked before its handler begins, and nobody else has run since the claim
            self._asked = 1
            return False
        self._messages.add(self._sql["cancelled"], [VIRTUAL_WORKER], answer := self._messages.cursor())
        self._messages.send()
        return (epoch,) in (answer.rows or [])

    async def _use(self, ask: Callable[[Any], Awaitable[Any]]) -> Any:
        self._messages.send()
        return await ask(self._own)


class _SimulatedFiring(Firing):
    """The scheduler's, which also keeps what it has written."""

    written: Sequence[tuple[FirePlan, dict[str, Any]]] = ()

    def schedules(self) -> list[Schedule]:
        """Where the built-in schedules rest, watches do: they would fill the time line."""
        found = super().schedules()
        return [one for one in found if self._housekeeping or self._registry.get(one.task).app != ENGINE_REGISTRY]

    async def bind(self, conn: Any, org: str) -> None:
        if not isinstance(conn, Messages):  # where others' code runs; a scratch database is not secured
            await super().bind(conn, org)

    def door(self, conn: Any) -> AsyncDoor:
        return conn.door() if isinstance(conn, Messages) else super().door(conn)

    async def _write(self, conn: Conn, plans: Sequence[FirePlan]) -> tuple[list[NewJob], list[Enqueued]]:
        answer = await super()._write(conn, plans)
        self.written = [*self.written, *((plan, fire) for plan in plans for fire in plan.fires)]
        return answer
