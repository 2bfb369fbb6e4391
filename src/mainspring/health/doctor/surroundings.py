"""The server, its settings, and the way to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from mainspring.health.doctor.facts import Facts, Session
from mainspring.health.doctor.finding import Finding, Level
from mainspring.text.span import span

OLDEST_SERVER, NEWEST_SERVER = 15, 18  # the major versions that the tests run on
#: Minor releases of November 2024; older ones lack fixes against lost data and broken indexes.
RECENT: Final = {15: 10, 16: 6, 17: 2}
HELD, HELD_LONG = 60.0, 900.0  # seconds that a transaction may hold the horizon
IDLE_SESSION_S = 60.0
HELD_XIDS = 100_000
CLOCK_SKEW_S = 1.0
ROUND_TRIP_MS = 20.0


def connection(f: Facts) -> Iterator[Finding]:
    """How far away the database is."""
    what = f"a round trip takes {f.round_trip_ms:.1f} ms"
    slow = f.round_trip_ms > ROUND_TRIP_MS
    todo = "run workers near the database: claims and completions are round trips" if slow else ""
    yield Finding("connection", "warn" if slow else "ok", what, todo)


def version(f: Facts) -> Iterator[Finding]:
    """Whether the server's version is one that the tests run on."""
    major, minor, what = f.server.version_num // 10_000, f.server.version_num % 10_000, f"PostgreSQL {f.server.version}"
    if major < OLDEST_SERVER:
        yield Finding("version", "problem", what, f"upgrade to PostgreSQL {OLDEST_SERVER} or newer")
    elif minor < RECENT.get(major, 0):
        yield Finding("version", "warn", what, f"update to the newest {major}.x: it fixes bugs that lose data")
    elif major > NEWEST_SERVER:
        yield Finding(
            "version", "warn", f"{what} is newer than what the tests run on ({NEWEST_SERVER})", "update Mainspring"
        )
    else:
        yield Finding("version", "ok", what)


def writable(f: Facts) -> Iterator[Finding]:
    """Whether this is a primary."""
    if f.server.in_recovery or f.server.read_only:
        what = "the server is a standby" if f.server.in_recovery else "transactions are read-only"
        todo = "name the primary in the DSN, or all hosts with target_session_attrs=read-write"
        if not f.server.in_recovery:
            todo = "look at default_transaction_read_only of the role, the database and the server"
        yield Finding("writable", "problem", what, todo)
    else:
        yield Finding("writable", "ok", f"the server is a primary, on timeline {int(f.server.timeline or '0', 16)}")


def durability(f: Facts) -> Iterator[Finding]:
    """Whether what was acknowledged survives a crash."""
    for name, on in (("fsync", f.server.fsync), ("full_page_writes", f.server.full_page_writes)):
        lost = "a crash of the machine can destroy the database"
        todo = f"set {name} = on in postgresql.conf and reload"
        yield Finding(name, "ok", "on") if on else Finding(name, "problem", f"off: {lost}", todo)
    mode = f.server.synchronous_commit
    if mode == "off":
        what = "off: jobs whose enqueue was acknowledged can be lost in a crash"
        todo = "set synchronous_commit = on for the server, the database and the role"
        yield Finding("synchronous_commit", "problem", what, todo)
    else:
        yield Finding("synchronous_commit", "ok", mode)


def schema(f: Facts) -> Iterator[Finding]:
    """Whether the schema fits this version."""
    if f.schema_problem:
        what, _, todo = f.schema_problem.partition(": ")  # errors of the schema say after a colon what to do
        yield Finding("schema", "problem", what, todo.removesuffix("."))
    elif f.later_edition:
        what = f"its tables fit this version, and so do its verbs, of the later edition {f.later_edition}"
        yield Finding("schema", "ok", what)
    else:
        yield Finding("schema", "ok", "its tables and verbs are those of this version")


def pooler(f: Facts) -> Iterator[Finding]:
    """Whether a pooler stands between."""
    if f.shared and f.listen_ms is not None:
        yield Finding("pooler", "ok", "a pooler in transaction mode; hints come past it")
    elif f.shared:
        what = "a pooler in transaction mode stands between: hints do not pass it"
        todo = "give workers a direct address in MAINSPRING_LISTEN_DSN; else they find jobs by polling"
        yield Finding("pooler", "warn", what, todo)
    else:
        yield Finding("pooler", "ok", "a pooler in session mode" if f.pooled else "none: a direct connection")


