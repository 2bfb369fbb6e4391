"""What happened in a simulation, one line each, and what it comes to. Pure: the same entries give the same bytes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from mainspring.events import subject_of
from mainspring.job import DEFAULT_ORG, SYSTEM
from mainspring.when.fire import FireKind

MOST_PAYLOAD_IDS = 2  # who else is in a payload is no news
WEEK = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")  # whatever language an application sets


class Fired(msgspec.Struct, frozen=True, kw_only=True, tag="fire", tag_field="kind", omit_defaults=True):
    """An instant of a schedule: it fired, or says why not."""

    at: datetime
    zone: str
    schedule: str
    org: str
    how: FireKind
    reason: str | None = None
    instants: int = 1  # that this one stands for, after others were missed
    job_id: UUID | None = None


class SimulatedAttempt(msgspec.Struct, frozen=True, kw_only=True, tag="attempt", tag_field="kind", omit_defaults=True):
    """One attempt of a job, and where it left the job."""

    at: datetime
    zone: str
    task: str
    org: str
    job_id: UUID
    attempt: int
    state: str
    schedule: str | None = None
    follows: bool = False  # a job that it enqueued, or one after that
    subject: dict[str, Any] | None = None
    key: str | None = None
    error: str | None = None
    due_at: datetime | None = None  # when it runs again


TimelineEntry = Fired | SimulatedAttempt


class Totals(msgspec.Struct, frozen=True, kw_only=True, tag="totals", tag_field="kind", omit_defaults=True):
    """What it comes to: attempts by task and where they left their job, fires by schedule and what became of them.

    `sandbox` is what the stand-ins for providers were asked, by its kind: charges, mails.
    """

    until: datetime
    attempts: dict[str, dict[str, int]]
    fires: dict[str, dict[str, int]]
    waiting: int  # jobs that are due later than the end
    sandbox: dict[str, int] = {}

    def lines(self) -> Iterator[str]:
        """The same for people."""
        for title, counts in (("attempts", self.attempts), ("fires", self.fires)):
            whole = sum(sum(by.values()) for by in counts.values())
            yield f"{title}: {whole}"
            width = max(map(len, counts), default=0)
            for name, by in counts.items():
                yield f"  {name:{width}}  " + ", ".join(f"{count} {what}" for what, count in by.items())
        if self.sandbox:
            yield "sandbox: " + ", ".join(f"{count} {kind}" for kind, count in self.sandbox.items())
        yield f"waiting at the end: {self.waiting}"


class Tally:
    """Counts as entries come, so that a long simulation holds no more than it prints."""

    def __init__(self) -> None:
        self._attempts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._fires: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def __bool__(self) -> bool:
        return bool(self._attempts or self._fires)

    def add(self, entries: Iterable[TimelineEntry]) -> None:
        """Count what happened."""
        for entry in entries:
            if isinstance(entry, SimulatedAttempt):
                self._attempts[entry.task][entry.state] += 1
            else:
                self._fires[entry.schedule][entry.how] += 1

    def totals(self, until: datetime, waiting: int, sandbox: dict[str, int]) -> Totals:
        """What it has come to."""
        return Totals(
            until=until, attempts=_sorted(self._attempts), fires=_sorted(self._fires), waiting=waiting, sandbox=sandbox
        )


def _sorted(counts: dict[str, Counter[str]]) -> dict[str, dict[str, int]]:
    return {name: dict(sorted(by.items())) for name, by in sorted(counts.items())}


def line(entry: TimelineEntry) -> str:
    """An entry for people: UTC, local time, what, for whom, and what came of it.

    Whose it is goes without saying where there is one organisation, and so does what followed from a schedule's job.

    >>> line(Fired(at=datetime(2026, 3, 29, 1, tzinfo=UTC), zone="Europe/Berlin", schedule="report", org="default",
    ...            how="skipped", reason="the last one still runs"))
    '2026-03-29 01:00:00Z  Sun 03:00:00+02:00 Europe/Berlin  report  skipped: the last one still runs'
    """
    local = _local(entry)
    day, offset = WEEK[local.weekday()], f"{local:%z}"
    when = (
        f"{entry.at.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z  {day} {local:%H:%M:%S}{offset[:3]}:{offset[3:5]} {entry.zone}"
    )
    if isinstance(entry, Fired):
        many = f" for {entry.instants} instants" if entry.instants > 1 else ""
        parts = [entry.schedule, _org(entry), f"{entry.how.replace('_', ' ')}{many}" + _because(entry.reason)]
    else:
        what = f"{entry.schedule}: {entry.task}" if entry.schedule and not entry.follows else entry.task
        number = f" at attempt {entry.attempt}" if entry.attempt > 1 else ""
        again = f", again {entry.due_at.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z" if entry.due_at else ""
        parts = [what, _org(entry), _whom(entry), f"{entry.state}{number}{again}" + _because(entry.error)]
    return "  ".join([when, *filter(None, parts)])


def document(entry: TimelineEntry) -> dict[str, Any]:
    """An entry for machines: its fields, and the local time."""
    found: dict[str, Any] = msgspec.to_builtins(entry)
    return found | {"local": _local(entry).isoformat(timespec="seconds")}


def ids_of(payload: str, field: str | None) -> dict[str, Any] | None:
    """Whom a job is about: the field that its task names, and a number or two in fields such as `booking_id`.

    >>> ids_of('{"shift_id": 7, "at": "10:00", "booking_id": 17}', "booking_id")
    {'booking_id': 17, 'shift_id': 7}
    """
    found = subject_of(payload, field) or {}
    try:
        known = msgspec.json.decode(payload, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError):  # put in by hand: its own attempt says what is wrong
        return found or None
    numbers = {name: id_ for name, id_ in sorted(known.items()) if name.endswith("_id") and type(id_) is int}
    return dict(list((found | numbers).items())[:MOST_PAYLOAD_IDS]) or None


def merged(entries: Iterable[TimelineEntry], *, own: bool = False) -> Iterator[TimelineEntry]:
    """The entries of one instant for people: what goes without saying is left out.

    That is the fire of a job that ran at once, or that stands for jobs of entities, each of which has a line; and jobs
    of the engine's `own`, such as sweeps, that went well.
    """
    entries = list(entries)
    ran = {entry.job_id for entry in entries if isinstance(entry, SimulatedAttempt)} | {None}
    for entry in entries:
        if isinstance(entry, SimulatedAttempt):
            said = own or entry.org != SYSTEM or entry.state != "succeeded"
        else:
            said = entry.how != "fired" or entry.instants > 1 or entry.job_id not in ran
        if said:
            yield entry


def _local(entry: TimelineEntry) -> datetime:
    try:
        return entry.at.astimezone(ZoneInfo(entry.zone))
    except (OSError, ValueError, KeyError):  # what a job says of itself may be anything
        return entry.at.astimezone(UTC)


def _org(entry: TimelineEntry) -> str:
    return "" if entry.org == DEFAULT_ORG else entry.org


def _whom(entry: SimulatedAttempt) -> str:
    """Fields as people say them: `booking_id` 17 is booking 17."""
    if entry.subject:
        said = ((name.removesuffix("_id").replace("_", " "), value) for name, value in entry.subject.items())
        return ", ".join(f"{name} {value}" for name, value in said)
    return entry.key or ""


def _because(why: str | None) -> str:
    return f": {why}" if why else ""
