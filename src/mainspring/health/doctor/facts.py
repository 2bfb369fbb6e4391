"""What `doctor` looks at: the facts, as `mainspring.db.doctor` gathers them."""

from __future__ import annotations

from uuid import UUID

import msgspec


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A session with an open transaction."""

    pid: int
    user: str | None
    name: str | None
    state: str | None
    seconds: float
    snapshot: bool


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """A replication slot, and how many transactions it holds back."""

    name: str
    active: bool
    xids: int | None
    wal_status: str | None


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction that was prepared and neither committed nor rolled back."""

    gid: str
    seconds: float


class ServerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The server, its settings and its sessions."""

    version_num: int
    version: str
    in_recovery: bool
    read_only: bool
    timeline: str | None
    fsync: bool
    full_page_writes: bool
    synchronous_commit: str
    autovacuum: bool
    max_connections: int
    connections: int
    sees_all: bool
    sessions: list[Session]
    slots: list[Slot]
    prepared: list[Prepared]


class LaneFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A queue that has due jobs; `unknown` are tasks at its head that no living worker of it knows."""

    name: str
    oldest_s: float
    target_s: float | None
    served: bool
    unknown: list[str]


class PausedQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue that was stopped."""

    name: str
    seconds: float
    by: str | None
    reason: str | None


class Pile(msgspec.Struct, frozen=True, kw_only=True):
    """How many there are, counted up to a limit, and how old the oldest is."""

    count: int
    seconds: float | None


class TableFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A hot table as the server's statistics know it."""

    name: str
    live: int
    dead: int
    vacuumed_s: float | None


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """The engine's own tables."""

    movable_clock: bool
    secured: bool
    superuser_owns: bool
    workers: int
    gone: int
    lanes: list[LaneFacts]
    paused: list[PausedQueue]
    expired: Pile
    dead: Pile
    tables: list[TableFacts]
    holder: Session | None = None  # whose open transaction holds the job of the lease that expired first
    heartbeat_s: float | None = None  # since the last heartbeat job succeeded; None: there is none


class Misplaced(msgspec.Struct, frozen=True, kw_only=True):
    """A job that does not stand in exactly one ticket table, or a ticket without its job."""

    id: UUID
    tickets: int
    job: bool


class Tickets(msgspec.Struct, frozen=True, kw_only=True):
    """How many were looked at, and which are wrong."""

    looked: int
    wrong: list[Misplaced]


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All that was found out. Without a schema that fits there is no engine to look at."""

    round_trip_ms: float
    skew_s: float
    pooled: bool
    shared: bool  # two connections at once were given the same backend: a pooler in transaction mode
    listen_ms: float | None
    listen_error: str | None
    server: ServerFacts
    schema_problem: str | None = None
    later_edition: int | None = None  # of the verbs, than this version's
    engine: Engine | None = None
    tickets: Tickets | None = None
