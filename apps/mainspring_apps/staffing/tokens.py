"""Magic links: tokens that are expired, or unused for a day, are removed every night."""

from __future__ import annotations

import time
from datetime import timedelta

import mainspring as ms
from mainspring_apps.staffing import store
from mainspring_apps.staffing.desk import Desk, log
from mainspring_apps.staffing.registry import MAGIC_LINKS, tasks
from mainspring_apps.staffing.settings import MAGIC_LINK_DELETE_BATCH, MAGIC_LINK_UNUSED, RETRY, TASK_TIMEOUT


@tasks.task(queue=MAGIC_LINKS, retry=RETRY, timeout=TASK_TIMEOUT)
def clean_tokens(desk: Desk, ctx: ms.SyncContext) -> None:
    """Delete useless tokens, a batch a transaction: a run that dies leaves the rest to the next one."""
    began = time.monotonic()
    expired = unused = batches = 0
    while True:
        with ctx.transaction() as conn:
            rows = store.column(conn, "delete_tokens", limit=MAGIC_LINK_DELETE_BATCH, unused=MAGIC_LINK_UNUSED)
        expired += sum(rows)
        unused += len(rows) - sum(rows)
        batches += bool(rows)
        if len(rows) < MAGIC_LINK_DELETE_BATCH:
            break
        ctx.check()
    about = {"expired": expired, "unused": unused, "batches": batches, "duration": round(time.monotonic() - began, 3)}
    text = "magic links removed: %(expired)s expired, %(unused)s unused, %(batches)s batches, %(duration)s s"
    log.info(text, about, extra=about)


#: Missed, it is caught up on the same day of UTC (STAFF-0.08).
SAME_DAY = timedelta(hours=22)

tasks.schedule("magic-link-cleanup", ms.daily("02:00"), clean_tokens, within=SAME_DAY, catch_up="latest")
