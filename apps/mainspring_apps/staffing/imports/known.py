"""What was imported, by the name that it has at home; each row and its money in one transaction with that."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import psycopg
from psycopg.types.json import Jsonb

import mainspring as ms
from mainspring.text.texts import shown
from mainspring_apps.staffing import store
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.imports.columns import Noun, Raw
from mainspring_apps.staffing.imports.report import RowReport
from mainspring_apps.staffing.states import Refused
from mainspring_apps.staffing.store import Conn

#: What makes a row no row of ours, and leaves the others as they are.
UNFIT = (ms.ValidationError, psycopg.errors.DataError, psycopg.errors.IntegrityError)


class _Known(msgspec.Struct, frozen=True):
    id: int
    source: dict[str, str | None]


def hold(conn: Conn) -> None:
    """Nobody else imports before this transaction ends."""
    store.do(conn, "lock_imported")


def before(conn: Conn, view: Noun, raw: Raw) -> RowReport | None:
    """What becomes of a row that was imported before; None: it was not."""
    name = raw["external_id"]
    known = store.one(conn, _Known, "imported", kind=view, external_id=name)
    if known is None:
        return None
    for field, value in raw.items():
        if known.source.get(field) != value:
            was, now = (shown(text) if text is not None else "null" for text in (known.source.get(field), value))
            return RowReport(
                view=view, external_id=name, became="changed", id=known.id, field=field, reason=f"was {was}, is {now}"
            )
    return RowReport(view=view, external_id=name, became="unchanged", id=known.id)


def remember(conn: Conn, view: Noun, raw: Raw, id_: int) -> RowReport:
    """From now on this row is known as that one."""
    source = Jsonb(dict(raw))
    store.do(conn, "remember_imported", kind=view, external_id=raw["external_id"], id=id_, source=source)
    return RowReport(view=view, external_id=raw["external_id"], became="imported", id=id_)


def id_of(conn: Conn, field: str, view: Noun, external_id: str) -> int:
    """The row here of something that another row names."""
    found: int | None = store.value(conn, "imported", kind=view, external_id=external_id)
    if found is None:
        raise Refused(f"{field}: {shown(external_id)} of {view} is not imported", field=field)
    return found


def refused(view: Noun, raw: Raw, error: Exception) -> RowReport:
    """A row that is not imported, and why."""
    field = getattr(error, "field", None)
    reason = str(error).partition("\n")[0].removeprefix(f"{field}: ")
    return RowReport(view=view, external_id=raw["external_id"], became="refused", field=field, reason=reason)


def alone(desk: Desk, conn: Conn, view: Noun, raw: Raw, make: Callable[[Desk, Conn, Raw], int]) -> RowReport:
    """Import one row in a transaction of its own, unless it was imported before."""
    try:
        with conn.transaction():
            hold(conn)
            return before(conn, view, raw) or remember(conn, view, raw, make(desk, conn, raw))
    except UNFIT as error:
        return refused(view, raw, error)
