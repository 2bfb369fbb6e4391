"""Who acts: somebody who is signed in, with the role of their login, or the company itself (RENT-20.04)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from mainspring.declare.principal import AccessRole, Principal
from mainspring_apps.frame.parts import SYSTEM as SYSTEM
from mainspring_apps.rental.store import Conn


@dataclass(frozen=True, slots=True)
class Staff:
    """Somebody of the company; the name is what the audit trail has."""

    name: str
    role: AccessRole

    def __str__(self) -> str:
        return self.name


#: A customer acts by a signed link alone, and only on their own document.
By = Staff | Literal["SYSTEM", "customer"]
CUSTOMER: Final = "customer"


def parts_of(conn: Conn, by: Any, name: str, value: object) -> Sequence[str]:
    """The part of somebody: their role, whatever an event is about."""
    return [by] if by in (SYSTEM, CUSTOMER) else [by.role]


def known_as(conn: Conn, who: Principal) -> Staff:
    """Who somebody is who comes in over HTTP."""
    return Staff(who.name, who.role)
