"""The statements of rental: `store.one(conn, Invoice, "invoice", booking_id=7)`."""

from __future__ import annotations

from typing import Final

from mainspring_apps.frame.store import Conn, Store

__all__ = ["Conn", "column", "do", "many", "needed", "one", "sql", "value"]

_STORE: Final = Store(__package__)
sql, many, one, needed = _STORE.sql, _STORE.many, _STORE.one, _STORE.needed
do, value, column = _STORE.do, _STORE.value, _STORE.column
