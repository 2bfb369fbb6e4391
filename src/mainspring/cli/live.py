"""What `mainspring up` says every second: what ended, one line each, and the pulse."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from datetime import UTC
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from mainspring.errors import DatabaseUnavailable

if TYPE_CHECKING:
    from mainspring.db.pulse import Pulse
    from mainspring.simulate.timeline import Ran

Seen: TypeAlias = "tuple[list[Ran], int]"  # what is shown of what ended, and how much is not

MOST = 12  # lines a second; what goes wrong comes on top
#: How lines look in a terminal, by where they left their job.
STYLES = {"succeeded": "", "retrying": "yellow", "rescued": "yellow", "failed": "bold red", "dead": "bold red"}


class Live:
    """Looks once a second, and tells people or machines."""

    def __init__(
        self, dsn: str, schema: str, subjects: Mapping[str, str], *, jobs: bool, json: bool, fast: bool
    ) -> None:
        self._dsn, self._schema, self._subjects = dsn, schema, subjects
        self._jobs, self._json, self._fast = jobs, json, fast
        self._print = _printer() if not json else print

    async def run(self) -> None:
        """Until cancelled; a database that is away is waited for."""
        from mainspring.db.connect import async_pool
        from mainspring.db.jobs import now
        from mainspring.db.pulse import LAG, ended, pulse
        from mainspring.db.run import async_psycopg_door, run_async
        from mainspring.db.schema import Sql
        from mainspring.db.translate import unavailable

        sql, since = Sql(self._schema), None
        async with async_pool(self._dsn, size=1, name="mainspring up") as pool:
            while True:
                try:
                    with unavailable():
                        async with pool.connection() as conn:
                            door = async_psycopg_door(conn)
                            if since is None:
                                since = await run_async(door, now(sql)) - LAG
                            else:
                                moment, seen = await run_async(door, pulse(sql, since)), None
                                if self._jobs:
                                    looked = ended(sql, since, moment.until, self._subjects, MOST)
                                    seen = _read(await run_async(door, looked))
                                since = moment.until
                                self._tell(moment, seen)
                except DatabaseUnavailable as error:
                    if not self._json:
                        print(error, flush=True)
                await asyncio.sleep(1)

    def _tell(self, moment: Pulse, seen: Seen | None) -> None:
        from mainspring.simulate.timeline import document, line

        if self._json:
            found: dict[str, Any] = msgspec.to_builtins(moment)
            if seen is not None:
                found |= {"entries": [document(entry) for entry in seen[0]], "more": seen[1]}
            return self._print(msgspec.json.encode(found).decode())
        if seen is not None:
            entries, more = seen
            for entry in entries:
                self._print(line(entry), STYLES.get(entry.state, ""))
            if more:
                self._print(f"… and {more} more", "dim")
        return self._print(words(moment, fast=self._fast), "dim" if self._jobs else "")


def _read(text: bytes) -> Seen:
    from mainspring.simulate.timeline import Ran

    found = msgspec.json.decode(text)
    entries = msgspec.convert(found["entries"], list[Ran])
    return entries, found["count"] - len(entries)


def words(p: Pulse, *, fast: bool = False) -> str:
    """A moment in one line."""
    troubles = {"retried": p.retried, "rescued": p.rescued, "failed": p.failed, "dead": p.dead}
    parts = [f"enqueued {p.enqueued:3}", f"started {p.started:3}", f"succeeded {p.succeeded:3}"]
    parts += [f"{name} {count}" for name, count in troubles.items() if count or name in ("retried", "dead")]
    parts += [f"waiting {p.ready} (+{p.later} later)", f"running {p.running}"]
    if p.pickup_ms is not None:
        parts.append(f"picked up after {p.pickup_ms:.0f} ms")
    when = f"{p.until.astimezone(UTC):%Y-%m-%d %H:%M}Z" if fast else f"{p.until.astimezone():%H:%M:%S}"
    return f"{when}  {' · '.join(parts)}"


def _printer() -> Callable[..., None]:
    """Prints a line, in a terminal with a style."""
    if not sys.stdout.isatty():
        return lambda text, _style="": print(text, flush=True)
    from rich.console import Console

    console = Console(highlight=False, markup=False, soft_wrap=True)
    return lambda text, style="": console.print(text, style=style or None)
