"""An application over HTTP: every business event as a JSON endpoint, and what can be looked at.

An event's function is its contract: its parameters are the fields of the body, checked by their types; what it
refuses is answered with the field's name, and nothing is written. Who acts is who asks, as a session or an access
token says. A program that knows the site's token, where it has one, says itself who acts: it has a login of its own.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

import msgspec
import psycopg
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import mainspring as ms
from mainspring.declare.principal import AccessRole, Principal
from mainspring.declare.route import DeclaredRoute, by_role, who_asks
from mainspring_apps.frame import body
from mainspring_apps.frame.refusal import NotAllowed, NotThere
from mainspring_apps.frame.store import Conn

Handler: TypeAlias = "Callable[[Request], Awaitable[Response]]"
CODES: Final = {400: "INVALID_INPUT", 403: "FORBIDDEN", 404: "NOT_FOUND", 409: "REFUSED", 503: "UNAVAILABLE"}


class Receives(Protocol):
    """What a site needs of a desk: a connection for a request, whose transaction commits at the end of the block."""

    def connection(self) -> AbstractContextManager[Conn]:
        """The connection."""


D = TypeVar("D", bound=Receives)


@dataclass(frozen=True)
class Endpoint:
    """A business event at an address; `{…}` in the path is the event's first parameter."""

    path: str
    event: Callable[..., Any]
    role: AccessRole = "member"  # that somebody needs at least
    method: str = "POST"

    @cached_property
    def of_people(self) -> type[msgspec.Struct]:
        """The fields of its body, from the event's own signature."""
        return self._struct({})

    @cached_property
    def of_programs(self) -> type[msgspec.Struct]:
        """The same, with who acts."""
        return self._struct({"by": int})

    def _struct(self, others: Mapping[str, type]) -> type[msgspec.Struct]:
        hints = typing.get_type_hints(self.event)
        fields: list[Any] = []
        for name, parameter in list(inspect.signature(self.event).parameters.items())[2:]:  # after desk and connection
            if f"{{{name}:int}}" not in self.path and name != "by":
                default, known = parameter.default, parameter.default is not inspect.Parameter.empty
                fields.append((name, hints[name], msgspec.field(default=default)) if known else (name, hints[name]))
        fields += others.items()
        return msgspec.defstruct(self.event.__name__, fields, kw_only=True, forbid_unknown_fields=True)

    def describe(self, base: str, by: object) -> dict[str, Any]:
        """What a newcomer needs to know of it."""
        does, fields = (self.event.__doc__ or "").split("\n")[0], msgspec.structs.fields(self.fields(by))
        said = {field.encode_name: body.words(field) for field in fields}
        return {"method": self.method, "path": _plain(base + self.path), "does": does, "body": said}

    def fields(self, by: object) -> type[msgspec.Struct]:
        """What whoever asks says in the body; None asks for a program."""
        return self.of_programs if by is None else self.of_people


@dataclass(frozen=True)
class Visit:
    """A request, the transaction in which it is answered, and who asks; None: a program, which says who acts."""

    request: Request
    body: bytes
    conn: Conn
    by: Any


@dataclass(frozen=True)
class Look(Generic[D]):
    """What can be looked at, at an address."""

    path: str
    does: str
    answer: Callable[[D, Visit], Any]


@dataclass(frozen=True, kw_only=True)
class Site(Generic[D]):
    """The addresses of one application below `base`; `known_as` says who somebody is there who has signed in."""

    base: str
    endpoints: Sequence[Endpoint]
    looks: Sequence[Look[D]]
    known_as: Callable[[Conn, Principal], Any]
    org: str  # of people who come in: jobs are of `default`, and nothing of the engine's own API is there for them
    token: str | None = None  # the variable of a program's token
    role: AccessRole = "member"  # that somebody needs at least to look

    def routes(self, desk: D) -> list[DeclaredRoute]:
        """What `mainspring serve` serves beside its own."""
        looks = [Look[D]("", "What is there.", lambda _, visit: self._listing(visit)), *self.looks]
        found = [self._route(desk, look.path, look.answer, "GET", self.role) for look in looks]
        return found + [self._route(desk, one.path, _happen(one), one.method, one.role) for one in self.endpoints]

    def _route(
        self, desk: D, path: str, answer: Callable[[D, Visit], Any], method: str, role: AccessRole
    ) -> DeclaredRoute:  # fmt: skip
        route = Route(self.base + path, self._answering(desk, answer), methods=[method])
        return by_role(route, role, org=self.org, token=self.token)

    def _listing(self, visit: Visit) -> list[dict[str, Any]]:
        looks = [{"method": "GET", "path": _plain(self.base + look.path), "does": look.does} for look in self.looks]
        return [*looks, *(one.describe(self.base, visit.by) for one in self.endpoints)]

    def _answering(self, desk: D, answer: Callable[[D, Visit], Any]) -> Handler:
        def asked(request: Request, said: bytes) -> Any:
            with desk.connection() as conn, ms.calling(ms.Caller()):  # jobs are of `default`, whoever asks
                return answer(desk, Visit(request, said, conn, self._asks(conn, request)))

        async def answering(request: Request) -> Response:
            try:
                return answered(await run_in_threadpool(asked, request, await request.body()), 200)
            except body.Malformed as error:
                return refusal(error.field, str(error), 400)
            except NotAllowed as error:
                return refusal(error.field, str(error), 403)
            except NotThere as error:
                return refusal(error.field, str(error), 404)
            except ms.ValidationError as error:
                return refusal(error.field, str(error), 409)
            except (psycopg.IntegrityError, psycopg.DataError) as error:
                return refusal(error.diag.column_name, str(error.diag.message_primary or error), 409)
            except psycopg.OperationalError:
                return refusal(None, "the database is away; nothing was written", 503)

        return answering

    def _asks(self, conn: Conn, request: Request) -> Any:
        """Who asks; where they are nobody of this application, nothing of it is there for them."""
        who = who_asks(request)
        return None if self.token is not None and who.program == self.token else self.known_as(conn, who)


def _happen(endpoint: Endpoint) -> Callable[[Any, Visit], Any]:
    def happen(desk: Any, visit: Visit) -> Any:
        fields = body.fields(visit.body, endpoint.fields(visit.by))
        if visit.by is not None:
            fields["by"] = visit.by
        found = endpoint.event(desk, visit.conn, **visit.request.path_params, **fields)
        return {"done": found is not False} if found is None or isinstance(found, bool) else {"id": found}

    return happen


def _plain(path: str) -> str:
    return path.replace(":int}", "}")


def answered(value: Any, status: int) -> Response:
    """A value as JSON."""
    return Response(msgspec.json.encode(value) + b"\n", status, media_type="application/json")


def refusal(name: str | None, message: str, status: int) -> Response:
    """Why something was not done, and the field that it is about."""
    return answered({"error": {"code": CODES[status], "field": name, "message": message}}, status)
