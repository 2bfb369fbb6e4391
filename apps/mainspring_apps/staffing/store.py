"""The marketplace's statements: `store.one(conn, Booking, "booking", booking_id=7)`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from psycopg.errors import UniqueViolation

from mainspring_apps.frame.store import Conn, Store
from mainspring_apps.staffing.states import Refused

__all__ = ["Conn", "column", "do", "many", "needed", "no_other_company_s", "one", "sql", "value"]

_STORE: Final = Store(__package__)
sql, many, one, needed = _STORE.sql, _STORE.many, _STORE.one, _STORE.needed
do, value, column = _STORE.do, _STORE.value, _STORE.column


@contextmanager
def no_other_company_s(field: str) -> Iterator[None]:
    """Refuse what another company has, without a word about that one: it would be charged or paid."""
    try:
        yield
    except UniqueViolation:
        raise Refused(f"{field}: is not one that this company can use", field=field) from None
