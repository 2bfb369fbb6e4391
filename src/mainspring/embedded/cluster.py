"""A cluster: one PostgreSQL server in one directory.

The directory holds `data`, `server.log` and a `lock` that makes start and stop safe between processes. The server
outlives the process that started it until somebody calls `stop`. It is found again through its `postmaster.pid` and its
`cluster_name`. For root, what the server's account cannot reach (a clone below a private home) is kept below the shared
directory of `places` instead, and `data` is then a link.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal, Self

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.errors import DuplicateDatabase, UniqueViolation
from psycopg.sql import SQL, Identifier

from mainspring.embedded import places
from mainspring.embedded.account import account, call, can
from mainspring.embedded.binaries import HINT, copy_binaries, find_binaries
from mainspring.embedded.directory import make_socket_dir, prepare, remove_stale_locks
from mainspring.embedded.process import belongs, processes, send, wait
from mainspring.embedded.settings import SERVER_DEFAULTS
from mainspring.errors import ConfigurationError, DatabaseUnavailable

ROLE: Final = "mainspring"
SUPERUSER: Final = "postgres"

#: A socket's whole path has 103 bytes on the stingiest system, and `/.s.PGSQL.65535` takes 15 of them.
LONGEST_SOCKET_DIR: Final = 85
LARGEST_LOG: Final = 5_000_000

StopMode = Literal["smart", "fast", "immediate"]
_SIGNALS: Final = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}


class Cluster:
    """A PostgreSQL server of our own, in one directory.

    `settings` are PostgreSQL's. Local connections are trusted, and only the server's account and root can open the
    socket. TCP is off; `settings={"listen_addresses": "127.0.0.1", "port": "5433"}` opens it, and asks for passwords.

        with Cluster(Path(".data/postgres")) as cluster:
            conn = psycopg.connect(cluster.dsn())
    """

    def __init__(
        self, path: Path, *, version: int = 18, settings: Mapping[str, str] = {}, bin_dir: Path | None = None
    ) -> None:
        self.path = path.resolve()
        self.version = version
        self.settings = {**SERVER_DEFAULTS, **settings}
        self.log = self.path / "server.log"
        self._bin_dir = bin_dir
        self._launched = False

    def __enter__(self) -> Self:
        self._launched = self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._launched:
            self.stop()

    # ---- life

    def start(self, timeout: float = 60) -> bool:
        """Start the server, unless it runs already; say whether this call started it.

        Returns once it accepts connections, has the role `mainspring` and its database. After a crash it recovers.
        """
        launched = False

        def ready() -> bool:  # asked again and again, because a server that was just killed may seem alive at first
            nonlocal launched
            if self.pid is None:
                self._launch(timeout)
                launched = True
            return self._status()[7:] in (["ready"], ["standby"]) and self._welcome()

        self.path.mkdir(parents=True, exist_ok=True)
        with self._locked():
            wait(ready, timeout, f"PostgreSQL does not answer, see {self.log}")
        return launched

    def stop(self, mode: StopMode = "fast", timeout: float = 60) -> None:
        """Stop the server, if it runs, and wait until it is gone."""
        if self.pid is not None:
            with self._locked():
                self._end(_SIGNALS[mode], [self.pid], timeout)

    def kill(self) -> None:
        """End the server as a crash would: no checkpoint, no goodbye to its clients."""

        def gone() -> bool:
            # Again and again: a session that was forked meanwhile may wait for ever for what a dead one held.
            left = [pid for pid in (self.pid, *processes(self.name)) if pid is not None]
            send(signal.SIGKILL, left)
            return not left

        wait(gone, 60, "PostgreSQL has not stopped")

    def remove(self) -> None:
        """End the server and delete the cluster with its data, wherever they are."""
        with suppress(DatabaseUnavailable):
            self.stop("immediate", timeout=5)  # unlike a killed server, it gives its shared memory back
        self.kill()
        moved = self.data.parent if self.data.parent.parent == places.SHARED_FOLDER.resolve() else self.data
        for place in (self.socket_dir, moved, self.path):
            shutil.rmtree(place, ignore_errors=True)

    def restart(self) -> None:
        """Stop the server and start it again, with its data."""
        self.stop()
        self.start()

    @property
    def running(self) -> bool:
        """Whether the server runs, whoever started it."""
        return self.pid is not None

    @property
    def pid(self) -> int | None:
        """The process number of the server, or None."""
        status = self._status()
        return int(status[0]) if status else None

    # ---- use

    def dsn(self, database: str = ROLE, *, user: str = ROLE) -> str:
        """How to connect through the Unix socket; `user="postgres"` is the superuser."""
        *_, port, host = self._status()[:5] or (self.settings["port"], str(self.socket_dir))
        return make_conninfo(host=host, port=port, dbname=database, user=user)

    def ensure_database(self, name: str) -> None:
        """Create a database of the role `mainspring`, unless it exists."""
        with self._superuser() as conn:
            if not conn.execute("select 1 from pg_database where datname = %s", [name]).fetchone():
                with suppress(DuplicateDatabase, UniqueViolation):  # another process was faster
                    conn.execute(SQL("create database {} owner {}").format(Identifier(name), Identifier(ROLE)))

    @property
    def data(self) -> Path:
        """The data directory, where it really is."""
        return (self.path / "data").resolve()

    @property
    def socket_dir(self) -> Path:
        """The data directory, or a private directory with a short name when that one's is too long for a socket."""
        fits = len(os.fsencode(self.data)) <= LONGEST_SOCKET_DIR
        return self.data if fits else Path(tempfile.gettempdir()).resolve() / self.name

    @property
    def name(self) -> str:
        """The `cluster_name`, by which the server's processes are recognised."""
        return f"mainspring-{places.digest(self.data)}"

    # ---- starting

    def _launch(self, timeout: float) -> None:
        """Start the postmaster in a session of its own: Ctrl-C in our terminal must not reach it before we stop it."""
        binaries = self._binaries()
        if self.log.exists() and self.log.stat().st_size > LARGEST_LOG:
            os.truncate(self.log, 0)
        if not (self.data / "PG_VERSION").exists():
            self._initialise(binaries)
        make_socket_dir(self.socket_dir, self.data)
        self._end(signal.SIGQUIT, processes(self.name), timeout)  # sessions that outlived a killed postmaster
        remove_stale_locks(self.data / "postmaster.pid", self.socket_dir / f".s.PGSQL.{self.settings['port']}.lock")
        ours = {"unix_socket_directories": str(self.socket_dir), "cluster_name": self.name}
        options = " ".join(f"-c {shlex.quote(f'{name}={value}')}" for name, value in (self.settings | ours).items())
        self._run(
            "start the server",
            *(binaries / "pg_ctl", "start", "--silent", "--wait", f"--timeout={max(1, round(timeout))}"),
            *(f"--pgdata={self.data}", f"--options={options}"),
        )

    def _welcome(self) -> bool:
        """Make the role and its database where they are missing; false if the server does not take us yet."""
        try:
            with self._superuser() as conn:
                if not conn.execute("select 1 from pg_roles where rolname = %s", [ROLE]).fetchone():
                    conn.execute(SQL("create role {} login createdb").format(Identifier(ROLE)))
            self.ensure_database(ROLE)
        except psycopg.OperationalError:
            return False
        return True

    def _initialise(self, binaries: Path) -> None:
        """Make the data directory beside its place and move it there, so that a half-made one is never used."""
        new = prepare(self.path, self.data)
        # The builtin locale sorts by code point, knows every letter's case, and does not change with the system.
        locale = ("--locale-provider=builtin", "--builtin-locale=C.UTF-8") if self.version >= 17 else ()
        sync = ("--no-sync",) if self.settings.get("fsync") == "off" else ()
        self._run(
            "make a data directory",
            *(binaries / "initdb", f"--pgdata={new}", f"--username={SUPERUSER}", "--no-instructions"),
            *("--auth-local=trust", "--auth-host=scram-sha-256", "--encoding=UTF8", "--locale=C", *locale, *sync),
        )
        new.rename(self.data)

    # ---- programs

    def run(self, program: str, *arguments: str | Path) -> None:
        """Run one of PostgreSQL's programs, such as `pg_basebackup`, as the server's account."""
        self._run(f"run {program}", self._binaries() / program, *arguments)

    def _binaries(self) -> Path:
        """Where `postgres` and `pg_ctl` are, copied once to where the server's account can read them."""
        found = self._bin_dir or find_binaries(self.version)
        if not (found / "postgres").is_file():
            raise ConfigurationError(f"PostgreSQL {self.version} is not installed in {found}: {HINT}.")
        return found if can(account(self.data), found / "postgres", "--version") else copy_binaries(found)

    def _run(self, purpose: str, *command: str | Path) -> None:
        with self.log.open("ab") as log:
            code = call(account(self.data), log.fileno(), *command)
        if code:
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
            raise ConfigurationError(f"PostgreSQL could not {purpose}; {self.log} ends with:\n{tail}")

    # ---- processes

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.path / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @contextmanager
    def _superuser(self) -> Iterator[psycopg.Connection[Any]]:
        with psycopg.connect(self.dsn("postgres", user=SUPERUSER), autocommit=True, connect_timeout=10) as conn:
            yield conn

    def _status(self) -> list[str]:
        """The lines of `postmaster.pid` while the server runs: 0 pid, 3 port, 4 socket directory, 7 readiness."""
        try:
            lines = [line.strip() for line in (self.data / "postmaster.pid").read_text().splitlines()]
        except FileNotFoundError:
            return []
        return lines if len(lines) >= 5 and belongs(int(lines[0]), self.name) else []

    def _end(self, number: signal.Signals, pids: list[int | None] | list[int], timeout: float = 60) -> None:
        """Signal processes, the postmaster first, and wait until the whole server is gone."""
        send(number, pids)
        wait(lambda: not self.running and not processes(self.name), timeout, "PostgreSQL has not stopped")
