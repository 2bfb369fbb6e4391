"""The events of a rental company: `@event` declares one, whose line in `rules/parts.py` says who may cause it."""

from __future__ import annotations

from typing import Final, get_args

from mainspring_apps.frame.events import Events
from mainspring_apps.rental.desk import Desk
from mainspring_apps.rental.people import parts_of
from mainspring_apps.rental.rules.parts import MAY, Part

EVENTS: Final = Events[Desk](MAY, parts_of, about=(), at_large=get_args(Part))
event = EVENTS.event
