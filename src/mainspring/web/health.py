"""Whether this process lives, and whether it can work."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Sequence
from typing import Any, Literal

import psycopg
from starlette.requests import Request
from starlette.responses import Response

from mainspring.app import App
from mainspring.db.schema.status import check, status
from mainspring.db.wire.connect import Connection, options
from mainspring.db.wire.sql import Sql
from mainspring.declare.block import Check
from mainspring.errors import ConfigurationError, DatabaseUnavailable, SchemaError
from mainspring.web.answers import RETRY_AFTER, Json

log = logging.getLogger("mainspring.web")

PROBE_PATIENCE_S = 2.0  # seconds for a probe
ANSWER_KEPT_S = 1.0  # seconds that an answer is good for: a flood of questions asks the database once

HealthState = Literal["ok", "degraded", "unavailable"]


async def live(_: Request) -> Response:
    """The process answers; it asks nobody."""
    return Json({"status": "live"})


class Ready:
    """Whether the database, its schema, and what the blocks need are well.

    An answer names what is not well, and nothing else: why is for the log.
    """

    def __init__(self, app: App, checks: Sequence[Check] = ()) -> None:
        names = ["database", "schema", *(one.name for one in checks)]
        for name in names:
            if names.count(name) > 1:
                raise ConfigurationError(f"checks: two are called {name}")
        self._database, self._checks = DatabaseProbe(app), checks
        self._until = 0.0
        self._looking: asyncio.Task[dict[str, HealthState]] | None = None
        self._seen: dict[str, HealthState] = {}

    async def answer(self, _: Request) -> Response:
        """Answer 200 when it can work, perhaps degraded, else 503."""
        if self._looking is None or (self._looking.done() and time.monotonic() >= self._until):
            self._looking = asyncio.create_task(self._look())
        found = await asyncio.shield(self._looking)
        states = set(found.values())
        state = "unavailable" if "unavailable" in states else "degraded" if "degraded" in states else "ready"
        away = state == "unavailable"
        headers = {"retry-after": RETRY_AFTER} if away else {}
        return Json({"status": state, "checks": found}, status_code=503 if away else 200, headers=headers)

    async def _look(self) -> dict[str, HealthState]:
        database, *others = await asyncio.gather(
            self._within(self._database.ask()), *(self._within(one.probe()) for one in self._checks)
        )
        unfit = isinstance(database, SchemaError)
        found = {"database": self._state("database", None if unfit else database, required=True)}
        found["schema"] = self._state("schema", database, required=True)
        for one, error in zip(self._checks, others, strict=True):
            found[one.name] = self._state(one.name, error, required=one.required)
        self._until = time.monotonic() + ANSWER_KEPT_S
        return found

    async def _within(self, probe: Awaitable[Any]) -> BaseException | None:
        """What a probe raised; one that does not end in time is left behind, so that it delays nobody."""
        task = asyncio.ensure_future(probe)
        await asyncio.wait([task], timeout=PROBE_PATIENCE_S)
        if task.done():
            return asyncio.CancelledError() if task.cancelled() else task.exception()
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # nobody is left to be told
        task.cancel()
        return TimeoutError(f"no answer within {PROBE_PATIENCE_S:g} s")

    def _state(self, name: str, error: BaseException | None, *, required: bool) -> HealthState:
        state: HealthState = "ok" if error is None else "unavailable" if required else "degraded"
        if state != self._seen.get(name, "ok"):  # said once, not at every look
            level = logging.INFO if error is None else logging.WARNING
            log.log(level, "readiness: %s is %s%s", name, state, f": {error}" if error else "")
        self._seen[name] = state
        return state


class DatabaseProbe:
    """Asks the database whether it takes writes and has the expected schema, by a connection that is closed at once."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._thread: asyncio.Future[None] | None = None

    async def ask(self) -> None:
        """Return if it is well."""
        if self._thread is not None and not self._thread.done():
            raise DatabaseUnavailable("the last question is still unanswered")
        self._thread = asyncio.ensure_future(asyncio.to_thread(self._ask))
        try:
            await asyncio.shield(self._thread)
        except asyncio.CancelledError:  # it took too long, and ends soon
            self._thread.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            raise

    def _ask(self) -> None:
        app = self._app
        given = options(app.dsn, "mainspring ready") | {"connect_timeout": 2, "answered_within": PROBE_PATIENCE_S}
        conn: psycopg.Connection[Any]
        with Connection.connect(app.dsn, **given) as conn:
            if conn.execute(Sql(app.schema)["writable"]).fetchone() != (True,):
                raise DatabaseUnavailable("the database takes no writes")
            check(status(conn, schema=app.schema))
