"""Which servers are believed: the latest timeline that this process has seen, and nothing read-only."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import psycopg
import pytest
from psycopg_pool import PoolTimeout
from tests.databases import RunClusters
from tests.proofs.surroundings.pair import Pair, temptation

from mainspring import AsyncClient, Client
from mainspring.db.schema.migrate import migrate
from mainspring.db.wire.connect import AsyncConnection, Connection, options, pool
from mainspring.db.wire.fence import FENCE
from mainspring.embedded import Cluster
from mainspring.errors import DatabaseUnavailable

pytestmark = pytest.mark.anyio


@pytest.fixture
def pair(run: RunClusters, worker_id: str) -> Iterator[Pair]:
    folder = run.path / "memory"
    pair = Pair(folder, f"fence-{worker_id}")
    try:
        pair.start()
        with psycopg.connect(pair.primary.dsn(), autocommit=True) as conn:
            migrate(conn)
        yield pair
    finally:
        FENCE.forget()
        pair.remove()


async def test_an_old_primary_that_comes_back_is_refused_by_whoever_can_know(pair: Pair) -> None:
    both, reverse, old = pair.dsn(), pair.dsn(reverse=True), pair.primary.dsn()
    with pytest.raises(psycopg.OperationalError, match="is a standby and read-only"):
        Connection.connect(pair.standby.dsn())
    kept = Connection.connect(both, **options(both, "test"))
    idle = pool(old, size=2, name="test")
    idle.open()
    with idle.connection() as conn:
        assert conn.info.port

    pair.fail_over()
    bait = pair.bait()

    # What was opened before is not used again once the process has seen the new timeline.
    with Connection.connect(both, **options(both, "test")) as conn:
        assert conn.server.timeline == 2
    assert kept.stale
    kept.close()
    with pytest.raises(PoolTimeout), idle.connection(timeout=0.3):
        pass
    idle.close()
    # A new process asks every host of its DSN, and finds the new primary in either order.
    for dsn in (both, reverse):
        FENCE.forget()
        with Connection.connect(dsn, **options(dsn, "test")) as conn:
            assert conn.server.timeline == 2
        FENCE.forget()
        async with await AsyncConnection.connect(dsn, **options(dsn, "test")) as other:
            assert other.server.timeline == 2
    # Now that the process knows, the old one is refused by itself too, with the reason, in every way of ours.
    reason = "is on timeline 1, but 2 has begun: it was replaced"
    with pytest.raises(psycopg.OperationalError, match=reason):
        Connection.connect(old)
    with Client(old, timeout=0.3) as client, pytest.raises(DatabaseUnavailable, match=reason) as caught:
        client.now()
    assert not caught.value.sent
    async with AsyncClient(old, timeout=0.3) as asynchronous:
        with pytest.raises(DatabaseUnavailable, match=reason):
            await asynchronous.now()
    with Client(both) as client:
        client.now()
    assert temptation(bait)[1] == 0


def test_a_process_that_knows_one_host_only_cannot_know(pair: Pair) -> None:
    old = pair.primary.dsn()
    pair.fail_over()
    pair.bait()
    FENCE.forget()

    with Connection.connect(old) as conn:
        assert conn.server.timeline == 1


def test_commands_are_new_processes_and_find_the_new_primary(pair: Pair) -> None:
    both = pair.dsn()
    pair.fail_over()
    bait = pair.bait()

    command = [sys.executable, "-m", "mainspring.cli", "queue", "pause", "q:default", "--dsn", both]
    subprocess.run(command, check=True, capture_output=True)

    assert temptation(bait)[1] == 0
    with psycopg.connect(pair.primary.dsn()) as conn:
        row = conn.execute("select paused_at is not null from mainspring.queue where name = 'q:default'").fetchone()
    assert row == (True,)


def test_a_server_that_does_not_tell_is_believed(volatile_cluster: Cluster) -> None:
    with psycopg.connect(volatile_cluster.dsn("postgres", user="postgres"), autocommit=True) as conn:
        conn.execute("revoke execute on function pg_control_system() from public")
        try:
            with Connection.connect(volatile_cluster.dsn("postgres")) as ours:
                assert ours.server.system is None
                assert not ours.stale
        finally:
            conn.execute("grant execute on function pg_control_system() to public")
