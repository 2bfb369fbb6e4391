"""The daily check: each confirmed booking has its invoice and its mails, or a reason that is listed (RENT-11.01)."""

from __future__ import annotations

from typing import Any

import mainspring as ms
from mainspring_apps.rental import store
from mainspring_apps.rental.desk import Desk
from mainspring_apps.rental.registry import CHECKOUTS, desk_tasks


@desk_tasks.task(queue=CHECKOUTS)
def check_bookings(desk: Desk, ctx: ms.SyncContext) -> Any:
    """Open an alert for each booking that lacks something and says nowhere why; answers how many."""
    with ctx.complete() as conn:
        found = store.many(conn, dict[str, Any], "unexplained")
        for one in found:
            text = f"it is confirmed, and lacks without a reason: {', '.join(one['lacking'])}"
            desk.alert(conn, "booking_incomplete", desk.subject(one["id"]), text, critical=True, **one)
        ctx.result = len(found)


desk_tasks.schedule(
    "check-bookings", lambda desk: ms.daily(desk.settings.check_at, zone=desk.settings.zone), check_bookings,
    catch_up="latest",
)  # fmt: skip
