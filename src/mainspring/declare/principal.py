"""A principal: who asks over HTTP, in which role and for which organisation, as a token or a session says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from mainspring.declare.credential import ACCESS_ROLES as ACCESS_ROLES
from mainspring.declare.credential import AccessRole as AccessRole
from mainspring.errors import DeclarationError
from mainspring.job import ActorType

#: Where a request carries its principal, in the scope of ASGI.
PRINCIPAL: Final = "mainspring.principal"


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
    token: str | None = None  # its id: tokens may share a name
    program: str | None = None  # the setting whose value they showed: who knows it says itself for whom it acts

    def may(self, role: AccessRole) -> bool:
        """Whether their role includes another."""
        return ACCESS_ROLES.index(self.role) >= ACCESS_ROLES.index(role)

    @property
    def key(self) -> tuple[str, str, str | None]:
        """What tells who asks from all others: a name alone may be a user's and several tokens'.

        >>> Principal("ana", "viewer").key == Principal("ana", "viewer", org="acme").key
        False
        """
        return self.actor_type, self.token or self.name, self.org

    def sees(self, org: str | None) -> bool:
        """Whether an organisation exists for them; None, what is everybody's, does for those who see all.

        >>> [Principal("ana", "viewer", org="acme").sees(org) for org in ("acme", "globex", None)]
        [True, False, False]
        """
        return self.org is None or self.org == org


def who_asks(request: Any) -> Principal:
    """Who asks for a route that is declared by `by_role` or `by_token`, by a token and a session alike.

    ::

        async def orders(request: Request) -> Response:
            person = who_asks(request)
    """
    found = request.scope.get(PRINCIPAL)
    if not isinstance(found, Principal):
        raise DeclarationError("nobody is asked who they are on a public route: declare it by_role(route, 'viewer')")
    return found
