"""Each benchmark runs, with a handful of jobs: what it measures is the business of `make bench`."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

import pytest
from tests.databases import fresh_database

import bench
import mainspring as ms
from bench import claims, floor, limits, observed, ours, pickup
from mainspring.embedded import Cluster

pytestmark = pytest.mark.anyio

PARTS = sorted(path.stem for path in Path(str(bench.__file__)).parent.glob("*.py") if path.stem != "__init__")
Piece: TypeAlias = Callable[[str], Awaitable[float]]


@pytest.fixture(scope="module")
def dsn(volatile_cluster: Cluster) -> Iterator[str]:
    """With real time, as benchmarks have it. Ours, and beside it what they compare us with."""
    with fresh_database(volatile_cluster, migrated=False) as database:
        yield database.dsn


@pytest.fixture(scope="module")
def limited(volatile_cluster: Cluster) -> Iterator[str]:
    """Who sets a limit leaves a line in the audit trail, which nobody can clear away: these install the schema anew."""
    with fresh_database(volatile_cluster, migrated=False) as database:
        yield database.dsn


@pytest.mark.parametrize("name", [name for name in PARTS if name != "peers"])
def test_every_part_finds_what_it_imports(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bench.peers", ModuleType("bench.peers"))  # installed by `make bench` only
    monkeypatch.setattr(bench, "peers", sys.modules["bench.peers"], raising=False)

    assert import_module(f"bench.{name}").__doc__


PIECES: dict[str, Piece] = {
    "drain": lambda dsn: ours.drain(dsn, 20),
    "drain of the floor": lambda dsn: floor.drain(dsn, 20),
    "transactional drain": lambda dsn: ours.transactional_drain(dsn, 20),
    "transactional drain of the floor": lambda dsn: floor.transactional_drain(dsn, 20, 2),
    "observed drain": lambda dsn: observed.drain(dsn, 20),
    "bulk enqueue": lambda dsn: ours.bulk_enqueue(dsn, 20),
    "bulk insert of the floor": lambda dsn: floor.bulk_insert(dsn, 20),
    "single enqueue": lambda dsn: ours.single_enqueue(dsn, 5),
    "single insert of the floor": lambda dsn: floor.single_insert(dsn, 5),
    "coalesced enqueue": lambda dsn: ours.coalesced_enqueue(dsn, 100),
    "pickup": lambda dsn: pickup.pickup(dsn, 2),
}
LIMITED: dict[str, Piece] = {
    "drain": lambda dsn: limits.drain(dsn, 20, ms.rate("q:default", 1_000_000, per="1s")),
    "strand": lambda dsn: limits.one_by_one(dsn, "strand", 5),
    "fair queue": lambda dsn: limits.bare(dsn, "fair", 5),
}


@pytest.mark.parametrize("piece", PIECES)
async def test_a_benchmark_runs_and_finds_a_number(dsn: str, piece: str) -> None:
    assert await PIECES[piece](dsn) > 0


@pytest.mark.parametrize("piece", LIMITED)
async def test_a_benchmark_of_limits_runs_and_finds_a_number(limited: str, piece: str) -> None:
    assert await LIMITED[piece](limited) > 0


def test_the_cost_of_a_claim_is_found_beside_timers_and_finished_jobs(dsn: str) -> None:
    assert claims.claim_cost(dsn, 2, timers=100, finished=100) > 0
