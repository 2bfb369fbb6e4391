"""What somebody may give to others: nothing that they do not have themselves."""

from __future__ import annotations

from typing import Annotated

import msgspec

from mainspring.db.access import Grant
from mainspring.declare.principal import AccessRole
from mainspring.job import SYSTEM
from mainspring.text.texts import MAX_NAME
from mainspring.web.api.asking import Asking
from mainspring.web.api.refused import ApiRefused
from mainspring.web.api.terms import OrgName, Reason

HolderName = Annotated[
    str, msgspec.Meta(min_length=1, max_length=MAX_NAME, description="As the trail has it.", examples=["olga"])
]
Reveals = Annotated[
    bool, msgspec.Meta(description="Whether payloads are shown unmasked, each time with an event in the trail.")
]
OnlyOrg = Annotated[
    OrgName | None, msgspec.Meta(description="The only organisation that exists for them; null: all do.")
]


class NewHolder(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A user or a token that there is not yet. Without an organisation they see what the request is about."""

    name: HolderName
    role: AccessRole = "viewer"
    org: OnlyOrg = None
    reveals: Reveals = False
    reason: Reason = None


def granted(asking: Asking, new: NewHolder) -> Grant:
    """What is to be given, if who asks has it; without an organisation it is the one of the request."""
    grant = Grant(role=new.role, org=new.org or of_request(asking), reveals=new.reveals)
    check_mine(asking, grant)
    return grant


def check_mine(asking: Asking, grant: Grant) -> None:
    """Refuse to give more than who asks may: or they could give it to themselves by way of another."""
    who = asking.principal
    if not (who.may(grant.role) and who.sees(grant.org) and (who.reveals or not grant.reveals)):
        raise ApiRefused(403, "FORBIDDEN", "This is more than you may yourself.")


def of_request(asking: Asking) -> str | None:
    """The organisation of a request about access; None: all."""
    return None if asking.org == SYSTEM else asking.org
