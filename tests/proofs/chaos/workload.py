"""The tasks of the crash test: each leaves one effect, through its own transaction or in the worker's journal."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from tests.proofs.chaos.journal import Attempts

import mainspring as ms

#: No constraint on the job's id: a double effect must be seen, not prevented.
LEDGER = """
create table ledger (
  job_id uuid not null, epoch bigint not null, key text, pid integer not null,
  at timestamptz not null default clock_timestamp()
)
"""
INSERT = "insert into ledger (job_id, epoch, key, pid) values (%s, %s, %s, %s)"

#: The run breaks many attempts on purpose, and waits for the last job.
PATIENT = ms.fixed(0.2, attempts=100)

tasks = ms.Registry("chaos")
_journal: Attempts


def open_journal(folder: Path) -> None:
    """Begin the journal of this process."""
    global _journal
    _journal = Attempts(folder)


@tasks.task(retry=PATIENT)
async def effect(ctx: ms.Context, *, pause: float) -> None:
    """Write one row, with pauses before and after it for faults to strike in."""
    with _journal.attempt(ctx):
        await asyncio.sleep(pause)
        async with ctx.complete() as conn:
            await conn.execute(INSERT, [ctx.job.id, ctx.epoch, ctx.job.key, os.getpid()])
            await asyncio.sleep(pause / 4)


@tasks.task(retry=PATIENT)
def effect_in_thread(ctx: ms.SyncContext, *, pause: float) -> None:
    """The same in a thread, which nobody can interrupt: after a freeze it runs straight into the fence."""
    with _journal.attempt(ctx):
        time.sleep(pause)
        with ctx.complete() as conn:
            conn.execute(INSERT, [ctx.job.id, ctx.epoch, ctx.job.key, os.getpid()])
            time.sleep(pause / 4)


@tasks.task(retry=PATIENT)
async def plain(ctx: ms.Context, *, pause: float) -> None:
    """No transaction: the worker completes it in a batch; its effect happens at least once."""
    await asyncio.sleep(pause)
    _journal.write("plain", ctx.job.id, ctx.epoch, repr(time.time()))