def listen(f: Facts) -> Iterator[Finding]:
    """Whether a notification arrives."""
    if f.listen_ms is not None:
        yield Finding("listen", "ok", f"a notification arrives after {f.listen_ms:.1f} ms")
    else:
        what = f"no notification arrives{': ' + f.listen_error if f.listen_error else ''}: workers only poll"
        todo = "connect to the primary without a pooler; until then jobs start up to a second later"
        yield Finding("listen", "warn", what, todo)


def clock(f: Facts) -> Iterator[Finding]:
    """How far the clocks differ; only the database's decides anything."""
    way = "ahead of" if f.skew_s > 0 else "behind"
    if abs(f.skew_s) > CLOCK_SKEW_S:
        what = f"this machine is {span(f.skew_s)} {way} the database"
        todo = "let both follow a time server; only the database's clock decides when a job is due"
        yield Finding("clock", "warn", what, todo)
    else:
        yield Finding("clock", "ok", f"this machine and the database differ by {span(f.skew_s)}")


def snapshots(f: Facts) -> Iterator[Finding]:
    """Whoever holds the horizon makes finished tickets pile up, and claims slow."""
    s = f.server
    held = [session for session in s.sessions if session.snapshot and session.seconds > HELD]
    slots = [slot for slot in s.slots if (slot.xids or 0) > HELD_XIDS]
    prepared = [p for p in s.prepared if p.seconds > HELD]
    for session in held:
        level: Level = "problem" if session.seconds > HELD_LONG else "warn"
        what = f"{_session(session)} holds a snapshot: dead rows pile up, and claims slow down"
        yield Finding("snapshots", level, what, f"end it: select pg_terminate_backend({session.pid})")
    for slot in slots:
        state, todo = "active", "let its consumer catch up"
        if not slot.active:
            state, todo = "inactive", f"if nobody needs it: select pg_drop_replication_slot('{slot.name}')"
        what = f"replication slot {slot.name} ({state}) holds back {slot.xids:,} transactions"
        yield Finding("snapshots", "warn", what, todo)
    for p in prepared:
        what = f"transaction {p.gid} was prepared {span(p.seconds)} ago and holds a snapshot"
        gid = p.gid.replace("'", "''")  # somebody will copy it
        yield Finding("snapshots", "warn", what, f"commit prepared '{gid}', or rollback prepared '{gid}'")
    if not held and not slots and not prepared:
        seen = "" if s.sees_all else " (of this role: grant pg_monitor to see all)"
        yield Finding("snapshots", "ok", f"no session holds an old snapshot{seen}")


def idle(f: Facts) -> Iterator[Finding]:
    """Transactions that somebody left open; those that hold a snapshot are named above."""
    left = [
        s
        for s in f.server.sessions
        if s.seconds > IDLE_SESSION_S and not s.snapshot and (s.state or "").startswith("idle in")
    ]
    for session in left:
        what = f"{_session(session)}: somebody left a transaction open"
        yield Finding("idle", "warn", what, "set idle_in_transaction_session_timeout for its role, or end the session")
    if not left:
        yield Finding("idle", "ok", "no transaction was left open")


def connections(f: Facts) -> Iterator[Finding]:
    """Whether there is room for more."""
    used, most = f.server.connections, max(f.server.max_connections, 1)
    what = f"{used} of {most} connections are taken"
    level: Level = "problem" if used > 0.95 * most else "warn" if used > 0.8 * most else "ok"
    todo = "" if level == "ok" else "make pools smaller, put a pooler in front, or raise max_connections"
    yield Finding("connections", level, what, todo)


def autovacuum(f: Facts) -> Iterator[Finding]:
    """Whether the server cleans up."""
    if f.server.autovacuum:
        yield Finding("autovacuum", "ok", "on")
    else:
        todo = "set autovacuum = on and track_counts = on, and reload"
        yield Finding("autovacuum", "problem", "off: the tables of a queue grow without end", todo)


def _session(s: Session) -> str:
    state = f"{s.state or 'active'} for {span(s.seconds)}"
    return f"session {s.pid} ({s.user or 'another role'}, {s.name or 'no name'}, {state})"


SURROUNDINGS_CHECKS: Final[tuple[Callable[[Facts], Iterator[Finding]], ...]] = (
    connection, version, writable, durability, autovacuum, connections, pooler, listen, clock, snapshots, idle, schema,
)  # fmt: skip
