"""The import: every row of every view in its turn. It can be ended and begun again at any row."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Final

from mainspring.text.texts import shown
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.imports import known, running
from mainspring_apps.staffing.imports.columns import Raw
from mainspring_apps.staffing.imports.directory import MAKERS
from mainspring_apps.staffing.imports.report import RowReport
from mainspring_apps.staffing.imports.source import Views
from mainspring_apps.staffing.states import Refused
from mainspring_apps.staffing.store import Conn

#: An id of somebody else's.
_LONGEST_NAME: Final = 200


def run(
    desk: Desk, conn: Conn, source: Views, *, dry_run: bool = False, tell: Callable[[RowReport, int, int], None]
) -> list[RowReport]:  # fmt: skip
    """Import what views say, and tell what became of each row as it happens.

    Each row is a transaction of its own, and so is a booking with its shifts. A dry run is the same, undone at the end.
    """
    size, reports = sum(map(len, source.values())), list[RowReport]()
    with conn.transaction(force_rollback=True) if dry_run else nullcontext():
        for report in _rows(desk, conn, source):
            reports.append(report)
            tell(report, len(reports), size)
    return reports


def _rows(desk: Desk, conn: Conn, source: Views) -> Iterator[RowReport]:
    for view, make in MAKERS.items():
        twice = _unclear(source[view])
        for raw in source[view]:
            problem = _named(raw, twice)
            yield known.refused(view, raw, problem) if problem else known.alone(desk, conn, view, raw, make)
    yield from _bookings(desk, conn, source)


def _bookings(desk: Desk, conn: Conn, source: Views) -> Iterator[RowReport]:
    shifts: dict[str | None, list[Raw]] = defaultdict(list)
    unclear, twice = _unclear(source["shifts"]), _unclear(source["bookings"])
    for raw in source["shifts"]:
        shifts[raw["booking_id"]].append(raw)
    for raw in source["bookings"]:
        problem = _named(raw, twice)
        own = shifts.pop(raw["external_id"], []) if problem is None else []
        bad = {id(shift): found for shift in own if (found := _named(shift, unclear))}
        if problem is None and not bad:
            yield from running.bring_in(desk, conn, raw, own)
            continue
        yield from running.kept_out(raw, own, running.WrongShifts(bad, problem))
    for name, left in shifts.items():
        why = Refused(
            f"booking_id: there is no booking {shown(name or 'null')} that it could be of", field="booking_id"
        )
        yield from (known.refused("shifts", raw, why) for raw in left)


def _unclear(raws: list[Raw]) -> set[str | None]:
    """The ids that more than one row has."""
    return {name for name, times in Counter(raw["external_id"] for raw in raws).items() if times > 1}


def _named(raw: Raw, twice: set[str | None]) -> Refused | None:
    """What is wrong with the id of a row."""
    name = raw["external_id"]
    if not name or not name.strip():
        return Refused("external_id: is missing", field="external_id")
    if len(name) > _LONGEST_NAME:
        return Refused(f"external_id: is longer than {_LONGEST_NAME} characters", field="external_id")
    return Refused("external_id: is that of another row as well", field="external_id") if name in twice else None
