"""What happened in a simulation, one line each, and what it comes to. Pure: the same entries give the same bytes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

WEEK = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")  # whatever language an application sets
How = Literal["fired", "skipped", "missed", "run_now"]


class Fired(msgspec.Struct, frozen=True, kw_only=True, tag="fire", tag_field="kind", omit_defaults=True):
    """An instant of a schedule: it fired, or says why not."""

    at: datetime
    zone: str
    schedule: str
    org: str
    how: How
    reason: str | None = None
    instants: int = 1  # that this one stands for, after others were missed
    job_id: UUID | None = None


class Ran(msgspec.Struct, frozen=True, kw_only=True, tag="attempt", tag_field="kind", omit_defaults=True):
    """One attempt of a job, and where it left the job."""

    at: datetime
    zone: str
    task: str
    org: str
    job_id: UUID
    attempt: int
    state: str
    schedule: str | None = None
    subject: dict[str, Any] | None = None
    key: str | None = None
    error: str | None = None
    due_at: datetime | None = None  # when it runs again


Entry = Fired | Ran


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

    def add(self, entries: Iterable[Entry]) -> None:
        """Count what happened."""
        for entry in entries:
            if isinstance(entry, Ran):
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


def line(entry: Entry) -> str:
    """An entry for people: UTC, local time, what, for whom, and what came of it.

    >>> line(Fired(at=datetime(2026, 3, 29, 1, tzinfo=UTC), zone="Europe/Berlin", schedule="report", org="default",
    ...            how="skipped", reason="the last one still runs"))
    '2026-03-29 01:00:00Z  Sun 03:00:00+02:00 Europe/Berlin  report  default  skipped: the last one still runs'
    """
    local = _local(entry)
    day, offset = WEEK[local.weekday()], f"{local:%z}"
    when = (
        f"{entry.at.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z  {day} {local:%H:%M:%S}{offset[:3]}:{offset[3:5]} {entry.zone}"
    )
    if isinstance(entry, Fired):
        many = f" for {entry.instants} instants" if entry.instants > 1 else ""
        parts = [entry.schedule, entry.org, f"{entry.how.replace('_', ' ')}{many}" + _because(entry.reason)]
    else:
        what = f"{entry.schedule}: {entry.task}" if entry.schedule else entry.task
        number = f" at attempt {entry.attempt}" if entry.attempt > 1 else ""
        again = f", again {entry.due_at.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z" if entry.due_at else ""
        parts = [what, entry.org, _whom(entry), f"{entry.state}{number}{again}" + _because(entry.error)]
    return "  ".join([when, *filter(None, parts)])


def document(entry: Entry) -> dict[str, Any]:
    """An entry for machines: its fields, and the local time."""
    found: dict[str, Any] = msgspec.to_builtins(entry)
    return found | {"local": _local(entry).isoformat(timespec="seconds")}


def merged(entries: Iterable[Entry]) -> Iterator[Entry]:
    """The entries of one instant for people: the fire of a job that ran at once goes without saying."""
    entries = list(entries)
    ran = {entry.job_id for entry in entries if isinstance(entry, Ran)}
    for entry in entries:
        if not (isinstance(entry, Fired) and entry.how == "fired" and entry.instants == 1 and entry.job_id in ran):
            yield entry


def _local(entry: Entry) -> datetime:
    return entry.at.astimezone(ZoneInfo(entry.zone))


def _whom(entry: Ran) -> str:
    if entry.subject:
        return ", ".join(f"{name}={value}" for name, value in entry.subject.items())
    return entry.key or ""


def _because(why: str | None) -> str:
    return f": {why}" if why else ""
