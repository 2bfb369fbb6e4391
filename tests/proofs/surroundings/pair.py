"""Two PostgreSQL servers, a primary and its standby, which change places again and again."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow
from tests.databases import superuser

from mainspring.embedded import ROLE, SUPERUSER, Cluster
from mainspring.embedded.directory import prepare

SETTINGS = {"max_connections": "100", "shared_buffers": "32MB", "max_wal_size": "256MB", "wal_keep_size": "64MB"}
CUT = "select pg_terminate_backend(pid) from pg_stat_activity where usename = %s"
WRITES = "select coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::integer from pg_stat_user_tables"
SESSIONS = "select coalesce(sum(sessions), 0)::integer from pg_stat_database where datname = %s"


class Pair:
    """A primary with a synchronous standby, in two directories."""

    def __init__(self, folder: Path, name: str = "pair") -> None:
        self.primary, self.standby = (Cluster(folder / f"{name}-{letter}", settings=SETTINGS) for letter in "ab")
        self._both = [self.primary, self.standby]

    def start(self) -> None:
        self.primary.start()
        self.follow()

    def dsn(self, *, reverse: bool = False) -> str:
        """A DSN that names both, always in the same order."""
        places = [conninfo_to_dict(cluster.dsn()) for cluster in (self._both[::-1] if reverse else self._both)]
        hosts, ports = (",".join(str(place[key]) for place in places) for key in ("host", "port"))
        return make_conninfo(host=hosts, port=ports, dbname=ROLE, user=ROLE)

    def follow(self) -> None:
        """Make the standby anew from the primary, and let each commit wait for it."""
        standby, source = self.standby, self.primary
        standby.path.mkdir(exist_ok=True)
        shutil.rmtree(standby.data, ignore_errors=True)
        new = prepare(standby.path, standby.data)
        origin = source.dsn("postgres", user=SUPERUSER)
        standby.run("pg_basebackup", f"--pgdata={new}", f"--dbname={origin}", "-R", "--checkpoint=fast", "--no-sync")
        (new / ".s.PGSQL.5432.lock").unlink()  # the sockets of these servers lie in their data
        new.rename(standby.data)
        standby.start()
        with superuser(source) as conn:
            conn.execute("alter system set synchronous_standby_names = '*'")
            conn.execute("select pg_reload_conf()")
            until(lambda: _one(conn, "select count(*) from pg_stat_replication where sync_state = 'sync'") == 1)

    def fail_over(self) -> None:
        """Kill the primary as a crash would, and promote the standby, which then writes alone."""
        self.primary.kill()
        self.standby.run("pg_ctl", "promote", "--silent", f"--pgdata={self.standby.data}")
        self.primary, self.standby = self.standby, self.primary

    def bait(self) -> Cluster:
        """Start the old primary as it was, willing to write without any standby."""
        old = Cluster(self.standby.path, settings=SETTINGS | {"synchronous_standby_names": ""})
        old.start()
        return old

    def cut(self) -> None:
        """Lose every connection of the engine to the primary, so that all choose a server again."""
        with superuser(self.primary) as conn:
            conn.execute(CUT, [ROLE])

    def remove(self) -> None:
        for cluster in self._both:
            cluster.remove()


def temptation(bait: Cluster) -> tuple[int, int]:
    """How many sessions came to an old primary since it was started, and how many rows they wrote."""
    with psycopg.connect(bait.dsn(user=SUPERUSER), autocommit=True) as conn:
        conn.execute(CUT, [ROLE])  # a session says what it did when it ends
        time.sleep(0.1)
        return _one(conn, SESSIONS, ROLE), _one(conn, WRITES)


def until(holds: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.01)


def _one(conn: psycopg.Connection[TupleRow], query: str, *params: object) -> int:
    row = conn.execute(query.encode(), params).fetchone()
    assert row is not None
    return int(row[0])
