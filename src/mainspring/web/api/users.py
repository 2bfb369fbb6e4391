"""Users over HTTP: see them, let them in, say what they may."""

from __future__ import annotations

from typing import Any

import msgspec

from mainspring.db import access
from mainspring.db.access import UserRow, Way
from mainspring.declare.principal import AccessRole
from mainspring.web.api.asking import Asking
from mainspring.web.api.grants import HolderName, NewHolder, OnlyOrg, Reveals, check_mine, granted, of_request
from mainspring.web.api.operation import Resource
from mainspring.web.api.paging import PageOf, Paging
from mainspring.web.api.refused import not_found
from mainspring.web.api.terms import Instant, Reason
from mainspring.web.api.version import Versioned

users = Resource("users", "People who sign in, what they may, and where they are signed in.")


class UserView(Versioned, frozen=True, kw_only=True):
    """A user, without what they know; `sessions` is how many they have now."""

    name: HolderName
    role: AccessRole
    org: OnlyOrg
    reveals: Reveals
    signs_in_by: Way
    created_at: Instant
    created_by: str
    disabled_at: Instant | None
    signed_in_at: Instant | None
    sessions: int

    def version(self) -> tuple[Any, ...]:
        """What people say of them."""
        return self.name, self.role, self.org, self.reveals, self.disabled_at


class NewUser(NewHolder, forbid_unknown_fields=True, kw_only=True):
    """A user that there is not yet. Without an organisation they see what the request is about."""


class UserRule(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What a user may, as a whole: nothing of it is left out, so that nothing is given by forgetting it."""

    role: AccessRole
    org: OnlyOrg
    reveals: Reveals
    reason: Reason = None


@users.get("/users", role="admin", about_access=True)
async def list_users(asking: Asking, page: Paging[str]) -> PageOf[UserView]:
    """Every user by name: of all organisations, or of the one that is asked about."""
    found = sorted(await asking.ask(access.users(asking.sql, of_request(asking))), key=lambda user: user.name)
    rest = [_view(row) for row in found if row.name > (page.after or "")]
    return page.of(rest, lambda user: user.name)


@users.get("/users/{name}", role="admin", about_access=True)
async def show_user(asking: Asking, name: HolderName) -> UserView:
    """One user."""
    for row in await asking.ask(access.users(asking.sql, of_request(asking))):
        if row.name == name:
            return _view(row)
    raise not_found()


@users.post("/users", role="admin", about_access=True, status=201, refuses=(409,))
async def create_user(asking: Asking, body: NewUser) -> UserView:
    """Let somebody in, who may no more than who lets them in; they sign in by a link.

    Names are the whole database's: one that a user of another organisation has is refused, too.
    """
    grant = granted(asking, body)
    await asking.lock("user", body.name)
    await asking.ask(access.create_user(asking.sql, body.name, grant, None, asking.who, body.reason))
    return await show_user(asking, body.name)


@users.put("/users/{name}", role="admin", about_access=True, if_match="required")
async def change_user(asking: Asking, name: HolderName, body: UserRule) -> UserView:
    """Say anew what somebody may, from their next request on."""
    before = await look(asking, name)
    for one in (before, body):
        check_mine(asking, access.Grant(role=one.role, org=one.org, reveals=one.reveals))
    change = {"role": body.role, "org": body.org, "reveals": body.reveals}
    await asking.ask(access.change_user(asking.sql, name, change, asking.who, body.reason))
    return await show_user(asking, name)


async def look(asking: Asking, name: str) -> UserView:
    """A user as they stay until the request is over, compared with what was seen."""
    await asking.lock("user", name)
    found = await show_user(asking, name)
    asking.match(found)
    return found


def _view(row: UserRow) -> UserView:
    return UserView(**msgspec.structs.asdict(row))
