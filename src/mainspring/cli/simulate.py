"""`mainspring simulate`: move an application through days in seconds, and see what happens when."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated
from zoneinfo import ZoneInfo

from cyclopts import Parameter

from mainspring.cli import output
from mainspring.cli.connection import UNSAID_CONNECTION, load, place_of
from mainspring.cli.spans import TypedSpan
from mainspring.errors import ValidationError
from mainspring.text.span import span

if TYPE_CHECKING:
    from mainspring.app import App
    from mainspring.simulate import Simulated, TimelineEntry

LONGEST_SIMULATION = timedelta(days=3660)
FLAG = Parameter(negative="", show_default=False)


def simulate(
    app: str,
    /,
    *,
    start: Annotated[str | None, Parameter(name="--from", show_default=False)] = None,
    length: Annotated[TypedSpan, Parameter(name="--for", show_default=span)] = timedelta(days=7),
    zone: str = "UTC",
    seed: int = 0,
    dsn: str | None = None,
    keep: Annotated[bool, FLAG] = False,
    maintenance: Annotated[bool, FLAG] = False,
    json: Annotated[bool, FLAG] = False,
) -> None:
    """Run an application's schedules and jobs on a virtual clock, in a scratch database.

    Args:
        app: The application, as module:name, or the name of an installed one.
        start: Where time begins, such as 2026-03-25 or 2026-03-25T10:00; else today.
        length: How long it lasts, such as 8d or 36h.
        zone: The zone of --from, and of the local times of what no schedule with a zone of its own has caused.
        seed: What everything random comes from: the same seed gives the same time line.
        dsn: A server on which to make the scratch database; else one of its own in memory.
        keep: Keep the scratch database, and say where it is; without --dsn on the server that other commands find.
        maintenance: Fire the built-in schedules, too, and show them and the sweeps.
        json: Print one JSON object a line, the totals last.
    """
    from mainspring.simulate import simulate as run
    from mainspring.when.zones import check_zone

    check_zone(zone)
    if not timedelta(0) < length <= LONGEST_SIMULATION:
        raise ValidationError("for: is not a time span up to 10 years", field="for")
    begin = instant(start, zone)
    if keep and dsn is None:
        dsn = UNSAID_CONNECTION.address(None)
    check_app(app)
    teller = _JsonOutput() if json else _TextOutput(own=maintenance)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what Ctrl-C cleans up, this does too

    def loaded() -> App:
        found = load(app)
        teller.begin(app, begin, begin + length, seed)
        return found

    done = run(
        loaded, begin, begin + length, teller.tell,
        seed=seed, zone=zone, dsn=dsn, keep=keep, maintenance=maintenance,
    )  # fmt: skip
    teller.end(done, keep)


def instant(text: str | None, zone: str) -> datetime:
    """A date or time that somebody typed, in a zone unless it says its own."""
    try:
        here = ZoneInfo(zone)
        if text is None:
            return datetime.now(here).replace(hour=0, minute=0, second=0, microsecond=0).astimezone(UTC)
        at = datetime.fromisoformat(text)
        at = (at if at.tzinfo else at.replace(tzinfo=here)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValidationError("from: is not a time, such as 2026-03-25 or 2026-03-25T10:00", field="from") from None
    if not 1970 <= at.year < 2190:
        raise ValidationError("from: is not between 1970 and 2190", field="from")
    return at


def check_app(app: str) -> None:
    """Complain about an application that is not there before a database is made for it."""
    module, _, name = place_of(app).partition(":")
    top = module.partition(".")[0]
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    if not name or (top not in sys.modules and importlib.util.find_spec(top or ".") is None):
        load(app)


class _TextOutput:
    """Tells it to people: a line for each thing that happened, then the totals."""

    def __init__(self, *, own: bool = False) -> None:
        self._own = own
        self._busy = sys.stderr.isatty() and not sys.stdout.isatty()
        self._told, self._count = time.monotonic(), 0

    def begin(self, app: str, start: datetime, end: datetime, seed: int) -> None:
        output.say(
            f"{app} from {start:%Y-%m-%d %H:%M}Z to {end:%Y-%m-%d %H:%M}Z ({span(end - start)}), seed {seed}", ""
        )

    def tell(self, entries: Sequence[TimelineEntry]) -> None:
        from mainspring.simulate.timeline import line, merged

        output.say(*map(line, merged(entries, own=self._own)))
        self._progress(entries)

    def end(self, done: Simulated, kept: bool) -> None:
        output.say("", *done.totals.lines())
        if kept:
            output.say(f"kept: {done.dsn}")

    def _progress(self, entries: Sequence[TimelineEntry]) -> None:
        self._count += len(entries)
        if self._busy and time.monotonic() > self._told + 0.5:
            self._told = time.monotonic()
            print(f"\r{entries[-1].at:%Y-%m-%d} {self._count:,}", end="\r", file=sys.stderr, flush=True)


class _JsonOutput(_TextOutput):
    """Tells it to machines."""

    def begin(self, app: str, start: datetime, end: datetime, seed: int) -> None:
        """Nothing: a line is an object that happened, and the last is what they come to."""

    def tell(self, entries: Sequence[TimelineEntry]) -> None:
        from mainspring.simulate.timeline import document

        for entry in entries:
            output.as_json(document(entry), compact=True)
        self._progress(entries)

    def end(self, done: Simulated, kept: bool) -> None:
        output.as_json(done.totals, compact=True)
        if kept:
            output.as_json({"kind": "kept", "dsn": done.dsn}, compact=True)
