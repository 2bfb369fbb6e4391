"""A throw-away PostgreSQL with stock settings and durable commits, and fresh databases in it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import psycopg

from mainspring.embedded import SUPERUSER, Cluster

DURABLE = ("fsync", "full_page_writes", "synchronous_commit")


@dataclass
class Server:
    """One running PostgreSQL."""

    cluster: Cluster
    version: int
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def database(self) -> str:
        """Make an empty database and return its DSN."""
        name = f"bench_{next(self._numbers)}"
        self.cluster.ensure_database(name)
        return self.cluster.dsn(name)

    def settings(self) -> dict[str, str]:
        """Return the version, what decides durability, and every setting that is not the stock one."""
        with psycopg.connect(self.cluster.dsn("postgres", user=SUPERUSER)) as conn:
            rows = conn.execute(
                "select name, current_setting(name) from pg_settings where name = any(%s) or source = 'command line'"
                " and setting is distinct from boot_val and name not in ('cluster_name', 'unix_socket_directories')"
                " order by name",
                [["server_version", "shared_buffers", *DURABLE]],
            ).fetchall()
        return dict(rows)


@contextmanager
def server(version: int = 18) -> Iterator[Server]:
    """Run PostgreSQL (18 from the wheel, 15 from Debian) for the length of the block, then remove it."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        home = Path(folder)
        home.chmod(0o755)  # started by root, the server runs as another user and must reach its directory
        cluster = Cluster(home / "pg", version=version)
        cluster.start()
        try:
            running = Server(cluster, version)
            settings = running.settings()
            off = [name for name in DURABLE if settings[name] != "on"]
            if off:
                raise RuntimeError(f"a benchmark needs durable commits, but {', '.join(off)} is off")
            yield running
        finally:
            cluster.remove()
