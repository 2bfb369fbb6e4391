"""The raw floor: what bare statements and a bare loop reach on this machine, without Mainspring.

A job row is written once, its ticket moves waiting -> running -> finished. The statements are those of the study that
the engine was designed from: rows found by ctid, priorities by lateral, the whole envelope fetched by one probe a job,
a lease with its index, completion by epoch into a finished row, planner settings pinned. One queue and nothing else: no
keys, no pause, no weights, no rescue, no limits on what runs, no time-outs, no validation. Everything that a job engine
adds on top is measured against these numbers.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from os import urandom
from typing import Any, LiteralString

import msgspec
import uvloop
from psycopg import AsyncConnection, AsyncRawCursor

from bench.cluster import server

BATCH = 500  # tickets per claim and per completion
IN_FLIGHT = 2  # exchanges with the server at once
CHUNK = 1_000  # jobs per bulk insert
QUEUE = "default"
WORKER = "floor-1"
CHANNEL = "floor"
PINNED = "-c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off -c plan_cache_mode=force_generic_plan"

SCHEMA: LiteralString = """
drop schema if exists floor cascade;
create schema floor;
create sequence floor.epoch;
create table floor.job (
  id uuid primary key, org_id text not null, project_id text, job_type text not null, version smallint not null,
  queue text not null, priority smallint not null, payload jsonb not null, idempotency_key text, actor text,
  request_id text, correlation_id text, causation_id text, trace text, max_attempts smallint not null,
  timeout_ms integer not null, source text not null, tags text[], due_at timestamptz not null,
  created_at timestamptz not null);
create table floor.waiting (
  id uuid primary key, queue text not null, priority smallint not null, due_at timestamptz not null,
  attempt smallint not null default 0, org_id text not null, job_type text not null);
create index on floor.waiting (queue, priority, due_at, id);
create table floor.running (
  id uuid primary key, epoch bigint not null unique, worker text not null, attempt smallint not null,
  org_id text not null, queue text not null, started_at timestamptz not null, lease_expires_at timestamptz not null);
create index on floor.running (lease_expires_at);
create table floor.finished (
  id uuid primary key, state text not null, attempt smallint not null, worker text not null,
  started_at timestamptz not null, finished_at timestamptz not null);
create table floor.effect (id bigint generated always as identity primary key, body text not null);
"""

COLUMNS: LiteralString = (
    "id, org_id, project_id, job_type, version, queue, priority, payload, idempotency_key, actor, request_id,"
    " correlation_id, causation_id, trace, max_attempts, timeout_ms, source, tags, due_at, created_at"
)

INSERT: LiteralString = f"""
with r as materialized (select * from json_to_recordset($1::json) as r(
       id uuid, org_id text, project_id text, job_type text, version smallint, queue text, priority smallint,
       payload jsonb, idempotency_key text, actor text, request_id text, correlation_id text, causation_id text,
       trace text, max_attempts smallint, timeout_ms integer, source text, tags text[], due_at timestamptz,
       created_at timestamptz)),
     j as (insert into floor.job ({COLUMNS}) select {COLUMNS} from r)
insert into floor.waiting (id, queue, priority, due_at, org_id, job_type)
select id, queue, priority, due_at, org_id, job_type from r
"""

INSERT_ONE: LiteralString = f"""
with j as (insert into floor.job ({COLUMNS})
           values ($1, $2, $3, $4, $5, $6, $7, $8::text::jsonb, $9, $10,
                   $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)),
     w as (insert into floor.waiting (id, queue, priority, due_at, org_id, job_type) values ($1, $6, $7, $19, $2, $4))
select"""

INSERT_ONE_AND_NOTIFY: LiteralString = INSERT_ONE + " pg_notify('floor', '')"

CLAIM: LiteralString = """
with c as materialized (
       select y.tid from (values (0::smallint), (1::smallint), (2::smallint), (3::smallint)) p(priority)
       cross join lateral (
         select w.ctid as tid from floor.waiting w
         where w.queue = $1 and w.priority = p.priority and w.due_at <= statement_timestamp()
         order by w.due_at, w.id limit $2 for update of w skip locked) y
       limit $2),
     d as (delete from floor.waiting w where w.ctid = any(array(select tid from c))
           returning w.id, (w.attempt + 1)::smallint as attempt, w.org_id, w.queue, w.priority, w.due_at,
                     nextval('floor.epoch') as epoch),
     l as (insert into floor.running (id, epoch, worker, attempt, org_id, queue, started_at, lease_expires_at)
           select id, epoch, $3, attempt, org_id, queue, statement_timestamp(), statement_timestamp() + interval '60 s'
           from d)
select d.epoch, j.job_type, j.payload::text, d.id, d.attempt, d.org_id, d.queue, d.priority, d.due_at, j.project_id,
       j.idempotency_key, j.actor, j.request_id, j.correlation_id, j.trace, j.max_attempts, j.created_at
