"""A random walk through a marketplace: `make walk ARGS="--steps 5000 --seed 7"`.

People act, providers fail, workers die, webhooks get lost and clocks jump, all by chance from one seed, in virtual time
and on the real application. After every step everything of `invariants` must hold. In the end all is repaired, all is
resolved, and nothing may be left over. A walk that fails says its seed and what happened last.
"""

from __future__ import annotations

import argparse
import logging
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final, NoReturn
from uuid import uuid4

from tests.apps.staffing.invariants import Books, Violation, broken
from tests.apps.staffing.town import Town
from tests.apps.staffing.troubles import Troubles
from tests.apps.staffing.walkers import Act, People

import mainspring as ms
from mainspring.errors import TransitionRefused
from mainspring.outcome import BreakerOpen
from mainspring.testing import Crash, Drained, Harness
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.market import Market
from mainspring_sandbox import Courier, Sandbox
from mainspring_sandbox.ledger import real_time

#: Before a change of clocks in some of the zones, and where nothing changes.
BEGINNINGS: Final = (
    datetime(2026, 3, 2, 5, tzinfo=UTC),
    datetime(2026, 6, 1, 4, tzinfo=UTC),
    datetime(2026, 10, 19, 4, tzinfo=UTC),
)
HOUR: Final = timedelta(hours=1)
#: Those that fire in a short walk: without hourly sweeps, which find nothing where timers can be set, and digests.
SCHEDULES: Final = (
    "weekly-payments", "weekly-final-warning", "weekly-hard-cutoff", "insurance-monitoring", "finished-bookings",
)  # fmt: skip
TRIES: Final = 6  # to find something to do
LAST: Final = 30  # events that a failure shows
CLOSER: Final = 300  # after so many steps the provider's books are compared every tenth step


