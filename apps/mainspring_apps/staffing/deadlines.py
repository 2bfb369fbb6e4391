"""Messages that name a deadline: once it is over, or what they ask for is done, they are not sent (STAFF-14.07)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from psycopg.rows import tuple_row

from mainspring.contrib.notify import Notification, Template
from mainspring_apps.staffing import store
from mainspring_apps.staffing.languages import instant_of


def ending(templates: Iterable[Template]) -> list[Template]:
    """The templates, of which one that names a deadline asks right before it is sent whether it still holds."""
    return [replace(one, still=_still_due) if one.name == "action_required" else one for one in templates]


async def _still_due(conn: Any, note: Notification) -> bool:
    """Whether a payment that failed can still be made good until the instant that its message names."""
    if "payment_id" not in note.data:  # nothing to look up: rather told once too often than not at all
        return True
    about = {"payment_id": note.data["payment_id"], "until": instant_of(note.data["Cutoff"])}
    async with conn.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(store.sql["still_due"], about)
        row = await cursor.fetchone()
    return row is not None and bool(row[0])
