"""A fresh database for each test: a template that is migrated once a run, and a copy of it, or one made blank again.

Copying files wins. Medians of 15, create + drop of 8 MB with 60 indexes, fsync off, 2026-11-15, 2 shared cores:
file_copy 11 + 7 ms in memory, 151 + 13 ms on disk; wal_log 20 + 7 ms in memory, 149 + 13 ms on disk.
One connection for all copies instead of two for each: 12 instead of 20 ms of the server's time, 2026-11-16.
Smaller catalogues (vacuum full), `file_copy_method = clone` and less shared memory change it by less than 1 ms.
"""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, TypeAlias
from uuid import uuid4

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow
from psycopg.sql import SQL, Identifier

from mainspring.config import DEFAULT_SCHEMA
from mainspring.db.schema.line import Line
from mainspring.db.schema.migrate import migrate
from mainspring.embedded import ROLE, SUPERUSER, Cluster
from mainspring.virtual import clock
from mainspring.virtual.blank import Blank, Unfit
from mainspring.virtual.joined import below

#: How a template gets an application's own tables: a line of migrations, SQL, or a function of a connection.
Preparation: TypeAlias = "Line | str | Callable[[psycopg.Connection[Any]], object]"

#: What must hold in a database when its user has left: raises if it does not.
Invariant: TypeAlias = Callable[[psycopg.Connection[Any]], object]

#: How many databases this process has made and made blank again, and why not.
DATABASE_COUNTS: Counter[str] = Counter()
_RUN = re.compile(r"mainspring_(?:test|template)_([0-9a-f]{7})_")
_LOCKS = 0x6D61  # the class of advisory locks by which processes of a run say that they live


def install(conn: Any, *prepare: Preparation, schema: str = DEFAULT_SCHEMA) -> None:
    """Make Mainspring's tables with virtual time in a test database of your own, and what `prepare` says besides.

    `conn` is a connection of psycopg, SQLAlchemy or Django. Never in production, because nothing makes the clock real
    again: a schema that holds jobs, has seen workers or is secured is refused, and nothing is changed.
    """
    own = conn if isinstance(conn, psycopg.Connection) else below(conn)
    clock.refuse_in_use(own, schema=schema)
    migrate(own, schema=schema)
    clock.install(own, schema=schema)
    take(own, prepare, schema=schema)


def take(conn: psycopg.Connection[Any], steps: Sequence[Preparation], *, schema: str = DEFAULT_SCHEMA) -> None:
    """Do what an application says to prepare a database."""
    for step in steps:
        if isinstance(step, Line):
            migrate(conn, schema=schema, line=step)
        elif isinstance(step, str):
            conn.execute(step.encode())
        else:
            step(conn)


@dataclass(frozen=True, slots=True)
class Database:
    """One database of a test."""

    dsn: str

    def connect(self) -> psycopg.Connection[TupleRow]:
        """A connection on which every statement commits."""
        return psycopg.connect(self.dsn, autocommit=True)


@dataclass(frozen=True, slots=True)
class MadeDatabase:
    """A database that this process has made: no other is ever emptied."""

    name: str
    oid: int
    counted: str | None = None  # since when PostgreSQL counts what is written there


@dataclass
class DatabasePool:
    """The databases that one process uses again, by template."""

    open: bool = False
    blanks: dict[str, Blank | None] = field(default_factory=dict)
    spares: defaultdict[str, list[MadeDatabase]] = field(default_factory=lambda: defaultdict(list))


