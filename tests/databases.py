"""Real PostgreSQL for our own tests, by the kit that users have, and what must hold in every database."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import psycopg
from psycopg.rows import TupleRow

from mainspring.embedded import SUPERUSER, Cluster
from mainspring.virtual.databases import Database, DatabaseServer, Invariant, Preparation
from mainspring.virtual.run import RunClusters

__all__ = ["Database", "RunClusters", "await_others", "check_tickets", "fresh_database", "server", "superuser"]

server = cache(DatabaseServer.of)


@contextmanager
def fresh_database(
    cluster: Cluster,
    *,
    migrated: bool = True,
    reuse: bool = True,
    prepare: Sequence[Preparation] = (),
    check: Invariant | None = None,
) -> Iterator[Database]:
    """A database of its own, with virtual time if migrated, dropped or made blank afterwards."""
    here = server(cluster)
    with here.fresh(prepare=prepare, reuse=reuse, check=check) if migrated else here.copy("template0") as database:
        yield database


def superuser(cluster: Cluster) -> psycopg.Connection[TupleRow]:
    return psycopg.connect(cluster.dsn("postgres", user=SUPERUSER), autocommit=True)


def await_others(conn: psycopg.Connection[Any]) -> None:
    """Wait until every transaction that is open now has ended, in whatever database: until then nothing is sealed."""
    (now,) = conn.execute("select pg_current_xact_id()::text").fetchall()[0]
    while conn.execute("select pg_snapshot_xmin(pg_current_snapshot()) <= %s::xid8", [now]).fetchall() == [(True,)]:
        time.sleep(0.01)


def check_tickets(conn: psycopg.Connection[Any]) -> None:
    """Assert that each job stands in exactly one ticket table, and that no ticket lacks its job."""
    wrong = conn.execute(
        """
        select coalesce(job.id, ticket.id)::text, count(job.id) > 0 as has_job, array_remove(array_agg(place), null)
        from mainspring.job as job
        full join (
            select id, 'waiting' as place from mainspring.waiting
            union all
            select id, 'running' from mainspring.running
            union all
            select id, 'finished' from mainspring.finished
        ) as ticket on ticket.id = job.id
        group by 1
        having count(job.id) <> 1 or count(place) <> 1
        """
    ).fetchall()
    assert not wrong, f"jobs (id, has a job row, its tickets) that do not stand in exactly one place: {wrong}"