class Walk:
    """One town, one seed."""

    def __init__(self, mainspring: Harness, sandbox: Sandbox, desk: Desk, seed: int, *, every: bool = False) -> None:
        self.seed, self.steps = seed, 0
        self.events: list[str] = []
        self.counts: Counter[str] = Counter()
        chance = self.chance = random.Random(seed)
        self.begin = BEGINNINGS[seed % 3]
        self.town = Town(mainspring, sandbox, desk, begin=self.begin)
        self.people, self.troubles = People(self.town, chance), Troubles(self.town, chance)
        if not every:
            self.town.only(*SCHEDULES)
        for _ in range(12):
            self.people.book()

    def go(self, steps: int, *, attempts: int = 0) -> None:
        """So many steps, and more until so many attempts of jobs were made; then the end."""
        with self.troubles.planted():
            while self.steps < steps or self.counts["attempts"] < attempts:
                self.step()
            self.end()

    def close(self) -> None:
        """Hang up everywhere."""
        self.town.close()

    def step(self) -> None:
        """Something happens, or goes wrong, and time passes."""
        self.steps += 1
        random.seed(f"{self.seed} {self.steps}")  # jitter is the engine's
        done = None
        for _ in range(TRIES):
            acts = self.people.acts() if self.chance.random() < 0.85 else self.troubles.all()
            (act,) = self.chance.choices([act for _, act in acts], [weight for weight, _ in acts])
            if done := self._do(act):
                break
        self._pass(bool(done))
        self._check(settled=False)

    def _do(self, act: Act) -> str | None:
        try:
            done = act()
        except Exception as error:
            self._fail(f"{act.__name__} raised {error!r}", "".join(traceback.format_exception(error)))
        if done:
            self._note(done)
            self.counts[act.__name__ + (" refused" if "refused" in done else "")] += 1
        return done

    def _pass(self, acted: bool) -> None:
        """Time passes: not at all, a little, or much; or it jumps, and nobody has worked meanwhile."""
        kind = self.chance.random()
        if not acted:
            span = max(self.people.next_at() - self.town.now, timedelta(minutes=5))
        elif kind < 0.3:
            return  # more happens before anybody works
        elif kind < 0.8:
            span = timedelta(minutes=self.chance.randrange(1, 60))
        elif kind < 0.97:
            span = timedelta(minutes=self.chance.randrange(60, 400))
        else:
            span = timedelta(hours=self.chance.choice((1, 5, 30, 60)))
            self.town.mainspring.clock.set(self.town.now + span)
            self._note(f"nobody worked for {span}")
            self.counts["jump"] += 1
            span = timedelta(0)
        self._work(span)

    def _work(self, span: timedelta) -> None:
        self.troubles.working = True
        try:
            ran = self.town.mainspring.advance(span, raise_errors=False, limit=20_000)
        finally:
            self.troubles.working = False
        self._look(ran)

    def _look(self, ran: Drained) -> None:
        """Jobs fail for reasons outside, and never for others."""
        for run in ran:
            self.counts["attempts"] += 1
            if isinstance(run.error, Crash):
                self._note(f"died in {run.task}")
            elif run.error is not None and not isinstance(run.error, ms.Failure | ms.Snooze | BreakerOpen):
                self._fail(f"{run.task} raised {run.error!r}", run.job.payload)

    def _check(self, *, settled: bool) -> None:
        for rule, rows in broken(self.town):
            self._fail(rule, rows)
        if settled or self.steps < CLOSER or self.steps % 10 == 0:
            books = Books(self.town.sandbox.ledger)
            for rule, rows in books.broken(self.town.conn, settled=settled):
                self._fail(rule, rows)
            struck = self.town.sandbox.faults.struck
            lost = sum(struck[provider, kind] for provider in ("smtp", "smtp.data") for kind in ("drop", "error"))
            if books.doubled() > lost + self.troubles.crashes:
                self._fail("a mail leaves twice only where nobody could know", books.doubled())

    # -- the end

    def end(self) -> None:
        """All is repaired and resolved: then nothing waits, nothing is held back and nobody is owed anything."""
        self.troubles.end()
        self._note("the end begins")
        self._work(2 * HOUR)
        self._replay()
        for note in self.people.repair():
            self._note(note)
        for _ in range(2):
            self._work(HOUR)
            while self.people.bank_decides() or self.people.bank_refunds() or self.people.bank_closes():
                pass
            self._work(HOUR)
            for note in self.people.conclude():
                self._note(note)
        self._work(44 * HOUR)  # what nobody began is given up, and who sleeps gets messages in the morning
        while self.people.bank_refunds("succeeded"):
            pass
        self._work(HOUR)
        self._replay()
        self._check(settled=True)
        for rule, query in OVER.items():
            if rows := self.town.rows(query):
                self._fail(rule, rows[:5])

    def _replay(self) -> None:
        """Operators let dead letters run again: only what a provider could not do, or refused, is one."""
        for id_, task, code in self.town.rows("select id, task, code from mainspring.dead_letters order by id"):
            self.counts[f"dead {task} {code}"] += 1
            if code not in EXPECTED or (code == "HttpException" and not task.startswith("notify.")):
                self._fail("a dead letter has a reason outside", (task, code, id_))
            dead = self.town.mainspring.client.dead
            try:
                dead.replay(id_, reason="providers are back")
            except TransitionRefused:  # a sweep asked again, and that is dead as well: one of them is enough
                dead.discard(id_, reason="another job of its key goes on")
        self._work(HOUR)

    # -- what is told

    def _note(self, what: str) -> None:
        self.events.append(f"{self.steps:5} {self.town.now:%Y-%m-%d %H:%M:%S}Z  {what}")

    def _fail(self, rule: str, rows: object) -> NoReturn:
        last = "\n".join(self.events[-LAST:])
        raise Violation(
            f"seed {self.seed}, step {self.steps}, {self.town.now}: {rule}\n{rows}\n\nwhat happened last:\n{last}"
        )


