"""Who may cause what: the table, and what refuses an event that does not keep to it."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring.errors import ConfigurationError
from mainspring_apps.frame.events import Events
from mainspring_apps.frame.parts import SYSTEM, lines
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.events import EVENTS
from mainspring_apps.staffing.people import SUBJECTS, By, parts_of
from mainspring_apps.staffing.rules.parts import MAY
from mainspring_apps.staffing.store import Conn
from mainspring_apps.staffing.web import ENDPOINTS


@pytest.mark.rule("STAFF-20.10")
def test_every_event_has_its_lines_every_line_its_event_and_what_is_served_is_an_event() -> None:
    assert {line for event in EVENTS.declared for line in lines(MAY, event)} == set(MAY)
    assert {endpoint.event for endpoint in ENDPOINTS} <= set(EVENTS.declared.values())


@pytest.mark.rule("STAFF-20.10")
def test_an_event_without_a_line_or_without_anybody_who_acts_is_no_event() -> None:
    def take_it_all(desk: Desk, conn: Conn, booking_id: int, *, by: By) -> None: ...

    def refused(act: Any, why: str) -> None:
        with pytest.raises(ConfigurationError, match=why):
            events.event(act)

    events = EVENTS
    refused(take_it_all, "take_it_all: has no line in the table of parts")
    events = Events[Desk]({"take_it_all": {"Worker"}}, parts_of, about=SUBJECTS, at_large={SYSTEM})

    def silent(desk: Desk, conn: Conn, booking_id: int) -> None: ...
    def careless(desk: Desk, conn: Conn, booking_id: int, *, by: By = "SYSTEM") -> None: ...
    def afar(desk: Desk, conn: Conn, moon_id: int, *, by: By) -> None: ...

    for act, why in ((silent, "by is missing"), (careless, "or has a default"), (afar, "a part in a moon_id")):
        act.__name__ = "take_it_all"
        refused(act, why)
    events.event(take_it_all)
    refused(take_it_all, "is declared twice")
