"""A principal: who asks over HTTP, in which role and for which organisation, as a token or a session says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal["viewer", "operator", "admin"]
ROLES: tuple[Role, ...] = ("viewer", "operator", "admin")  # each may do what those before it may


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks.

    >>> Principal("ana", "operator", org="acme").may("viewer")
    True
    """

    name: str  # as the audit trail has it
    role: Role
    org: str | None = None  # the only organisation that exists for them; None: all
    reveals: bool = False  # whether payloads may be shown unmasked, which is an audit event of its own

    def may(self, role: Role) -> bool:
        """Whether their role includes another."""
        return ROLES.index(self.role) >= ROLES.index(role)