@dataclass(frozen=True)
class DatabaseServer:
    """A PostgreSQL on which tests make databases."""

    admin: str  # as whom databases are made
    user: str  # as whom tests connect
    owner: str | None = None  # of the databases; None: whoever makes them
    run: str = ""  # seven hexadecimal digits in the names of the databases: whose they are, where others have theirs
    pool: DatabasePool = field(default_factory=DatabasePool, compare=False)
    _templates: set[str] = field(default_factory=set, compare=False)
    _kept: list[psycopg.Connection[TupleRow]] = field(default_factory=list, compare=False)

    @classmethod
    def of(cls, cluster: Cluster) -> DatabaseServer:
        """The server of an embedded cluster."""
        return cls(cluster.dsn("postgres", user=SUPERUSER), cluster.dsn("postgres"), ROLE)

    @contextmanager
    def fresh(
        self,
        *,
        schema: str = DEFAULT_SCHEMA,
        prepare: Sequence[Preparation] = (),
        reuse: bool = True,
        check: Invariant | None = None,
    ) -> Iterator[Database]:
        """A migrated database of its own with virtual time, dropped afterwards or, while `connected`, used again.

        Whoever measures files or counts identifiers wants a copy that nobody has used: `reuse=False`. `check` raises
        if something does not hold when its user has left, and the database is dropped.
        """
        template = self.template(schema, prepare)
        if not (reuse and self.pool.open):
            with self.copy(template) as database:
                yield database
                _look_after(database.dsn, check)
            return
        spares = self.pool.spares[template]
        made = spares.pop() if spares else self._new(template)
        if template not in self.pool.blanks:
            self.pool.blanks[template] = Blank.of(make_conninfo(self.admin, dbname=made.name))
        try:
            yield Database(make_conninfo(self.user, dbname=made.name))
        except BaseException:
            self._remove(made.name)
            raise
        if again := self._renewed(made, self.pool.blanks[template], check):
            spares.append(again)

    @contextmanager
    def copy(self, template: str, *, keep: bool = False) -> Iterator[Database]:
        """A copy of a database, dropped afterwards unless it is kept: then no later run drops it either."""
        made = self._new(template, "kept" if keep else "test")
        try:
            yield Database(make_conninfo(self.user, dbname=made.name))
        finally:
            if not keep:
                self._remove(made.name)

    def _new(self, template: str, kind: str = "test") -> MadeDatabase:
        name = self._name(kind, uuid4().hex)
        with self._connect() as conn:
            self._create(conn, name, template)
            ((oid,),) = conn.execute("select oid from pg_database where datname = %s", [name]).fetchall()
        DATABASE_COUNTS["made"] += 1
        return MadeDatabase(name, oid)

    def _remove(self, name: str) -> None:
        with self._connect() as conn:
            _await_leaving(conn, name)
            _drop(conn, name)

    def _renewed(self, made: MadeDatabase, blank: Blank | None, check: Invariant | None) -> MadeDatabase | None:
        """The same database, blank and with a new name, which nobody knows who used it; None if it had to be dropped.

        It is renamed first: from then on no forgotten worker can come back to it. PostgreSQL refuses to rename a
        database that anybody is connected to. What must hold is checked by the session that makes it blank: one of
        its own would cost as much again.
        """
        name = self._name("test", uuid4().hex)
        unchecked = check

        def checked(conn: psycopg.Connection[Any]) -> None:
            nonlocal unchecked
            if check is not None:
                check(conn)
            unchecked = None

        try:
            if blank is None:
                raise Unfit("privileges")
            with self._connect() as conn:
                if not _await_leaving(conn, made.name):
                    raise Unfit("sessions")
                conn.execute(SQL("alter database {} rename to {}").format(Identifier(made.name), Identifier(name)))
            made = replace(made, name=name)
            counted = blank.restore(make_conninfo(self.admin, dbname=name), made.oid, made.counted, checked)
        except (Unfit, psycopg.Error) as why:
            DATABASE_COUNTS[str(why).partition("\n")[0]] += 1
            try:
                _look_after(make_conninfo(self.admin, dbname=made.name), unchecked)
            finally:
                self._remove(made.name)
            return None
        except BaseException:  # something does not hold
            self._remove(made.name)
            raise
        DATABASE_COUNTS["reused"] += 1
        return replace(made, counted=counted)

    def template(self, schema: str = DEFAULT_SCHEMA, prepare: Sequence[Preparation] = ()) -> str:
        """The migrated database that tests copy: the first process to ask makes it, and names it when complete."""
        digest = sha256("\0".join([schema, *map(_describe, prepare)]).encode()).hexdigest()[:12]
        name = self._name("template", digest)
        if name not in self._templates:
            with self._connect() as conn:
                conn.execute("select pg_advisory_lock(%s, 0)", [_LOCKS])
                try:
                    if not conn.execute("select 1 from pg_database where datname = %s", [name]).fetchone():
                        self._make(conn, name, schema, prepare)
                finally:
                    conn.execute("select pg_advisory_unlock(%s, 0)", [_LOCKS])
            self._templates.add(name)
        return name

    def _make(self, conn: psycopg.Connection[Any], name: str, schema: str, prepare: Sequence[Preparation]) -> None:
        unfinished = f"{name}_new"
        _drop(conn, unfinished)
        self._create(conn, unfinished, "template0")
        with psycopg.connect(make_conninfo(self.user, dbname=unfinished), autocommit=True) as new:
            install(new, *prepare, schema=schema)
        conn.execute(SQL("alter database {} rename to {}").format(Identifier(unfinished), Identifier(name)))

    def _name(self, kind: str, suffix: str) -> str:
        return "_".join(part for part in ("mainspring", kind, self.run, suffix) if part)

    def _create(self, conn: psycopg.Connection[Any], name: str, template: str) -> None:
        owner = SQL("owner {}").format(Identifier(self.owner)) if self.owner else SQL("")
        create = SQL("create database {} {} template {} strategy file_copy")
        conn.execute(create.format(Identifier(name), owner, Identifier(template)))

    @contextmanager
    def connected(self) -> Iterator[DatabaseServer]:
        """Keep one connection for all databases made inside the block, and use them again.

        Two new connections cost as much as half a copy.
        """
        self._kept.append(psycopg.connect(self.admin, autocommit=True))
        self.pool.open = True
        try:
            yield self
        finally:
            self.pool.open = False
            for spare in [made for spares in self.pool.spares.values() for made in spares]:
                self._remove(spare.name)
            self.pool.spares.clear()
            while self._kept:
                self._kept.pop().close()

    @contextmanager
    def _connect(self) -> Iterator[psycopg.Connection[TupleRow]]:
        """The connection that is kept, unless another thread uses it, or a new one."""
        try:
            conn = self._kept.pop()
        except IndexError:
            with psycopg.connect(self.admin, autocommit=True) as conn:
                yield conn
            return
        if not _is_alive(conn):  # a test may have restarted the server
            conn.close()
            conn = psycopg.connect(self.admin, autocommit=True)
        try:
            yield conn
        finally:
            self._kept.append(conn)

    # -- a server that is not ours, and outlives the run --------------------------------------------------------------

    @classmethod
    @contextmanager
    def shared(cls, dsn: str, run: str) -> Iterator[DatabaseServer]:
        """A server that is there already; what killed runs left is dropped, ours when the last one leaves."""
        server = cls(dsn, dsn, run=sha256(run.encode()).hexdigest()[:7])
        with server._connect() as conn:  # held all along: its lock says that we live
            conn.execute("select pg_advisory_lock_shared(%s, %s)", [_LOCKS, int(server.run, 16)])
            server._sweep(conn, {server.run})
            try:
                with server.connected():
                    yield server
            finally:
                conn.execute("select pg_advisory_unlock_shared(%s, %s)", [_LOCKS, int(server.run, 16)])
                server._sweep(conn, set())

    def _sweep(self, conn: psycopg.Connection[Any], living: set[str]) -> None:
        """Drop the databases of runs that nobody belongs to any more."""
        rows = conn.execute("select datname from pg_database where datname like 'mainspring\\_te%'").fetchall()
        for (name,) in rows:
            found = _RUN.match(name)
            if found and found[1] not in living:
                key = [_LOCKS, int(found[1], 16)]
                if conn.execute("select pg_try_advisory_lock(%s, %s)", key).fetchone() == (True,):
                    _drop(conn, name)
                    conn.execute("select pg_advisory_unlock(%s, %s)", key)


def _describe(step: Preparation) -> str:
    """What tells one preparation from another within a run."""
    if isinstance(step, Line):
        return "\0".join([step.name, *(migration.digest for migration in step.tables), step.digest])
    return step if isinstance(step, str) else f"{step.__module__}.{getattr(step, '__qualname__', repr(step))}"


def _look_after(dsn: str, check: Invariant | None) -> None:
    if check is not None:
        with psycopg.connect(dsn, autocommit=True) as conn:
            check(conn)


def _is_alive(conn: psycopg.Connection[Any]) -> bool:
    try:
        conn.execute("select")
    except psycopg.OperationalError:
        return False
    return True


def _drop(conn: psycopg.Connection[Any], name: str) -> None:
    conn.execute(SQL("drop database if exists {} with (force)").format(Identifier(name)))


def _await_leaving(conn: psycopg.Connection[Any], database: str) -> bool:
    """Wait a little for closed sessions to leave, and tell whether all have: a drop that meets one sleeps 100 ms."""
    for _ in range(25):
        if not conn.execute("select 1 from pg_stat_activity where datname = %s", [database]).fetchone():
            return True
        time.sleep(0.002)
    return False
