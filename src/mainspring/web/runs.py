"""The run endpoint: a call runs what is due, for machines without a worker, and for kicks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextvars import Context
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mainspring.app import RUN_BUDGET
from mainspring.checks import check_number, check_span
from mainspring.errors import ConfigurationError, MainspringError
from mainspring.text.span_field import SpanField
from mainspring.web.answers import Json, refusal, unauthorized
from mainspring.web.backend import Backend
from mainspring.worker.run_due import MOST_RUN_DUE, RUN_DUE_JOBS, RunDue, Summary

log = logging.getLogger("mainspring.web")

AT_ONCE = 4  # runs; whoever else calls is told what remains
GIVE_BACK_S = 10.0  # seconds for jobs that were given back to be written


@dataclass(frozen=True)
class Run:
    """An address that runs what is due, for callers that show the secret: put it among the routes of `App`.

    ::

        app = ms.App(tasks, dsn=dsn, routes=[Run("/api/cron/run-orders", queues=["orders"])])

    `token` accepts the secret as `?token=` too: addresses are logged by every proxy, so the header is better.
    """

    path: str = "/v1/run"
    queues: Sequence[str] | None = None
    limit: int = RUN_DUE_JOBS
    budget: SpanField = SpanField(RUN_BUDGET)
    concurrency: int = 1
    token: bool = False

    def __post_init__(self) -> None:
        if not self.path.startswith("/") or "{" in self.path or self.path.endswith("/"):
            raise ConfigurationError("path: is not of the form /a/b")
        try:
            check_number("limit", self.limit, 1, MOST_RUN_DUE)
            check_number("concurrency", self.concurrency, 1, 1000)
            check_span("budget", self.budget)
        except MainspringError as error:
            raise ConfigurationError(str(error)) from None


class RunsUnderWay:
    """The runs under way. They belong to this process, not to their callers: who hangs up aborts nothing."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._under_way: dict[asyncio.Task[Summary], RunDue] = {}
        self._closing = False

    def route(self, run: Run) -> Route:
        """The address of a run."""

        async def answer(request: Request) -> Response:
            return await self._answer(run, request)

        return Route(run.path, answer, methods=["POST", "GET"])

    async def _answer(self, run: Run, request: Request) -> Response:
        if not self._backend.trusts(request, token=run.token):
            log.warning("run refused: the secret is missing or wrong", extra={"action": "refuse"})
            return unauthorized()
        if request.method == "HEAD":  # it came with GET, but promises to change nothing
            return refusal(405, "METHOD_NOT_ALLOWED", "Method Not Allowed.", {"allow": "POST, GET"})
        if self._closing:
            return refusal(503, "STOPPING", "This process stops; call again.")
        due = self._due(run)
        if len(self._under_way) >= AT_ONCE:
            async with self._backend.connection() as conn:
                as_of, remaining = await due.remaining(conn)
            return _reply(0, remaining, as_of)
        summary = await asyncio.shield(self._begin(due, run.budget))
        return _reply(summary.processed, summary.remaining, summary.as_of)

    def _due(self, run: Run) -> RunDue:
        app = self._backend.app
        about = app.worker_options() | {"observers": self._backend.observers}
        dsn, registry = app.dsn, app.registry
        return RunDue(dsn, registry, limit=run.limit, concurrency=run.concurrency, queues=run.queues, **about)

    def _begin(self, due: RunDue, budget: timedelta) -> asyncio.Task[Summary]:
        # In a context of its own: what it fires and runs is not for the request that came by.
        task = asyncio.get_running_loop().create_task(due.once(budget), context=Context())
        self._under_way[task] = due
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Summary]) -> None:
        del self._under_way[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("a run failed: %s", error)

    def open(self) -> None:
        """Take calls."""
        self._closing = False

    async def close(self, grace: timedelta) -> None:
        """Claim nothing more; what runs may end, up to the grace period, and is given back after it."""
        self._closing = True
        for seconds in (grace.total_seconds(), GIVE_BACK_S):
            for due in self._under_way.values():
                due.request_stop()
            if self._under_way:
                await asyncio.wait(list(self._under_way), timeout=seconds)


def _reply(processed: int, remaining: int, as_of: datetime) -> Response:
    as_of = as_of.astimezone(UTC)
    return Json({"ok": True, "processed": processed, "remainingPending": remaining, "asOfUtc": as_of})
