"""Days of the marketplace, held to the minute: `make timeline ARGS="--from 2026-03-02"`.

A simulation of the demo is compared with an oracle that knows nothing of the engine: it walks the minutes of UTC and
looks at the clocks of each zone. What follows a business row, such as the approval four hours after a submit, is
compared with the row. Money adds up after every instant, and in the end it is what the provider has.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from datetime import time as of_day
from functools import cache
from typing import Any, Final
from unittest.mock import patch
from uuid import uuid4
from zoneinfo import ZoneInfo

import msgspec
import psycopg
from psycopg.sql import SQL, Identifier
from tests.apps.staffing.invariants import Books
from tests.databases import RunClusters

from mainspring.embedded import VOLATILE
from mainspring.simulate import Fired, SimulatedAttempt, TimelineEntry, simulate
from mainspring.simulate.timeline import document
from mainspring_apps.staffing.demo import demo
from mainspring_apps.staffing.demo.seed import ODD_ZONES
from mainspring_apps.staffing.market import Market
from mainspring_apps.staffing.settings import Settings
from mainspring_sandbox import Sandbox

STARTS: Final = (
    datetime(2026, 3, 2, tzinfo=UTC),
    datetime(2026, 3, 25, tzinfo=UTC),
    datetime(2026, 10, 15, tzinfo=UTC),
)
DAY, HOUR, MINUTE = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)
#: When something fires where a project or a user is: the weekday, if it is weekly, and the time.
LOCAL: Final[dict[str, tuple[int | None, of_day]]] = {
    "weekly-payments": (2, of_day(10)),
    "weekly-final-warning": (2, of_day(14)),
    "weekly-hard-cutoff": (3, of_day(0)),
    "saved-search-digest": (None, of_day(5)),
}
#: And in UTC, each day or each hour.
DAILY: Final = {"insurance-monitoring": of_day(0), "magic-link-cleanup": of_day(2)}
HOURLY: Final = ("approval-sweep", "overdue-disputes", "payment-reconciliation", "movement-reconciliation")
#: What a time line of three weeks shows of the marketplace: acts, and messages.
SHOWN: Final = """
    payment_failed payment_succeeded payment_paused payment_resumed payment_by_hand booking_released booking_suspended
    booking_resumed policy_renewed policy_deactivated file_dispute resolve_dispute dispute_timeout cancel_booking
    cancel_shift file_incident resolve_incident edit_timesheet force_clock_out auto_approve verify_timesheet
    confirm_extra_time change_scheduled_end transfer_succeeded refund_succeeded booking_confirmed"""
TOLD: Final = """
    action_required final_warning worker_released insurance_14 insurance_7 insurance_expired insurance_stop ladder_0
    ladder_60m ladder_3h auto_approved reminder_5m reminder_30m dispute_timeout digest instant_alert"""


@cache
def instants(zone: str, weekday: int | None, at: of_day, start: datetime, end: datetime) -> list[datetime]:
    """On each local date, the first minute at which clocks there show that time or a later one.

    >>> start = datetime(2026, 3, 27, tzinfo=UTC)
    >>> [f"{one:%d %H:%M}" for one in instants("Asia/Beirut", 6, of_day(0), start, start + 3 * DAY)]
    ['28 22:00']
    """
    here, found, seen = ZoneInfo(zone), [], set[date]()
    minute = start - 2 * DAY
    while minute < end:
        local = minute.astimezone(here)
        if local.date() not in seen and local.time() >= at:
            seen.add(local.date())
            if minute >= start and weekday in (None, local.weekday()):
                found.append(minute)
        minute += MINUTE
    return found


@dataclass
class Recorded:
    """A simulation: what it told, and what was in its database and in the provider's books when it ended."""

    start: datetime
    end: datetime
    zones: Sequence[str]
    entries: list[TimelineEntry] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    rows: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def digest(self) -> str:
        """The SHA-256 of what it told."""
        told = b"\n".join(msgspec.json.encode(document(entry)) for entry in self.entries)
        return hashlib.sha256(told).hexdigest()