#: What holds when all is over.
OVER: Final = {
    "nothing is frozen": "select * from staffing.escrow where frozen <> 0",
    "no money is held": "select id, time_log_id from staffing.escrow_holds where status = 'Held'",
    "what is over is completed": "select id from staffing.finished_bookings",
    "no verified work of a booking that has ended is unpaid": """
        select b.id, t.id, b.status from staffing.time_log t join staffing.bookings b on b.id = t.booking_id
        where t.status = 'Verified' and t.paid_minutes is distinct from 0 and b.status in ('Completed', 'Cancelled')
          and not exists (
            select from staffing.payment_shifts s join staffing.pending_payments p on p.id = s.payment_id
            where s.time_log_id = t.id and p.status = 'Succeeded' and p.given_back_at is null)
          and not exists (select from staffing.disputes d where d.time_log_id = t.id)""",
    "nothing waits to be confirmed": "select id from staffing.bookings where status = 'Pending_Payment'",
    "no payment is pending": "select id, booking_id, status from staffing.pending_payments where status = 'Pending'",
    "no transfer is under way": """
        select id, status from staffing.transfers where status not in ('Succeeded', 'Reversed')""",
    "no reversal is under way": "select id, status from staffing.reversals where status <> 'Succeeded'",
    "no bank has to decide": "select id, status from staffing.chargebacks where status not in ('Won', 'Lost')",
    "no refund is under way": "select id, status from staffing.refunds where status <> 'Succeeded'",
    "no message waits": "select id, template from mainspring.notification where status in ('pending', 'sending')",
    "no dead letter is left": "select id, task, code from mainspring.dead_letters",
    "no booking is paused": "select id from staffing.bookings where status = 'Payment_Paused_Dispute'",
}
#: Why a job may end in the dead letter: whoever carries messages was away for too long, or its workers died.
EXPECTED: Final = frozenset({"HttpException", "LEASE_EXPIRED"})


@contextmanager
def marketplace() -> Iterator[tuple[Harness, Sandbox, Desk]]:
    """A database and providers of its own, as tests have them by their fixtures."""
    from mainspring.embedded import VOLATILE
    from mainspring.testing import DatabaseServer
    from mainspring.virtual.run import RunClusters

    run = RunClusters.join(f"walk-{uuid4().hex[:8]}")
    try:
        with Sandbox() as sandbox, sandbox.standing_in():
            app = Market(maintenance=False, watches=())
            with DatabaseServer.of(run.cluster("memory/18", settings=VOLATILE)).fresh(
                prepare=app.migrations
            ) as database:
                app.at(database.dsn)
                with Harness(database.dsn, app) as harness:
                    sandbox.reset(harness.now)
                    harness.visitors.append(Courier(sandbox, app))
                    yield harness, sandbox, app.desk
                    sandbox.reset(real_time)
    finally:
        run.leave()


def main(args: Sequence[str] | None = None) -> int:
    """Walk, and say what was met."""
    parser = argparse.ArgumentParser(prog="python -m tests.apps.staffing.walk", description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", action="store_true", help="let sweeps and digests run as well")
    parser.add_argument("--events", action="store_true", help="print everything that happened")
    said = parser.parse_args(args)
    logging.disable(logging.CRITICAL)  # failures are the point
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # who stops it learns how far it came
    began, failed = time.monotonic(), ""
    with marketplace() as (mainspring, sandbox, desk):
        walk = Walk(mainspring, sandbox, desk, said.seed, every=said.every)
        try:
            walk.go(said.steps)
        except Violation as violation:
            failed = str(violation)
        except KeyboardInterrupt:
            failed = "interrupted"
        lines = walk.events if said.events else []
        passed = walk.town.mainspring.clock.at - walk.begin
        about = f"{walk.steps} steps, {passed} of time, {time.monotonic() - began:.0f} s"
        counts = ", ".join(f"{count} {what}" for what, count in sorted(walk.counts.items()))
        walk.close()
        sys.stdout.write("\n".join([*lines, failed, f"seed {said.seed}: {about}", counts]) + "\n")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