from d cross join lateral (select * from floor.job j where j.id = d.id limit 1) j
order by d.priority, d.due_at, d.id
"""

COMPLETE: LiteralString = """
with g as (delete from floor.running r where r.epoch = any($1) and r.worker = $2 returning r.*),
     f as (insert into floor.finished (id, state, attempt, worker, started_at, finished_at)
           select id, 'succeeded', attempt, worker, started_at, statement_timestamp() from g)
select epoch from g
"""

EFFECT: LiteralString = "insert into floor.effect (body) values ($1)"

Connection = AsyncConnection[tuple[Any, ...]]
Row = tuple[Any, ...]  # epoch, job type, payload, and the rest of the envelope


PAYLOAD = {"user": 12345, "email": "someone@example.com", "subject": "Your order is on its way", "copies": [1, 2, 3]}


class Job(msgspec.Struct):
    """A job with its whole envelope, as JSON carries it."""

    id: uuid.UUID
    due_at: datetime
    created_at: datetime
    org_id: str = "org-1"
    project_id: str | None = "project-1"
    job_type: str = "noop"
    version: int = 1
    queue: str = QUEUE
    priority: int = 1
    payload: dict[str, Any] = msgspec.field(default_factory=lambda: PAYLOAD)
    idempotency_key: str | None = None
    actor: str | None = "user-1"
    request_id: str | None = "request-1"
    correlation_id: str | None = "correlation-1"
    causation_id: str | None = None
    trace: str | None = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    max_attempts: int = 5
    timeout_ms: int = 300_000
    source: str = "floor"
    tags: list[str] | None = None


encode = msgspec.json.Encoder().encode


def uuid7() -> uuid.UUID:
    """Make an id that sorts by time."""
    head = time.time_ns() // 1_000_000 << 80 | 0x7 << 76 | 0x2 << 62
    return uuid.UUID(int=head | int.from_bytes(urandom(10)) & ~(0xF << 76 | 0x3 << 62))


def make(number: int) -> list[Job]:
    """Make jobs that are due now."""
    now = datetime.now(UTC)
    return [Job(uuid7(), now, now) for _ in range(number)]


async def connect(dsn: str) -> Connection:
    """Open a connection with the planner pinned, on which every statement is prepared at its first use."""
    return await AsyncConnection.connect(
        dsn, autocommit=True, prepare_threshold=0, options=PINNED, cursor_factory=AsyncRawCursor
    )


@asynccontextmanager
async def connections(dsn: str, number: int) -> AsyncIterator[list[Connection]]:
    """Open several connections for the length of the block."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(await connect(dsn)) for _ in range(number)]


async def install(dsn: str) -> None:
    """Make the tables anew."""
    async with await connect(dsn) as conn:
        await conn.execute(SCHEMA, prepare=False)


async def fill(conn: Connection, jobs: int) -> None:
    """Insert jobs, a thousand in each statement and transaction."""
    for start in range(0, jobs, CHUNK):
        await conn.execute(INSERT, [encode(make(min(CHUNK, jobs - start))).decode()])


async def backlog(dsn: str, jobs: int) -> None:
    """Start from new tables that hold so many due jobs."""
    await install(dsn)
    async with await connect(dsn) as conn:
        await fill(conn, jobs)


async def noop(payload: str) -> None:
    """Do nothing, as the handler of every job here."""


@dataclass
class Loop:
    """What the exchanges of one drain share: what is claimed, what runs, what waits for its completion."""

    jobs: int
    handle: Callable[[Row], Awaitable[None]]
    completes: bool  # the exchange completes the jobs; otherwise each handler has done so
    claimed: int = 0
    running: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    outcomes: list[int] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def pump(self, conn: Connection) -> None:
        """Complete what is done and claim the next batch in one transaction, until nothing is left."""
        done, claim = conn.cursor(binary=True), conn.cursor(binary=True)
        while True:
            while self.running and len(self.outcomes) < BATCH // 2:
                self.changed.clear()
                await self.changed.wait()
            epochs, self.outcomes = self.outcomes, []
            if self.claimed == self.jobs and not epochs:
                return
            async with conn.pipeline(), conn.transaction():
                if epochs and self.completes:
                    await done.execute(COMPLETE, (epochs, WORKER))
                await claim.execute(CLAIM, (QUEUE, BATCH, WORKER))
                rows = await claim.fetchall()
            self.claimed += len(rows)
            for row in rows:
                self.running[row[0]] = asyncio.create_task(self.run(row))

    async def run(self, row: Row) -> None:
        """Handle one job."""
        epoch = row[0]
        try:
            await self.handle(row)
            self.outcomes.append(epoch)
        finally:
            del self.running[epoch]
            if not self.running or len(self.outcomes) >= BATCH // 2:
                self.changed.set()


