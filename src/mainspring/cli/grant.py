"""What somebody may, as commands about people and tokens say and show it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from mainspring.declare.credential import AccessRole

if TYPE_CHECKING:
    from mainspring.db.access import Grant


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class GrantOptions:
    """What a new user or token may."""

    role: AccessRole = "viewer"
    """Member (of an application alone), viewer, operator or admin, each with the rights of those before it."""

    org: str | None = None
    """The only organisation that exists for who has it; else all."""

    reveals: Annotated[bool, Parameter(negative="", show_default=False)] = False
    """Show payloads unmasked, each time with an event in the trail."""

    def grant(self) -> Grant:
        """As the database takes it."""
        from mainspring.db.access import Grant

        return Grant(role=self.role, org=self.org, reveals=self.reveals)


UNSAID_GRANT = GrantOptions()


def may_see(grant: Grant) -> str:
    """The organisations of a token or a user, and whether payloads are shown as they are."""
    return (grant.org or "all") + (", payloads" if grant.reveals else "")
