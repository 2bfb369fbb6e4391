"""Magic links: tokens that are expired, or unused for a day, are removed every night."""

from __future__ import annotations

import time

import mainspring as ms
from mainspring_apps.frame.setting import rest_of_day
from mainspring_apps.staffing import store
from mainspring_apps.staffing.desk import Desk, log
from mainspring_apps.staffing.registry import MAGIC_LINKS, tasks


@tasks.task(queue=MAGIC_LINKS)
def clean_tokens(desk: Desk, ctx: ms.SyncContext) -> None:
    """Delete useless tokens, a batch a transaction: a run that dies leaves the rest to the next one."""
    began = time.monotonic()
    limit, age = desk.settings.magic_link_delete_batch, desk.settings.magic_link_unused
    expired = unused = batches = 0
    while True:
        with ctx.transaction() as conn:
            rows = store.column(conn, "delete_tokens", limit=limit, unused=age)
        expired += sum(rows)
        unused += len(rows) - sum(rows)
        batches += bool(rows)
        if len(rows) < limit:
            break
        ctx.check()
    about = {"expired": expired, "unused": unused, "batches": batches, "duration": round(time.monotonic() - began, 3)}
    text = "magic links removed: %(expired)s expired, %(unused)s unused, %(batches)s batches, %(duration)s s"
    log.info(text, about, extra=about)


tasks.schedule(
    "magic-link-cleanup",
    lambda desk: ms.daily(desk.settings.cleanup_at),
    clean_tokens,
    within=lambda desk: rest_of_day(desk.settings.cleanup_at),  # caught up on the same day of UTC (STAFF-0.08)
    catch_up="latest",
)
