"""What a search asks for: criteria as people save them, read into exact values; what makes no sense finds nobody."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any, Final

import msgspec

from mainspring_apps.staffing.rules import weeks

#: Zone data says nothing about times far away.
ALWAYS: Final = datetime(1970, 1, 1, tzinfo=UTC)
FOREVER: Final = datetime(2190, 1, 1, tzinfo=UTC)


class Criteria(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"from_": "from"}, omit_defaults=True):
    """A saved search as its JSON says it; the dates are those of the searcher's zone, the last one included."""

    trade: str | None = None
    zip_code: str | None = None
    from_: date | None = None
    to: date | None = None


class Asked(msgspec.Struct, frozen=True):
    """What the query is asked: None is any; with dates the worker must be free between these instants."""

    trade: str | None = None
    zip_code: str | None = None
    starts: datetime | None = None
    ends: datetime | None = None


#: No worker has an empty trade: the query runs, and finds nobody (STAFF-7.12).
NOBODY: Final = Asked(trade="")


def asked(criteria: Mapping[str, Any], zone: str) -> Asked:
    """Read criteria; those that cannot be read, or end before they begin, ask for nobody.

    >>> asked({"trade": "welder", "from": "2026-06-08", "to": "2026-06-08"}, "America/New_York").starts.isoformat()
    '2026-06-08T04:00:00+00:00'
    >>> asked({"trade": 7}, "UTC") is NOBODY
    True
    """
    try:
        said = msgspec.convert(criteria, Criteria)
    except msgspec.ValidationError:
        return NOBODY
    if said.from_ is None and said.to is None:
        return Asked(said.trade, said.zip_code)
    first, last = said.from_ or ALWAYS.date(), said.to or FOREVER.date()
    starts = ALWAYS if first <= ALWAYS.date() else weeks.midnight(min(first, FOREVER.date()), zone)
    ends = FOREVER if last >= FOREVER.date() else weeks.midnight(max(last, ALWAYS.date()) + weeks.DAY, zone)
    return Asked(said.trade, said.zip_code, starts, ends) if starts < ends else NOBODY


def fits(want: Asked, trade: str, zip_code: str) -> bool:
    """Whether a worker's profile is what is asked for; whether the worker is free only the database knows.

    >>> fits(Asked("welder"), "welder", "10001"), fits(Asked("welder", "10002"), "welder", "10001")
    (True, False)
    """
    return want.trade in (None, trade) and want.zip_code in (None, zip_code)
