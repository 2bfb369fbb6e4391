"""The events of the marketplace: `@event` declares one, whose lines in `rules/parts.py` say who may cause it."""

from __future__ import annotations

from typing import Final

from mainspring_apps.frame.events import Events
from mainspring_apps.frame.parts import SYSTEM
from mainspring_apps.staffing import people
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.rules.parts import MAY

#: All of them, by their names in `EVENTS.declared`.
EVENTS: Final = Events[Desk](MAY, people.parts_of, about=people.SUBJECTS, at_large={"Platform Operator", SYSTEM})
event = EVENTS.event