async def finished(dsn: str, jobs: int) -> None:
    """Check that every job ended."""
    async with await connect(dsn) as conn:
        row = await (await conn.execute("select count(*) from floor.finished")).fetchone()
    if row != (jobs,):
        raise RuntimeError(f"{row} of {jobs} jobs finished")


async def drain(dsn: str, jobs: int) -> float:
    """Return jobs/s while a backlog of no-op jobs is claimed, run and completed in batches."""
    await backlog(dsn, jobs)
    loop = Loop(jobs, lambda row: noop(row[2]), completes=True)
    async with connections(dsn, IN_FLIGHT) as conns:
        start = time.perf_counter()
        await asyncio.gather(*map(loop.pump, conns))
        seconds = time.perf_counter() - start
    await finished(dsn, jobs)
    return jobs / seconds


async def transactional_drain(dsn: str, jobs: int, concurrency: int) -> float:
    """Return jobs/s while each job writes one row and its own completion in one transaction on a pooled connection."""
    await backlog(dsn, jobs)
    async with connections(dsn, concurrency) as conns, await connect(dsn) as claimer:
        pool: asyncio.Queue[Connection] = asyncio.Queue()
        for conn in conns:
            pool.put_nowait(conn)

        async def handle(row: Row) -> None:
            conn = await pool.get()
            try:
                async with conn.transaction():
                    await conn.execute(EFFECT, (row[2],))
                    await conn.execute(COMPLETE, ([row[0]], WORKER))
            finally:
                pool.put_nowait(conn)

        start = time.perf_counter()
        await Loop(jobs, handle, completes=False).pump(claimer)
        seconds = time.perf_counter() - start
    await finished(dsn, jobs)
    return jobs / seconds


async def bulk_insert(dsn: str, jobs: int) -> float:
    """Return jobs/s of inserts of a thousand jobs each; making and encoding them counts."""
    await install(dsn)
    async with await connect(dsn) as conn:
        await fill(conn, CHUNK)
        start = time.perf_counter()
        await fill(conn, jobs)
        return jobs / (time.perf_counter() - start)


async def single_insert(dsn: str, n: int) -> float:
    """Return commits/s of inserts of one job each on one connection; making and encoding it counts."""
    await install(dsn)
    async with await connect(dsn) as conn:
        await conn.execute(INSERT_ONE, one())
        start = time.perf_counter()
        for _ in range(n):
            await conn.execute(INSERT_ONE, one())
        return n / (time.perf_counter() - start)


def one() -> tuple[Any, ...]:
    """Make one job as the parameters of its insert."""
    (job,) = make(1)
    values = msgspec.structs.asdict(job) | {"payload": encode(job.payload).decode()}
    return tuple(values[name] for name in COLUMNS.split(", "))


async def listen_claim_roundtrip(dsn: str, n: int) -> float:
    """Return the median ms from the insert of a job to its row in the hands of a claimer that slept in LISTEN.

    The insert and its notification share one statement and one commit: there is no shorter way.
    """
    await install(dsn)
    async with await connect(dsn) as listener, await connect(dsn) as writer:
        await listener.execute(f"listen {CHANNEL}")
        cursor = listener.cursor(binary=True)

        async def pick_up() -> tuple[float, int]:
            async for _ in listener.notifies(stop_after=1):
                pass
            await cursor.execute(CLAIM, (QUEUE, BATCH, WORKER))
            ((epoch, *_),) = await cursor.fetchall()
            return time.perf_counter(), epoch

        taken: list[float] = []
        for _ in range(n + 1):
            async with asyncio.TaskGroup() as group:
                waiting, job = group.create_task(pick_up()), one()
                await asyncio.sleep(0.02)  # the listener is asleep by now
                start = time.perf_counter()
                await writer.execute(INSERT_ONE_AND_NOTIFY, job)
                end, epoch = await waiting
            taken.append(end - start)
            await writer.execute(COMPLETE, ([epoch], WORKER))
    return statistics.median(taken[1:]) * 1_000  # the first one prepares


async def main() -> None:
    """Print the numbers of the floor alone."""
    parser = argparse.ArgumentParser(prog="python -m bench.floor", description=main.__doc__)
    parser.add_argument(
        "--jobs", type=int, default=50_000, help="jobs in the drain and in the bulk insert (%(default)s)"
    )
    jobs = parser.parse_args().jobs
    with server() as postgres:
        dsn = postgres.database()
        few = max(jobs // 10, 1)
        print(f"drain                   {await drain(dsn, jobs):10,.0f} jobs/s")
        print(f"transactional drain, 16 {await transactional_drain(dsn, few, 16):10,.0f} jobs/s")
        print(f"bulk insert             {await bulk_insert(dsn, jobs):10,.0f} jobs/s")
        print(f"single insert           {await single_insert(dsn, few):10,.0f} commits/s")
        print(f"listen, claim           {await listen_claim_roundtrip(dsn, 200):10.2f} ms")


if __name__ == "__main__":
    uvloop.run(main())
