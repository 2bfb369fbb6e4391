"""Who is who: the parts that people play in a booking or a company, whom to tell, and their addresses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
from psycopg.rows import tuple_row

from mainspring.contrib.notify import Recipient
from mainspring_apps.frame.parts import SYSTEM as SYSTEM
from mainspring_apps.staffing import store
from mainspring_apps.staffing.rules.digests import zone_of
from mainspring_apps.staffing.rules.parts import Part
from mainspring_apps.staffing.store import Conn

#: Whoever causes an event: a user by id, or the marketplace itself.
By = int | Literal["SYSTEM"]
#: What somebody can have a part in, by what it is named by.
SUBJECTS: Final[Mapping[str, Literal["booking", "company", "account"]]] = {
    "booking_id": "booking", "time_log_id": "booking", "dispute_id": "booking", "incident_id": "booking",
    "company_id": "company", "policy_id": "company", "project_id": "company", "worker_id": "company",
    "user_id": "account",  # one's own
}  # fmt: skip
EVERYBODY: Final[tuple[Part, ...]] = (
    "Worker", "Supervisor", "Borrowing Admin", "Borrowing Manager", "Lending Admin", "Lending Manager",
)  # fmt: skip


def parts_of(conn: Conn, by: By, name: str, value: object) -> Sequence[Part]:
    """The parts that somebody plays towards something; what it is about must exist.

    What has no parts of its own, such as a company that is yet to be, knows operators only.
    """
    if by == SYSTEM:
        return [SYSTEM]
    if (subject := SUBJECTS.get(name)) is None:
        return list(store.value(conn, "parts_at_large", by=by) or [])
    others = {known: None for known, kind in SUBJECTS.items() if kind == subject and known != name}
    return store.needed(conn, _Played, f"parts_in_{subject}", **{name: value}, **others, by=by).parts


def known_as(conn: Conn, principal: str) -> int | None:
    """The user as whom `user:NAME` or `token:NAME` comes in over HTTP; None: nobody of this marketplace."""
    found: int | None = store.value(conn, "known_as", principal=principal)
    return found


class _Played(msgspec.Struct, frozen=True):
    parts: list[Part]


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
            recipient_id=id_,
            email=email,
            phone=phone,
            zone=zone_of(zone),
            language=language,
            quiet_from=quiet_from,
            quiet_to=quiet_to,
            opt_out=tuple(opted_out),
        )
        for id_, email, phone, zone, language, quiet_from, quiet_to, opted_out in rows
    ]
