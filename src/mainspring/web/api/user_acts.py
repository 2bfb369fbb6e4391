"""What is done to one user over HTTP: keep them out, let them in again, give them a link, sign them out."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import msgspec

from mainspring.config import app_url
from mainspring.db import access
from mainspring.db.access import SessionRow, Way
from mainspring.declare.credential import new_secret, sign_in_link
from mainspring.web.api.asking import Asking
from mainspring.web.api.grants import HolderName, check_mine
from mainspring.web.api.paging import PageOf, Paging
from mainspring.web.api.terms import Instant, WithReason
from mainspring.web.api.users import UserView, look, show_user, users


class LinkOrder(WithReason, forbid_unknown_fields=True, kw_only=True):
    """A link for a user; `reset` takes their password and their sessions away besides."""

    reset: bool = False


class ShownLink(msgspec.Struct, frozen=True, kw_only=True):
    """Where a user signs in, once, within 15 minutes; without APP_URL it is below the server's own address."""

    link: Annotated[str, msgspec.Meta(examples=["https://jobs.example/sign-in#code"])]


class SessionView(msgspec.Struct, frozen=True, kw_only=True):
    """Where somebody is signed in: how, from which address, and until when at the latest."""

    id: UUID
    how: Way
    address: str
    created_at: Instant
    seen_at: Instant
    expires_at: Instant


class SignOut(WithReason, forbid_unknown_fields=True, kw_only=True):
    """Which session of a user ends; without an id, all."""

    id: UUID | None = None


class SignedOut(msgspec.Struct, frozen=True, kw_only=True):
    """How many sessions have ended."""

    ended: int


@users.post("/users/{name}/disable", role="admin", about_access=True, if_match="optional")
async def disable_user(asking: Asking, name: HolderName, body: WithReason) -> UserView:
    """Keep somebody out, now: their sessions and links end. Twice is harmless."""
    await look(asking, name)
    await asking.ask(access.change_user(asking.sql, name, {"disabled": True}, asking.who, body.reason))
    return await show_user(asking, name)


@users.post("/users/{name}/enable", role="admin", about_access=True, if_match="optional")
async def enable_user(asking: Asking, name: HolderName, body: WithReason) -> UserView:
    """Let somebody in again, who may no more than who lets them in."""
    _check(asking, await look(asking, name))
    await asking.ask(access.change_user(asking.sql, name, {"disabled": False}, asking.who, body.reason))
    return await show_user(asking, name)


@users.post("/users/{name}/link", role="admin", about_access=True, if_match="optional", keeps=False)
async def create_link(asking: Asking, name: HolderName, body: LinkOrder) -> ShownLink:
    """Make a link by which somebody signs in who may no more than who makes it; the next one makes it void."""
    _check(asking, await look(asking, name))
    if body.reset:
        await asking.ask(access.set_password(asking.sql, name, None, asking.who, body.reason))
    code = new_secret()
    await asking.ask(access.create_link(asking.sql, name, code, asking.who, body.reason))
    return ShownLink(link=sign_in_link(app_url() or "", code))


@users.get("/users/{name}/sessions", role="admin", about_access=True)
async def list_user_sessions(asking: Asking, name: HolderName, page: Paging[UUID]) -> PageOf[SessionView]:
    """Where somebody is signed in."""
    await show_user(asking, name)
    found = sorted(await asking.ask(access.user_sessions(asking.sql, name)), key=lambda session: session.id)
    return page.of([_session(one) for one in found if page.after is None or one.id > page.after], lambda one: one.id)


@users.post("/users/{name}/sessions/end", role="admin", about_access=True)
async def end_user_sessions(asking: Asking, name: HolderName, body: SignOut) -> SignedOut:
    """Sign somebody out, everywhere or of one session."""
    return SignedOut(
        ended=await asking.ask(access.end_user_sessions(asking.sql, name, body.id, asking.who, body.reason))
    )


def _check(asking: Asking, user: UserView) -> None:
    """Whoever could come in as somebody must have what they have."""
    check_mine(asking, access.Grant(role=user.role, org=user.org, reveals=user.reveals))


def _session(row: SessionRow) -> SessionView:
    return SessionView(**{name: getattr(row, name) for name in SessionView.__struct_fields__})
