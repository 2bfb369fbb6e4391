"""Who is told: the people of a booking by the part that they play, and their addresses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

from psycopg.rows import tuple_row

from mainspring.contrib.notify import Recipient
from mainspring_apps.staffing import store
from mainspring_apps.staffing.rules.digests import zone_of
from mainspring_apps.staffing.store import Conn

Part = Literal["Worker", "Supervisor", "Borrowing Admin", "Borrowing Manager", "Lending Admin", "Lending Manager"]
EVERYBODY: Final[tuple[Part, ...]] = (
    "Worker", "Supervisor", "Borrowing Admin", "Borrowing Manager", "Lending Admin", "Lending Manager",
)  # fmt: skip


def people(conn: Conn, booking_id: int, *parts: Part) -> list[int]:
    """The users who play these parts, each once; without a supervisor the Borrowing Admin (STAFF-14.12)."""
    with conn.cursor(row_factory=tuple_row) as cursor:
        rows = cursor.execute(store.sql["people_of_booking"], {"booking_id": booking_id}).fetchall()
    by_part: dict[str, list[int]] = {}
    for part, user in rows:
        by_part.setdefault(part, []).append(user)
    found: list[int] = []
    for part in parts:
        chosen = by_part.get(part, [])
        if part == "Supervisor" and not chosen:
            chosen = by_part.get("Borrowing Admin", [])
        found += chosen
    return list(dict.fromkeys(found))


def of_company(conn: Conn, company_id: int, *roles: Literal["Admin", "Manager"]) -> list[int]:
    """The users of a company with these roles."""
    return store.column(conn, "people_of_company", company_id=company_id, roles=list(roles))


def worker_name(conn: Conn, worker_id: int) -> str:
    """How a worker is called."""
    return str(store.value(conn, "worker_name", worker_id=worker_id))


async def recipients(conn: Any, org: str, ids: Sequence[str]) -> Iterable[Recipient]:
    """Where messages to users go, as the marketplace's own table says right before each is sent."""
    known = [id_ for id_ in ids if id_.isdecimal()]
    async with conn.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(store.sql["recipients"], {"ids": known})
        rows = await cursor.fetchall()
    return [
        Recipient(
            recipient_id=id_, email=email, phone=phone, zone=zone_of(zone), quiet_from=quiet_from, quiet_to=quiet_to
        )
        for id_, email, phone, zone, quiet_from, quiet_to in rows
    ]
