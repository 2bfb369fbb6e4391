"""Real PostgreSQL for the tests: clusters shared by the processes of one run, and a fresh database for each test.

A run keeps its clusters below one directory, which the first pytest process makes, hands to its xdist workers, and
removes at the end. It holds a lock on that directory all along, so that the next run can tell a living run from one
that was killed, and cleans up after the dead.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
from psycopg.rows import TupleRow
from psycopg.sql import SQL, Identifier

from mainspring.db.migrate import migrate
from mainspring.embedded import ROLE, SUPERUSER, Cluster
from mainspring.testing import clock

TEMPLATE = "template_mainspring"
RUN = "mainspring-tests-"
MEMORY = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class Database:
    """One database of a test."""

    dsn: str

    def connect(self) -> psycopg.Connection[TupleRow]:
        return psycopg.connect(self.dsn, autocommit=True)


class Run:
    """The clusters of one test run: below `memory` those that may be lost, below `disk` those that write durably."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def begin(cls) -> Run:
        """Make the directory of a new run, and remove those of runs that were killed."""
        for path in Path(tempfile.gettempdir()).glob(f"{RUN}*"):
            with suppress(FileNotFoundError):  # another run is ending just now
                if path.stat().st_uid == os.geteuid() and _lock(path):
                    Run(path).end()
        new = Path(tempfile.mkdtemp(prefix="mainspring-new-"))
        _lock(new)
        (new / "disk").mkdir()
        if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 2 * 2**30:
            memory = Path(tempfile.mkdtemp(prefix=RUN, dir=MEMORY))
            memory.chmod(0o755)  # for the account that runs PostgreSQL when we are root
            (new / "memory").symlink_to(memory)
        else:
            (new / "memory").mkdir()
        new.chmod(0o755)
        return cls(new.rename(new.with_name(new.name.replace("mainspring-new-", RUN))))  # others see it only locked

    def end(self) -> None:
        for lock in self.path.glob("*/*/lock"):
            Cluster(lock.parent).remove()
        shutil.rmtree((self.path / "memory").resolve(), ignore_errors=True)
        shutil.rmtree(self.path, ignore_errors=True)

    def cluster(self, name: str, *, version: int = 18, settings: Mapping[str, str] = {}) -> Cluster:
        """A running cluster: the first process to ask starts it, the others find it."""
        cluster = Cluster(self.path / name, version=version, settings=settings)
        cluster.start()
        return cluster


def _lock(path: Path) -> bool:
    """Lock a directory until this process ends; false if another process holds it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return False
    return True


@contextmanager
def fresh_database(cluster: Cluster, *, migrated: bool = True) -> Iterator[Database]:
    """A database of its own, with virtual time if migrated, dropped afterwards.

    Copying files wins. Medians of 15, create + drop of 8 MB with 60 indexes, fsync off, 2026-11-15, 2 shared cores:
    file_copy 11 + 7 ms in memory, 151 + 13 ms on disk; wal_log 20 + 7 ms in memory, 149 + 13 ms on disk.
    """
    name = f"test_{uuid4().hex}"
    source = template(cluster) if migrated else "template0"
    create = SQL("create database {} owner {} template {} strategy file_copy")
    with superuser(cluster) as conn:
        conn.execute(create.format(Identifier(name), Identifier(ROLE), Identifier(source)))
    try:
        yield Database(cluster.dsn(name))
    finally:
        with superuser(cluster) as conn:
            _await_leaving(conn, name)
            conn.execute(SQL("drop database {} with (force)").format(Identifier(name)))


@cache
def template(cluster: Cluster) -> str:
    """The migrated database that tests copy: the first process to ask makes it, and names it when complete."""
    unfinished = Identifier(f"{TEMPLATE}_unfinished")
    with superuser(cluster) as conn:
        conn.execute("select pg_advisory_lock(1)")
        if not conn.execute("select 1 from pg_database where datname = %s", [TEMPLATE]).fetchone():
            conn.execute(SQL("drop database if exists {} with (force)").format(unfinished))
            conn.execute(SQL("create database {} owner {}").format(unfinished, Identifier(ROLE)))
            with psycopg.connect(cluster.dsn(f"{TEMPLATE}_unfinished"), autocommit=True) as new:
                migrate(new)
                clock.install(new)
            conn.execute(SQL("alter database {} rename to {}").format(unfinished, Identifier(TEMPLATE)))
    return TEMPLATE


def superuser(cluster: Cluster) -> psycopg.Connection[TupleRow]:
    return psycopg.connect(cluster.dsn("postgres", user=SUPERUSER), autocommit=True)


def _await_leaving(conn: psycopg.Connection[Any], database: str) -> None:
    """Wait a little for closed sessions to leave: a drop that meets one sleeps 100 ms."""
    for _ in range(25):
        if not conn.execute("select 1 from pg_stat_activity where datname = %s", [database]).fetchone():
            return
        time.sleep(0.002)


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
