"""What `mainspring up` shows: what ended, one line each, money that moved, and below it how things stand."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from mainspring.cli import output
from mainspring.errors import DatabaseUnavailable
from mainspring.text.sanitize import mask

if TYPE_CHECKING:
    from mainspring.db.pulse import Pulse
    from mainspring.simulate.timeline import SimulatedAttempt
    from mainspring_sandbox.ledger import LedgerEntry

WatchMode = Literal["jobs", "all", "pulse"]
MoneyFeed: TypeAlias = "Callable[[], Iterable[LedgerEntry]]"  # what has moved since the last time it was asked

MOST_LINES = 12  # lines a second; what goes wrong comes on top
_QUIET_S = 10  # seconds without a line, where nobody can see one that is written over
#: How lines look in a terminal, by where they left their job.
STYLES = {"succeeded": "", "retried": "yellow", "rescued": "yellow", "failed": "bold red", "dead": "bold red"}
#: What the sandbox calls money that moved, or did not.
MOVED = ("charge", "transfer", "refund", "decline", "payout", "top_up")


class Next(msgspec.Struct, frozen=True):
    """The job that comes next."""

    at: datetime
    task: str


class EndedGroup(msgspec.Struct, frozen=True):
    """What ended within a moment: what is shown of it, how much it was, and what comes next."""

    count: int
    entries: list[SimulatedAttempt]
    next: Next | None = None


class Screen:
    """Where lines are printed; in a terminal one below them is written over again and again."""

    def __init__(self, *, silent: bool = False) -> None:
        self._silent = silent
        self._console: Any = None
        if sys.stdout.isatty() and not silent:
            from rich.console import Console

            self._console = Console(highlight=False, markup=False, soft_wrap=True)
        self._has_status = False
        self._said = time.monotonic()

    def say(self, text: str, style: str = "") -> None:
        """A line that stays."""
        if self._silent:
            return
        self.clear()
        self._said = time.monotonic()
        if self._console is not None:
            self._console.print(text, style=style or None)
        else:
            print(text, flush=True)

    def status(self, text: str) -> None:
        """How things stand, until the next line; where it would stay, only if nothing was said for a while."""
        if self._silent:
            return
        if self._console is None:
            if time.monotonic() > self._said + _QUIET_S:
                self.say(text)
            return
        self.clear()
        self._console.print(text[: self._console.width - 1], style="dim", end="")
        self._has_status = True

    def clear(self) -> None:
        """Take away what stands below the lines."""
        if self._has_status:
            print("\r\x1b[K", end="", flush=True)
            self._has_status = False


class Live:
    """Looks once a second, and tells people or machines."""

    def __init__(
        self,
        dsn: str,
        schema: str,
        subjects: Mapping[str, str],
        screen: Screen,
        *,
        watch: WatchMode,
        money: MoneyFeed,
        json: bool,
        fast: bool,
    ) -> None:
        self._dsn, self._schema, self._subjects, self._screen = dsn, schema, subjects, screen
        self._watch, self._money, self._json, self._fast = watch, money, json, fast
        self._done = self._retried = self._dead = 0

    async def run(self) -> None:
        """Until cancelled; a database that is away is waited for."""
        from mainspring.db.jobs import now
        from mainspring.db.pulse import PULSE_LAG, ended, pulse
        from mainspring.db.wire.connect import async_pool
        from mainspring.db.wire.run import async_psycopg_door, run_async
        from mainspring.db.wire.sql import Sql
        from mainspring.db.wire.translate import unavailable

        sql, since, said = Sql(self._schema), None, ""
        async with async_pool(self._dsn, size=1, name="mainspring up") as pool:
            while True:
                try:
                    with unavailable():
                        async with pool.connection() as conn:
                            door = async_psycopg_door(conn)
                            if since is None:
                                since = await run_async(door, now(sql)) - PULSE_LAG
                            else:
                                moment, seen = await run_async(door, pulse(sql, since)), None
                                if self._watch != "pulse":
                                    own = self._watch == "all"
                                    looked = ended(sql, since, moment.until, self._subjects, MOST_LINES, own=own)
                                    seen = _read(await run_async(door, looked))
                                since = moment.until
                                self._tell(moment, seen)
                    said = ""
                except DatabaseUnavailable as error:
                    if str(error) != said:  # once, not every second
                        self._screen.say(said := str(error), "yellow")
                await asyncio.sleep(1)

    def _tell(self, moment: Pulse, seen: EndedGroup | None) -> None:
        from mainspring.simulate.timeline import document, line

        if self._json:
            found: dict[str, Any] = msgspec.to_builtins(moment)
            if seen is not None:
                more = seen.count - len(seen.entries)
                found |= {"entries": [document(entry) for entry in seen.entries], "more": more}
            return print(msgspec.json.encode(found).decode(), flush=True)
        if seen is None:
            return self._screen.say(words(moment, fast=self._fast))
        lines = [(entry.at, output.line(mask(line(entry))), STYLES.get(entry.state, "")) for entry in seen.entries]
        lines += [(one.at, moved(one), "red" if one.kind == "decline" else "green") for one in self._money()]
        for _, text, style in sorted(lines, key=lambda shown: shown[0]):
            self._screen.say(text, style)
        if seen.count > len(seen.entries):
            self._screen.say(f"… and {seen.count - len(seen.entries)} more", "dim")
        self._done += seen.count
        self._retried += moment.retried
        self._dead += moment.dead
        return self._screen.status(self._status_line(moment, seen))

    def _status_line(self, p: Pulse, seen: EndedGroup) -> str:
        """How things stand since the beginning, in one line."""
        counts = {"retried": self._retried, "dead": self._dead, "running": p.running, "waiting": p.ready}
        parts = [f"{self._done:,} done", *(f"{count:,} {name}" for name, count in counts.items() if count)]
        if seen.next is not None:
            parts.append(f"next of {p.later:,}: {seen.next.task} at {clock(seen.next.at, fast=self._fast)}")
        return f"{clock(p.until, fast=self._fast)}  {' · '.join(parts)}"


def _read(text: bytes) -> EndedGroup:
    from mainspring.simulate.timeline import SimulatedAttempt

    found = msgspec.json.decode(text)
    coming = found["next"]
    return EndedGroup(
        found["count"],
        msgspec.convert(found["entries"], list[SimulatedAttempt]),
        coming and msgspec.convert(coming, Next),
    )


def moved(entry: LedgerEntry) -> str:
    """Money that moved, or did not, in one line: how much, for what, and why not.

    >>> from mainspring_sandbox.ledger import Ledger
    >>> told = {"amount": 1250, "currency": "jpy", "metadata": {"booking_id": "17"}, "decline_code": "lost_card"}
    >>> moved(Ledger(clock=lambda: datetime(2026, 6, 3, 14, tzinfo=UTC)).add("decline", "ch_1", told))
    '2026-06-03 14:00:00Z  decline  1250 JPY  booking 17  lost_card'
    """
    from mainspring.contrib.money import Money

    body = entry.body
    ids = {name: value for name, value in (body.get("metadata") or {}).items() if name.endswith("_id")}
    about = ", ".join(f"{name.removesuffix('_id')} {value}" for name, value in ids.items())
    parts = [entry.kind.replace("_", " "), str(Money(body["amount"], body["currency"])), about]
    parts.append(body.get("decline_code") or body.get("code") or "")
    return "  ".join([f"{entry.at.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z", *filter(None, parts)])


def clock(at: datetime, *, fast: bool) -> str:
    """What people compare with: their own clock, or where time is not theirs the day and time of UTC."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M}Z" if fast else f"{at.astimezone():%H:%M:%S}"


def words(p: Pulse, *, fast: bool = False) -> str:
    """A moment in one line."""
    troubles = {"retried": p.retried, "rescued": p.rescued, "failed": p.failed, "dead": p.dead}
    parts = [f"enqueued {p.enqueued:3}", f"started {p.started:3}", f"succeeded {p.succeeded:3}"]
    parts += [f"{name} {count}" for name, count in troubles.items() if count or name in ("retried", "dead")]
    parts += [f"waiting {p.ready} (+{p.later} later)", f"running {p.running}"]
    if p.pickup_ms is not None:
        parts.append(f"picked up after {p.pickup_ms:.0f} ms")
    return f"{clock(p.until, fast=fast)}  {' · '.join(parts)}"
