"""A principal: who asks over HTTP, in which role and for which organisation, as a token or a session says."""

from __future__ import annotations

from dataclasses import dataclass

from mainspring.declare.credential import ACCESS_ROLES as ACCESS_ROLES
from mainspring.declare.credential import AccessRole as AccessRole
from mainspring.job import ActorType


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks.

    >>> Principal("ana", "operator", org="acme").may("viewer")
    True
    """

    name: str  # as the audit trail has it
    role: AccessRole
    org: str | None = None  # the only organisation that exists for them; None: all
    reveals: bool = False  # whether payloads may be shown unmasked, which is an audit event of its own
    actor_type: ActorType = "user"  # api_key: a token asks

    def may(self, role: AccessRole) -> bool:
        """Whether their role includes another."""
        return ACCESS_ROLES.index(self.role) >= ACCESS_ROLES.index(role)
