"""Who comes in over HTTP: tokens, users, their sessions and one-time links, as dialogues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypeVar
from uuid import UUID

import msgspec

from mainspring.db.jobs import Who, check_texts, why
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue, Params, Row, Statement, ask, nothing, scalar
from mainspring.declare.credential import ACCESS_ROLES, AccessRole, AccessToken, secret_digest
from mainspring.declare.password import PasswordRecipe, check_password
from mainspring.errors import NameTaken, UnknownName, ValidationError
from mainspring.text.texts import MAX_NAME, holder_problem

T = TypeVar("T")
TokenState = Literal["active", "expired", "revoked"]
Way = Literal["password", "link", "proxy", "oidc"]
Voucher = Literal["proxy", "oidc"]

#: Where a token or a user is bound to no organisation.
EVERY_ORG: Final = None


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody may: as which role, in which organisation (None: all), and whether payloads are shown unmasked."""

    role: AccessRole
    org: str | None = EVERY_ORG
    reveals: bool = False

    def params(self) -> Params:
        """As a statement takes it."""
        check_texts(MAX_NAME, org=self.org)
        if self.role not in ACCESS_ROLES:
            raise ValidationError(f"role: is not one of {', '.join(ACCESS_ROLES)}", field="role")
        return {"role": self.role, "only_org": self.org, "reveals": str(self.reveals)}


class AccessHolder(Grant, frozen=True, kw_only=True):
    """Who asks, as a token or a session says."""

    name: str
    token: str | None = None  # its id, where a token asks
    session: UUID | None = None
    how: Way | None = None  # of a session


class TokenRow(Grant, frozen=True, kw_only=True):
    """A token, without its secret."""

    id: str
    name: str
    state: TokenState
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    used_at: datetime | None
    revoked_at: datetime | None


class UserRow(Grant, frozen=True, kw_only=True):
    """A user, without what they know."""

    name: str
    signs_in_by: Way
    created_at: datetime
    created_by: str
    disabled_at: datetime | None
    signed_in_at: datetime | None
    sessions: int


class SessionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A session, and whether it is the one that asks."""

    id: UUID
    how: Way
    address: str
    created_at: datetime
    seen_at: datetime
    expires_at: datetime
    current: bool


class SignInTry(msgspec.Struct, frozen=True, kw_only=True):
    """Whether somebody may try to sign in: for how many seconds they must wait, and how their password is made."""

    wait: int
    recipe: str | None


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """A session that is to be opened: its secret, where it is asked for, and the one that the browser had before."""

    secret: str
    address: str
    before: str | None = None

    def params(self) -> Params:
        """As a statement takes it."""
        before = None if self.before is None else secret_digest(self.before)
        return {"digest": secret_digest(self.secret), "address": self.address, "before": before}


_holder = msgspec.json.Decoder(AccessHolder).decode
_token = msgspec.json.Decoder(TokenRow).decode
_user = msgspec.json.Decoder(UserRow).decode
_session = msgspec.json.Decoder(SessionRow).decode
_try = msgspec.json.Decoder(SignInTry).decode


# -- tokens


def create_token(
    sql: Sql, name: str, grant: Grant, lifetime: timedelta | None, who: Who, reason: str | None = None
) -> Dialogue[AccessToken]:
    """Make a token, which is shown this once."""
    _check_holder(name)
    token = AccessToken.new()
    params = _acting(who, reason) | grant.params() | {"id": token.id, "name": name}
    params |= {"digest": secret_digest(token.secret)}
    params |= {"lifetime": None if lifetime is None else f"{lifetime.total_seconds()} s"}
    yield from ask(Statement(sql["create_token"], params, nothing))
    return token


def revoke_token(sql: Sql, token: str, who: Who, reason: str | None = None) -> Dialogue[bool]:
    """End a token by its id; False: it was revoked before."""
    known = token.removeprefix("mst_").partition(".")[0]
    done: bool | None = yield from ask(Statement(sql["revoke_token"], _acting(who, reason) | {"id": known}, scalar))
    if done is None:
        raise UnknownName("id: no token has this id: see `mainspring token list`", field="id")
    return done


def tokens(sql: Sql, org: str | None = EVERY_ORG) -> Dialogue[list[TokenRow]]:
    """Every token, or those that are bound to an organisation."""
    return (yield from ask(Statement(sql["list_tokens"], {"only_org": org}, _each(_token))))


def check_token(sql: Sql, token: AccessToken) -> Dialogue[AccessHolder | None]:
    """Who has a token; None: nobody any more, or nobody ever."""
    params: Params = {"id": token.id, "digest": secret_digest(token.secret)}
    return (yield from ask(Statement(sql["check_token"], params, _one)))


# -- users


def create_user(
    sql: Sql, name: str, grant: Grant, password: str | None, who: Who, reason: str | None = None
) -> Dialogue[None]:
    """Let somebody in, by a password or by links alone."""
    _check_holder(name)
    params = _acting(who, reason) | grant.params() | {"name": name} | _kept(password)
    if not (yield from ask(Statement(sql["create_user"], params, scalar))):
        raise NameTaken("name: is taken by another user", field="name")


def change_user(sql: Sql, name: str, change: dict[str, Any], who: Who, reason: str | None = None) -> Dialogue[bool]:
    """Change `role`, `org`, `reveals` or `disabled`; what is not named stays. False: it was so before."""
    params = _acting(who, reason) | {"name": name, "change": msgspec.json.encode(change).decode()}
    done: bool | None = yield from ask(Statement(sql["change_user"], params, scalar))
    if done is None:
        raise _nobody(name)
    return done


def set_password(sql: Sql, name: str, password: str | None, who: Who, reason: str | None = None) -> Dialogue[None]:
    """Give a user a password, or take it away; their sessions end."""
    params = _acting(who, reason) | {"name": name} | _kept(password)
    if not (yield from ask(Statement(sql["set_password"], params, scalar))):
        raise _nobody(name)


def users(sql: Sql, org: str | None = EVERY_ORG) -> Dialogue[list[UserRow]]:
    """Every user, or those that are bound to an organisation."""
    return (yield from ask(Statement(sql["list_users"], {"only_org": org}, _each(_user))))


def user_sessions(sql: Sql, name: str) -> Dialogue[list[SessionRow]]:
    """Where a user is signed in."""
    return (yield from ask(Statement(sql["list_user_sessions"], {"name": name}, _each(_session))))


def end_user_sessions(sql: Sql, name: str, id: UUID | None, who: Who, reason: str | None = None) -> Dialogue[int]:
    """End one session of a user, or all of them; answers how many."""
    params = _acting(who, reason) | {"name": name, "id": None if id is None else str(id)}
    count: int | None = yield from ask(Statement(sql["end_user_sessions"], params, scalar))
    if count is None:
        raise _nobody(name)
    return count


def create_link(sql: Sql, name: str, code: str, who: Who, reason: str | None = None) -> Dialogue[None]:
    """Let a user sign in by a code: once, within 15 minutes."""
    params = _acting(who, reason) | {"name": name, "digest": secret_digest(code)}
    if not (yield from ask(Statement(sql["create_link"], params, scalar))):
        raise UnknownName(f"name: no user is called {name!r}, or they are disabled", field="name")


# -- sessions


def try_sign_in(sql: Sql, name: str | None, address: str) -> Dialogue[SignInTry]:
    """Take one of the few tries of an address, and of a user where one is named."""
    statement = Statement(sql["try_sign_in"], {"name": name, "address": address}, lambda rows: _try(rows[0][0]))
    return (yield from ask(statement))


def sign_in(sql: Sql, name: str, verifier: str, opening: Opening) -> Dialogue[AccessHolder | None]:
    """Open a session for who knows their password."""
    params: Params = opening.params() | {"name": name, "verifier": verifier}
    return (yield from ask(Statement(sql["sign_in"], params, _one)))


def sign_in_by_link(sql: Sql, code: str, opening: Opening) -> Dialogue[AccessHolder | None]:
    """Open a session for who has a one-time code, which is gone with it."""
    return (yield from ask(Statement(sql["sign_in_by_link"], opening.params() | {"link": secret_digest(code)}, _one)))


def sign_in_vouched(
    sql: Sql, name: str, source: Voucher, grant: Grant, opening: Opening
) -> Dialogue[AccessHolder | None]:
    """Open a session for whom somebody else vouches; None: they are disabled here, or the name is another's."""
    params = opening.params() | grant.params() | {"name": name, "source": source}
    return (yield from ask(Statement(sql["sign_in_vouched"], params, _one)))


def check_session(sql: Sql, secret: str) -> Dialogue[AccessHolder | None]:
    """Who has a session; None: nobody any more."""
    return (yield from ask(Statement(sql["check_session"], {"digest": secret_digest(secret)}, _one)))


def sessions(sql: Sql, secret: str) -> Dialogue[list[SessionRow]]:
    """The sessions of whoever has this one."""
    return (yield from ask(Statement(sql["list_sessions"], {"digest": secret_digest(secret)}, _each(_session))))


def end_sessions(sql: Sql, secret: str, id: UUID | None = None) -> Dialogue[int]:
    """End one session of whoever has this one, or all of them; answers how many."""
    params: Params = {"digest": secret_digest(secret), "id": None if id is None else str(id)}
    count: int = yield from ask(Statement(sql["end_sessions"], params, scalar))
    return count


def _kept(password: str | None) -> Params:
    """What is kept of a password."""
    if password is None:
        return {"recipe": None, "verifier": None}
    recipe = PasswordRecipe.new()
    return {"recipe": recipe.text, "verifier": recipe.verifier(check_password(password))}


def _check_holder(name: str) -> None:
    if problem := holder_problem(name):
        raise ValidationError(f"name: {problem}", field="name")


def _acting(who: Who, reason: str | None) -> Params:
    return {"actor_type": who.actor_type, "actor_id": who.actor_id, "reason": why(reason)}


def _nobody(name: str) -> UnknownName:
    return UnknownName(f"name: no user is called {name!r}", field="name")


def _one(rows: Sequence[Row]) -> AccessHolder | None:
    text = scalar(rows)
    return None if text is None else _holder(text)


def _each(decode: Callable[[str], T]) -> Callable[[Sequence[Row]], list[T]]:
    return lambda rows: [decode(row[0]) for row in rows]
