"""Tokens over HTTP: see, make and revoke what programs come in by."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec

from mainspring.db import access
from mainspring.db.access import TokenRow
from mainspring.declare.credential import TOKEN_LIFETIME
from mainspring.text.span import span_of
from mainspring.web.api.asking import Asking
from mainspring.web.api.grants import NewHolder, granted, of_request
from mainspring.web.api.operation import Resource
from mainspring.web.api.paging import PageOf, Paging
from mainspring.web.api.terms import Instant, SpanText, WithReason

tokens = Resource("tokens", "What programs come in by. A secret is shown once, to whoever makes the token.")

TokenId = Annotated[
    str, msgspec.Meta(pattern="^[0-9a-f]{12}$", description="The id of a token.", examples=["5f2c8a90b1d4"])
]


class NewToken(NewHolder, forbid_unknown_fields=True, kw_only=True):
    """A token that there is not yet. Without an organisation it sees what the request is about."""

    expires: Annotated[SpanText | None, msgspec.Meta(description="How long it is good for; else 90 days.")] = None


class ShownToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token, and what a program shows as `Authorization: Bearer …`: it is not shown again."""

    id: TokenId
    token: str


class RevokedToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token that opens nothing; `revoked` is false where it did so before."""

    id: TokenId
    revoked: bool


@tokens.get("/tokens", role="admin", about_access=True)
async def list_tokens(asking: Asking, page: Paging[tuple[Instant, str]]) -> PageOf[TokenRow]:
    """Every token, the newest first: of all organisations, or of the one that is asked about."""
    found = await asking.ask(access.tokens(asking.sql, of_request(asking)))
    after = None if page.after is None else _place(*page.after)
    rest = sorted(found, key=lambda one: _place(one.created_at, one.id))
    return page.of(
        [one for one in rest if after is None or _place(one.created_at, one.id) > after],
        lambda one: (one.created_at, one.id),
    )


@tokens.post("/tokens", role="admin", about_access=True, status=201, keeps=False)
async def create_token(asking: Asking, body: NewToken) -> ShownToken:
    """Make a token that may no more than who makes it."""
    grant = granted(asking, body)
    lifetime = TOKEN_LIFETIME if body.expires is None else span_of("expires", body.expires)
    made = await asking.ask(access.create_token(asking.sql, body.name, grant, lifetime, asking.who, reason=body.reason))
    return ShownToken(id=made.id, token=made.text)


@tokens.post("/tokens/{id}/revoke", role="admin", about_access=True)
async def revoke_token(asking: Asking, id: TokenId, body: WithReason) -> RevokedToken:
    """End a token, from the next request on."""
    done = await asking.ask(access.revoke_token(asking.sql, id, asking.who, body.reason))
    return RevokedToken(id=id, revoked=done)


def _place(created_at: datetime, id: str) -> tuple[float, str]:
    return -created_at.timestamp(), id
