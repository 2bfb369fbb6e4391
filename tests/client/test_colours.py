"""One verb, two colours: the same names, signatures and documentation, and the same work done in either."""

from __future__ import annotations

import inspect
import pydoc
from collections.abc import Iterator
from typing import Any, get_type_hints

import pytest
from tests.databases import Database

import mainspring as ms
from mainspring.client import Async, AsyncClient, Blocking, Client, Sync, Verbs, Work, verb
from mainspring.client.colour import Query, Wait
from mainspring.contrib.webhooks.deliveries import AsyncDeliveries, Deliveries
from mainspring.contrib.webhooks.endpoints import AsyncEndpoints, Endpoints
from mainspring.db.wire.statement import Dialogue, Statement, ask, scalar

ROOMS = ["alerts", "audit", "batches", "breakers", "dead", "limits", "quarantine", "schedules", "timers"]


@pytest.fixture
def rooms(database: Database) -> Iterator[list[tuple[type, type]]]:
    """Each class of verbs, in both colours."""
    async_client = AsyncClient(database.dsn)
    with Client(database.dsn) as client:
        pairs = [(type(getattr(client, name)), type(getattr(async_client, name))) for name in ROOMS]
        yield [(Client, AsyncClient), *pairs, (Endpoints, AsyncEndpoints), (Deliveries, AsyncDeliveries)]


def verbs(kind: type) -> dict[str, Any]:
    return {name: value for name, value in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}


def test_both_colours_have_the_same_verbs_with_the_same_signature_and_documentation(
    rooms: list[tuple[type, type]],
) -> None:
    seen = 0
    for sync, awaited in rooms:
        plain, coroutines = verbs(sync), verbs(awaited)
        assert plain.keys() == coroutines.keys()
        for name in plain:
            seen += 1
            assert inspect.getdoc(plain[name])
            assert inspect.getdoc(plain[name]) == inspect.getdoc(coroutines[name])
            assert inspect.signature(plain[name]) == inspect.signature(coroutines[name])
            assert "Work[" not in str(inspect.signature(plain[name]))
            assert (inspect.iscoroutinefunction(plain[name]), inspect.iscoroutinefunction(coroutines[name])) == (0, 1)
    assert seen > 75


def test_help_shows_a_verb_as_a_plain_method() -> None:
    lines = pydoc.plain(pydoc.render_doc(ms.Client.prioritize)).splitlines()

    assert lines[2:] == [
        "prioritize(self, job: 'Id', priority: 'int', *, reason: 'str | None' = None, org: 'str | None' = None, "
        "conn: 'Any' = None) -> 'int'",
        "    Change the priority of a job that waits and return the old one.",
    ]
    assert pydoc.plain(pydoc.render_doc(ms.AsyncClient.prioritize)).splitlines()[2].startswith("async prioritize(self")
    assert get_type_hints(ms.Client.prioritize)["return"] is int
    assert pydoc.plain(pydoc.render_doc(ms.Client.enqueue)).splitlines()[-1].strip().startswith("Enqueue one job;")


def _add(a: int, b: int) -> Dialogue[Any]:
    return (yield from ask(Statement("select %(a)s::int + %(b)s::int", {"a": a, "b": b}, scalar)))


class SumVerbs(Verbs):
    """Sums, by every part that work has."""

    @verb
    def add(self, a: int, b: int, *, conn: Any = None) -> Work[list[int]]:
        """Add, in three ways."""
        found = [(yield from self.seam.ask(_add(a, b), conn)), (yield Blocking(lambda: a + b))]
        yield Wait(0)
        return [*found, (yield Query(_add(a, b), conn, True))]

    @verb
    def fail(self) -> Work[str]:
        """Go on after an error; a second one is the caller's."""
        try:
            yield Blocking(lambda: 1 // 0)
        except ZeroDivisionError as error:
            said = str(error)
        yield Blocking(lambda: [][0])
        return said


class Sums(SumVerbs, Sync):
    """Sums, for sync code."""


class AsyncSums(SumVerbs, Async):
    """Sums, for async code."""


def test_a_verb_of_a_block_does_its_work_in_sync_code(database: Database) -> None:
    with Client(database.dsn) as client:
        assert Sums(client).add(3, 4) == [7, 7, 7]
        with database.connect() as conn, conn.transaction():
            assert Sums(client).add(3, b=4, conn=conn) == [7, 7, 7]
        with pytest.raises(IndexError):  # the first error was handled by the verb itself
            Sums(client).fail()


@pytest.mark.anyio
async def test_the_same_verb_does_its_work_in_async_code(database: Database) -> None:
    async with AsyncClient(database.dsn) as client:
        assert await AsyncSums(client).add(3, 4) == [7, 7, 7]
        with pytest.raises(IndexError):
            await AsyncSums(client).fail()
