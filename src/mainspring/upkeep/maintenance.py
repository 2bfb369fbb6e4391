"""Housekeeping as ordinary tasks and schedules, of the organisation SYSTEM, on q:maintenance.

Every `App` includes them, unless it says `maintenance=False`. One run removes at most a batch, and commits it together
with its own success; while there is more, it enqueues the next run with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from mainspring.config import DEFAULT_SCHEMA, Retention
from mainspring.db.alerts import untold
from mainspring.db.gauges import Dead, gauges
from mainspring.db.maintenance import SWEEPS, Sweep, alone, begin, end
from mainspring.db.wire.run import async_psycopg_door, run_async
from mainspring.db.wire.sql import Sql
from mainspring.declare.context import Context
from mainspring.declare.registry import ENGINE_REGISTRY, Registry
from mainspring.declare.task import Task
from mainspring.events import Alert, Observer, tell
from mainspring.job import SYSTEM
from mainspring.when.rule import Rule, every

if TYPE_CHECKING:
    from mainspring.observe.alerts import Alerts

#: Between two batches, so that others get a turn.
MAINTENANCE_PAUSE: Final = timedelta(seconds=1)
HEARTBEAT: Final = "mainspring.heartbeat"
MAINTENANCE_RULES: Final[dict[str, Rule]] = {
    "prune_jobs": every(minutes=15),
    "prune_keys": every(hours=1),
    "prune_fires": every(hours=6),
    "prune_inbound": every(hours=6),
    "prune_deliveries": every(hours=6),
    "prune_notifications": every(hours=6),
    "prune_alerts": every(hours=6),
    "prune_access": every(hours=1),
    "prune_requests": every(hours=1),
    "forget_workers": every(hours=1),
    "forget_buckets": every(hours=6),
}


class Housekeeping(Registry):
    """The engine's own tasks: the one registry that may bear its name."""


def maintenance(
    keep: Retention | None = None,
    *,
    schema: str = DEFAULT_SCHEMA,
    observers: Sequence[Observer] = (),
    told: Iterable[Observer] = (),
) -> Registry:
    """The tasks and schedules that keep the engine's own tables small and its heart beating.

    `told` hear of the alerts that were opened and closed in transactions of others.
    """
    tasks, sql, keep = Housekeeping(ENGINE_REGISTRY), Sql(schema), keep or Retention()
    for name, sweep in SWEEPS.items():
        _schedule(tasks, MAINTENANCE_RULES[name], _sweeper(tasks, name, sweep, sql, keep))

    @tasks.task(name=HEARTBEAT, category="maintenance", encrypt=False)
    async def heartbeat() -> None:
        """Show that jobs are fired, claimed, run and completed: `mainspring doctor` notices when it stops."""

    _schedule(tasks, every(minutes=1), heartbeat)
    firing: list[Alerts] = []  # what this process has told of

    @tasks.task(name="mainspring.check_tables", category="maintenance", encrypt=False)
    async def check_tables(ctx: Context) -> None:
        """Look whether dead rows pile up, and whether something keeps them from being removed."""
        from mainspring.observe.alerts import Alerts, wrong

        async with ctx.complete() as conn:
            found = await run_async(async_psycopg_door(conn), gauges(sql, cap=1))
        found = replace(found, lanes=[], workers=1, dead=Dead(open=0, oldest_s=None), heartbeat_s=None)
        firing[:] = firing or [Alerts(observers)]
        firing[0].look(found)  # tells what has changed
        for (name, _), text in wrong(found):
            ctx.log.warning("%s: %s", name, text)

    _schedule(tasks, every(minutes=10), check_tables)

    @tasks.task(name="mainspring.tell_alerts", category="maintenance", encrypt=False)
    async def tell_alerts(ctx: Context) -> None:
        """Tell observers of alerts that were opened or closed in a transaction whose commit nobody told."""
        async with ctx.complete() as conn:
            door, events = async_psycopg_door(conn), list[Alert]()
            if await run_async(door, begin(sql, ctx.job.task)):
                events = await run_async(door, untold(sql))
            await run_async(door, end(sql, ctx.job.org_id))
        tell(told, events)

    _schedule(tasks, every(minutes=1), tell_alerts)
    return tasks


def _sweeper(tasks: Registry, name: str, sweep: Sweep, sql: Sql, keep: Retention) -> Task[..., Any]:
    """The task that does one sweep after another until nothing is left to remove."""

    async def run(ctx: Context) -> None:
        async with ctx.complete() as conn:
            flow = alone(sql, task.name, ctx.job.org_id, sweep(sql, keep))
            removed = await run_async(async_psycopg_door(conn), flow)
            if removed >= keep.batch:
                await ctx.enqueue(task.job().for_org(SYSTEM).with_key(task.name).after(MAINTENANCE_PAUSE))
            ctx.result = {"removed": removed}

    run.__doc__ = sweep.__doc__
    task: Task[..., Any] = tasks.task(name=f"mainspring.{name}", category="maintenance", encrypt=False)(run)
    return task


def _schedule(tasks: Registry, rule: Rule, task: Task[..., Any]) -> None:
    tasks.schedule(task.name, rule, task, org=SYSTEM, running="skip", catch_up="skip")
