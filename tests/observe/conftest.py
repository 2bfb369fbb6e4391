from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import psycopg
import pytest
import sentry_sdk
from psycopg.rows import TupleRow
from tests.databases import Database
from tests.worker.stage import SETTINGS, Stage

from mainspring import AsyncClient, Registry, WorkerConfig
from mainspring.events import Event, JobEvent, Observer
from mainspring.worker import Worker


class Heard:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.batches: list[list[Event]] = []

    def __call__(self, batch: Sequence[Event]) -> None:
        self.batches.append(list(batch))

    @property
    def events(self) -> list[Event]:
        return [event for batch in self.batches for event in batch]

    def names(self, job: Any = None) -> list[str]:
        """The names of events in order; of one job, or of all jobs."""
        jobs = [event for event in self.events if isinstance(event, JobEvent)]
        return [event.name for event in jobs if job is None or event.job_id == job]

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


class Theatre(Stage):
    """A stage whose workers are watched."""

    def __init__(self, database: Database, conn: psycopg.Connection[TupleRow], client: AsyncClient) -> None:
        super().__init__(database, conn, client)
        self.heard = Heard()
        self.observers: list[Observer] = [self.heard]
        self.trace: Any = None

    def worker(self, registry: Registry, *, authorize: Any = None, **settings: Any) -> Worker:
        return Worker(
            self.dsn,
            registry,
            config=WorkerConfig(**(SETTINGS | settings)),
            authorize=authorize,
            observers=self.observers,
            trace=self.trace,
        )


@pytest.fixture
async def stage(database: Database) -> AsyncIterator[Theatre]:
    with database.connect() as conn:
        async with AsyncClient(database.dsn) as client:
            yield Theatre(database, conn, client)
            await asyncio.sleep(0)


@pytest.fixture
def tasks() -> Registry:
    return Registry("test")


@pytest.fixture
def sent() -> Iterator[list[dict[str, Any]]]:
    """Sentry without a network: what would have been sent."""
    events: list[dict[str, Any]] = []

    def keep(event: Any, hint: Any) -> None:
        events.append(event)

    # Its integrations patch Starlette and others for the rest of the process, in tests that know nothing of Sentry.
    alone: dict[str, Any] = {"default_integrations": False, "auto_enabling_integrations": False}
    sentry_sdk.init(dsn="https://key@127.0.0.1/1", before_send=keep, **alone)
    yield events
    sentry_sdk.get_client().close()
    sentry_sdk.init(**alone)
