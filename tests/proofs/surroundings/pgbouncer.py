"""A real PgBouncer in transaction mode before a cluster."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow
from tests.databases import Database

from mainspring.embedded import ROLE, SUPERUSER, Cluster
from mainspring.embedded.account import account

PROGRAM = "pgbouncer"


class Pooled(Database):
    """A database that is reached through the pooler only, by the test itself too."""

    __slots__ = ()

    def connect(self) -> psycopg.Connection[TupleRow]:
        return psycopg.connect(self.dsn, autocommit=True, prepare_threshold=None)


class PgBouncer:
    """Listens on a port of its own, keeps its files in a directory of its own, never runs as root."""

    def __init__(self, cluster: Cluster, folder: Path, *, mode: str = "transaction", settings: str = "") -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = int(free.getsockname()[1])
        place = conninfo_to_dict(cluster.dsn())
        self.log = folder / "pgbouncer.log"
        (folder / "users.txt").write_text(f'"{ROLE}" ""\n"{SUPERUSER}" ""\n')
        (folder / "pgbouncer.ini").write_text(f"""
[databases]
* = host={place["host"]} port={place["port"]}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {self.port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users.txt
admin_users = {SUPERUSER}
pool_mode = {mode}
default_pool_size = 8
max_client_conn = 500
server_round_robin = 1
logfile = {self.log}
{settings}
""")
        user, group = account(cluster.data) or (None, None)
        if user is not None and group is not None:
            os.chown(folder, user, group)
        self._process = subprocess.Popen(
            [PROGRAM, "-q", folder / "pgbouncer.ini"], user=user, group=group, stderr=subprocess.DEVNULL
        )
        self._wait()

    def dsn(self, dsn: str) -> str:
        """The same database through the pooler."""
        given = conninfo_to_dict(dsn)
        return make_conninfo(
            host="127.0.0.1", port=self.port, dbname=given["dbname"], user=given["user"], sslmode="disable"
        )

    def forget(self, dsn: str) -> None:
        """Let go of a database, so that it can be dropped."""
        self.command(f"kill {conninfo_to_dict(dsn)['dbname']}")

    def command(self, text: str) -> None:
        """Say something to its console."""
        console = make_conninfo(host="127.0.0.1", port=self.port, dbname="pgbouncer", user=SUPERUSER)
        with psycopg.connect(console, autocommit=True, prepare_threshold=None) as conn:
            conn.pgconn.exec_(text.encode())

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(60)

    def _wait(self) -> None:
        deadline = time.monotonic() + 60
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self.port), 1).close()
            except ConnectionRefusedError:
                assert time.monotonic() < deadline, self.log.read_text()
                time.sleep(0.01)


@contextmanager
def pooling(cluster: Cluster, *, mode: str = "transaction", settings: str = "") -> Iterator[PgBouncer]:
    """A pooler for a while; skipped where the program is not installed."""
    if shutil.which(PROGRAM) is None:
        reason = "PgBouncer is not installed: run apt-get install pgbouncer"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="pooler-", dir=cluster.path.parent))
    try:
        bouncer = PgBouncer(cluster, folder, mode=mode, settings=settings)
        try:
            yield bouncer
        finally:
            bouncer.stop()
    finally:
        shutil.rmtree(folder)