#: What of the database the time line is compared with.
ROWS: Final = {
    "sheets": """
        select t.id, t.clock_in_time, t.clock_out_time, t.scheduled_end_time, t.auto_approval_time, t.edit_extensions,
               t.verified_by, (
          select min(a.at) from mainspring.audit a where (a.detail ->> 'entity_id')::bigint = t.id
            and a.event in ('staffing.verify_timesheet', 'staffing.auto_approve')
          ), (select d.dispute_filed_at from staffing.disputes d where d.time_log_id = t.id)
        from staffing.time_log t where t.status not in ('Scheduled', 'Cancelled') order by t.id""",
    "disputes": """
        select d.id, d.dispute_filed_at, (
          select min(a.at) from mainspring.audit a
          where a.event = 'staffing.resolve_dispute' and (a.detail ->> 'entity_id')::bigint = d.id)
        from staffing.disputes d order by d.id""",  # the first time: a legal hold stops the timer, too
    "moved ends": """
        select distinct split_part(a.subject, ' ', 2)::bigint from mainspring.audit a
        where a.event in ('staffing.change_scheduled_end', 'staffing.change_shift_end')""",
    "moved cutoffs": """
        select b.id, p.timezone, a.at from mainspring.audit a
        join staffing.bookings b on b.id = (a.detail ->> 'entity_id')::bigint
        join staffing.projects p on p.id = b.project_id
        where a.event = 'staffing.cutoff_moved' order by a.at, b.id""",
    "bookings of sheets": "select id, booking_id from staffing.time_log",
    "acts": "select distinct action from staffing.audit_log",
    "messages": "select distinct kind from staffing.notification_log where status = 'Sent'",
}


def record(
    server: str, start: datetime, length: timedelta, *, seed: int = 0, zones: Sequence[str] = ODD_ZONES
) -> Recorded:
    """Simulate the demo, and keep what is to be compared; the scratch database is dropped again."""
    made = Recorded(start, start + length, zones)
    books: list[Books] = []
    connected: list[psycopg.Connection[Any]] = []

    class Read(Sandbox):
        def stop(self) -> None:
            books.append(Books(self.ledger))
            super().stop()

    def tell(entries: Sequence[TimelineEntry]) -> None:
        made.entries.extend(entries)
        if not connected:
            connected.append(psycopg.connect(os.environ["MAINSPRING_DSN"], autocommit=True))
        if uneven := connected[0].execute(UNEVEN).fetchall():
            made.wrong.append(f"{entries[0].at}: money does not add up: {uneven[:3]}")

    def opened() -> Market:
        markets.append(demo(zones))
        return markets[-1]

    began, markets = time.monotonic(), list[Market]()
    with patch("mainspring_sandbox.Sandbox", Read):
        done = simulate(opened, start, made.end, tell, seed=seed, dsn=server, keep=True)
    made.seconds = time.monotonic() - began
    for conn in connected:
        conn.close()
    with psycopg.connect(done.dsn, autocommit=True) as conn:
        database = conn.info.dbname
        made.rows = {name: conn.execute(query.encode()).fetchall() for name, query in ROWS.items()}
        made.wrong += [f"books: {rule}: {rows}" for rule, rows in books[0].broken(conn, settled=False)]
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(SQL("drop database {} with (force)").format(Identifier(database)))
    for market in markets:
        market.desk.close()
    return made


UNEVEN: Final = """
    select booking_id, currency, charged, held, frozen, released, refunded, charged_back from staffing.escrow
    where charged <> held + frozen + released + refunded + charged_back
       or least(charged, held, frozen, released, refunded, charged_back) < 0"""


def check(made: Recorded) -> list[str]:
    """What is not as it must be, in words."""
    return [*made.wrong, *_fires(made), *_sheets(made), *_disputes(made), *_runs(made)]


def _fires(made: Recorded) -> Iterator[str]:
    """Each schedule fires at exactly the instants that the clocks say, and at no other."""
    fired: defaultdict[str, list[tuple[str, datetime]]] = defaultdict(list)
    for entry in made.entries:
        if isinstance(entry, Fired):
            if (entry.how, entry.instants) != ("fired", 1):
                yield f"{entry.schedule} at {entry.at} in {entry.zone}: {entry.how} for {entry.instants} instants"
            fired[entry.schedule].append((entry.zone, entry.at))
    span = made.start, made.end
    wanted = {
        name: [(zone, at) for zone in made.zones for at in instants(zone, *rule, *span)] for name, rule in LOCAL.items()
    }
    wanted |= {name: [("UTC", at) for at in instants("UTC", None, at, *span)] for name, at in DAILY.items()}
    hours = [("UTC", made.start + n * HOUR) for n in range((made.end - made.start) // HOUR)]
    wanted |= dict.fromkeys(HOURLY, hours)
    for name, expected in wanted.items():
        yield from (f"{name} in {zone}: not at {at}" for zone, at in sorted(set(expected) - set(fired[name])))
        yield from (f"{name} in {zone}: at {at}, unasked" for zone, at in sorted(set(fired[name]) - set(expected)))
        if len(fired[name]) != len(set(fired[name])):
            yield f"{name}: twice at an instant"


def _sheets(made: Recorded) -> Iterator[str]:
    """Reminders follow the planned end, the ladder and the approval the submit: none is missing, none is extra."""
    ran = _by_subject(made, "time_log_id")
    moved = {booking for (booking,) in made.rows["moved ends"]}
    unsure = {sheet for sheet, booking in made.rows["bookings of sheets"] if booking in moved}
    for id_, came, left, planned, deadline, extensions, verified_by, verified, disputed in made.rows["sheets"]:
        if id_ not in unsure:
            working = min(left or made.end, made.end)
            for task, at in (("remind_5m", planned + 5 * MINUTE), ("remind_30m", planned + 30 * MINUTE)):
                yield from _at(
                    task, id_, ran, at, due=came <= planned and at < working, undue=at > working or came > planned
                )
        if left is None:
            continue
        if deadline != left + (4 + extensions) * HOUR:
            yield f"sheet {id_}: approves itself at {deadline}, left {left}, {extensions} extensions"
        over = min(at for at in (verified, disputed, made.end) if at is not None)
        for task, at in (("ladder_0", left), ("ladder_60m", left + HOUR), ("ladder_3h", left + 3 * HOUR)):
            yield from _at(task, id_, ran, at, due=at < over, undue=at > over)
        yield from _at("auto_approve", id_, ran, deadline, due=deadline < over, undue=deadline > over)
        if verified_by == "SYSTEM" and disputed is None and verified != deadline:
            yield f"sheet {id_}: verified at {verified}, not at {deadline}"


def _disputes(made: Recorded) -> Iterator[str]:
    ran = _by_subject(made, "dispute_id")
    for id_, filed, resolved in made.rows["disputes"]:
        at, over = filed + 3 * HOUR, min(resolved or made.end, made.end)
        yield from _at("dispute_timeout", id_, ran, at, due=at < over, undue=at > over)


def _runs(made: Recorded) -> Iterator[str]:
    """What a schedule causes runs at its instant; nothing fails where nobody has made anything fail."""
    moved = set(_moved(made))
    ran = _by_subject(made, "booking_id")
    for task, booking, at in sorted(moved):
        if at < made.end and at not in ran.get((task, booking), []):
            yield f"{task} {booking}: not at {at}, to which its cutoff was moved"
    for entry in made.entries:
        if not isinstance(entry, SimulatedAttempt):
            continue
        first = entry.task in CAUSED and entry.attempt == 1 and entry.schedule in LOCAL
        whose = (entry.subject or {}).get("booking_id", 0)
        there = (entry.task, whose, entry.at) in moved
        if entry.task == "warn_unpaid" and entry.state == "deferred":  # who was booked after 10:00 is asked at midnight
            moved.add((entry.task, whose, entry.at + Settings().ask_again))
        if (
            first
            and not there
            and entry.at not in instants(entry.zone, *LOCAL[str(entry.schedule)], made.start, made.end)
        ):
            yield f"{entry.task} by {entry.schedule} in {entry.zone} at {entry.at}"
        if entry.state not in ("succeeded", "deferred"):
            yield f"{entry.task} at {entry.at}: {entry.state}, {entry.error}"


def _moved(made: Recorded) -> Iterator[tuple[str, int, datetime]]:
    """A week that was first charged at its cutoff: cut off at the next midnight there, warned of ten hours before."""
    for booking, zone, at in made.rows["moved cutoffs"]:
        midnight = next(one for one in instants(zone, None, of_day(0), made.start, made.end + 3 * DAY) if one > at)
        yield "cut_off", booking, midnight
        yield "warn_unpaid", booking, midnight - 10 * HOUR


#: The tasks that schedules fire themselves.
CAUSED: Final = frozenset({"charge_week", "warn_unpaid", "cut_off", "begin_digest"})


def _by_subject(made: Recorded, name: str) -> dict[tuple[str, int], list[datetime]]:
    found: defaultdict[tuple[str, int], list[datetime]] = defaultdict(list)
    for entry in made.entries:
        if isinstance(entry, SimulatedAttempt) and entry.subject and name in entry.subject:
            found[entry.task, entry.subject[name]].append(entry.at)
    return found


def _at(
    task: str, id_: int, ran: dict[tuple[str, int], list[datetime]], at: datetime, *, due: bool, undue: bool
) -> Iterator[str]:
    """It runs once and then, or not at all; where its reason ends in the same instant, either."""
    found = ran.get((task, id_), [])
    if (due and found != [at]) or (undue and found) or found not in ([], [at]):
        yield f"{task} {id_}: ran at {[str(one) for one in found]}, expected at {at} {'' if due else 'at the most'}"


def missing(made: Recorded) -> list[str]:
    """What the demo should have shown, and has not."""
    shown = {act for (act,) in made.rows["acts"]}, {kind for (kind,) in made.rows["messages"]}
    return sorted((set(SHOWN.split()) - shown[0]) | (set(TOLD.split()) - shown[1]))


def main(args: Sequence[str] | None = None) -> int:
    """Simulate, compare, and say what is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.apps.staffing.timeline", description=__doc__)
    parser.add_argument("--from", dest="start", type=datetime.fromisoformat, help="one beginning instead of three")
    parser.add_argument("--days", type=int, default=21)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--once", action="store_true", help="do not simulate again to compare the bytes")
    said = parser.parse_args(args)
    logging.disable(logging.ERROR)
    run = RunClusters.join(f"timeline-{uuid4().hex[:8]}")
    try:
        server = run.cluster("memory/18", settings=VOLATILE).dsn("postgres")
        starts = [said.start.replace(tzinfo=UTC)] if said.start else STARTS
        return max(_compared(server, start, said.days * DAY, said.seed, once=said.once) for start in starts)
    finally:
        run.leave()


def _compared(server: str, start: datetime, length: timedelta, seed: int, *, once: bool) -> int:
    made = record(server, start, length, seed=seed)
    about = f"{len(made.entries)} entries, {made.seconds:.0f} s, {made.digest}"
    say(f"{start:%Y-%m-%d}, {length.days} days, seed {seed}: {about}")
    wrong = check(made) + [f"not shown: {what}" for what in missing(made)]
    say(*wrong[:50], f"{len(wrong)} differences")
    if not once:
        same, other = (record(server, start, length, seed=seed + n).digest for n in (0, 1))
        again = ["the same seed gave other bytes"] if same != made.digest else []
        again += ["another seed gave the same bytes"] if other == made.digest else []
        say(*again or ["the same seed gave the same bytes, another seed others"])
        wrong += again
    return bool(wrong)


def say(*lines: str) -> None:
    """Tell who has asked."""
    for line in lines:
        print(line, flush=True)  # noqa: T201 (a command)


if __name__ == "__main__":
    sys.exit(main())
