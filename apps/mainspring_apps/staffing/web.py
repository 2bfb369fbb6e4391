"""The marketplace over HTTP: every business event as a JSON endpoint, and the story of a booking.

An event's function is its contract: its parameters are the fields of the body, checked by their types; what it
refuses is answered with the field's name, and nothing is written. Whoever knows the token may act for anybody: it
believes who acts, so put your own login before it.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections import abc
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from functools import cached_property
from types import UnionType
from typing import Any, Final, TypeAlias

import msgspec
import psycopg
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import mainspring as ms
from mainspring.declare.route import DeclaredRoute, by_token
from mainspring_apps.staffing import bookings, insurance, shifts, show
from mainspring_apps.staffing.conflicts import disputes, incidents
from mainspring_apps.staffing.desk import Desk, acting
from mainspring_apps.staffing.payments import accounts, weekly
from mainspring_apps.staffing.searches import listings, search
from mainspring_apps.staffing.states import NotAllowed

BASE: Final = "/staffing"
TOKEN: Final = "STAFFING_TOKEN"  # noqa: S105 (the name of a variable)
ABOUT: Final = """A staffing marketplace lives here; its people are jobs. Look at one of its bookings:

  in words        {mainspring} staffing booking show 1{elsewhere}
  as JSON         {curl} {url}/staffing/bookings/1
  what is there   {curl} {url}/staffing
"""
Handler: TypeAlias = "Callable[[Request], Awaitable[Response]]"
CODES: Final = {400: "INVALID_INPUT", 403: "FORBIDDEN", 404: "NOT_FOUND", 409: "REFUSED", 503: "UNAVAILABLE"}
KINDS: Final = {
    int: "a number", str: "a text", bool: "true | false", type(None): "null", date: "a date such as 2026-06-03",
    time: "a time such as 08:30", datetime: "an instant such as 2026-06-03T10:00:00Z",
}  # fmt: skip
_LARGEST_ID: Final = 2**63 - 1  # what a bigint holds
_MINUTE: Final = re.compile(r"[0-2]\d:[0-5]\d")
_UNKNOWN: Final = re.compile(r"\w+: there is no [a-z ]+ -?\d+")


@dataclass(frozen=True)
class Endpoint:
    """A business event at an address; `{…}` in the path is the event's first parameter."""

    path: str
    event: Callable[..., Any]
    method: str = "POST"

    @cached_property
    def body(self) -> type[msgspec.Struct]:
        """The fields of its body, from the event's own signature."""
        hints = typing.get_type_hints(self.event)
        fields: list[Any] = []
        for name, parameter in list(inspect.signature(self.event).parameters.items())[2:]:  # after desk and connection
            if f"{{{name}:int}}" not in self.path:
                if name == "by":
                    hints[name] = int
                known = parameter.default is not inspect.Parameter.empty
                fields.append((name, hints[name], field_of(parameter.default)) if known else (name, hints[name]))
        return msgspec.defstruct(self.event.__name__, fields, kw_only=True, forbid_unknown_fields=True)

    def describe(self) -> dict[str, Any]:
        """What a newcomer needs to know of it."""
        path = BASE + self.path.replace(":int}", "}")
        about = {"method": self.method, "path": path, "does": (self.event.__doc__ or "").split("\n")[0]}
        return about | {"body": {f.encode_name: _words(f) for f in msgspec.structs.fields(self.body)}}


def field_of(default: Any) -> Any:
    """A default as msgspec takes it."""
    return msgspec.field(default=default)


ENDPOINTS: Final[Sequence[Endpoint]] = (
    Endpoint("/operators", bookings.add_operator),
    Endpoint("/companies", bookings.add_company),
    Endpoint("/companies/{company_id:int}/card", bookings.put_card),
    Endpoint("/companies/{company_id:int}/account", accounts.connect_account),
    Endpoint("/users", bookings.add_user),
    Endpoint("/projects", bookings.add_project),
    Endpoint("/workers", bookings.add_worker),
    Endpoint("/workers/{worker_id:int}/list", listings.list_worker),
    Endpoint("/workers/{worker_id:int}/unlist", listings.unlist_worker),
    Endpoint("/searches", search.save_search),
    Endpoint("/policies", bookings.add_policy),
    Endpoint("/policies/{policy_id:int}/renew", insurance.renew_insurance),
    Endpoint("/policies/{policy_id:int}/deactivate", insurance.deactivate_insurance),
    Endpoint("/bookings", bookings.confirm_booking),
    Endpoint("/bookings/{booking_id:int}/pay", weekly.pay_by_hand),
    Endpoint("/bookings/{booking_id:int}/end", shifts.change_scheduled_end),
    Endpoint("/bookings/{booking_id:int}/incidents", incidents.file_incident),
    Endpoint("/incidents/{incident_id:int}/resolve", incidents.resolve_incident),
    Endpoint("/shifts/{time_log_id:int}/clock-in", shifts.clock_in),
    Endpoint("/shifts/{time_log_id:int}/draft", shifts.save_draft),
    Endpoint("/shifts/{time_log_id:int}/submit", shifts.submit_timesheet),
    Endpoint("/shifts/{time_log_id:int}/force-clock-out", shifts.force_clock_out),
    Endpoint("/shifts/{time_log_id:int}/edit", shifts.edit_timesheet),
    Endpoint("/shifts/{time_log_id:int}/verify", shifts.verify_timesheet),
    Endpoint("/shifts/{time_log_id:int}/dispute", disputes.file_dispute),
    Endpoint("/disputes/{dispute_id:int}/propose", disputes.propose_settlement),
    Endpoint("/disputes/{dispute_id:int}/resolve", disputes.resolve_dispute),
)

#: What can be looked at.
LOOKS: Final = tuple(
    {"method": "GET", "path": BASE + path, "does": does}
    for path, does in (
        ("/clock", "What the clocks of the projects show now, and UTC."),
        ("/bookings", "Bookings by number; ?after=100 for those that follow."),
        ("/bookings/{booking_id}", "What has happened to a booking, what comes next, its shifts and its money."),
    )
)


@dataclass
class Web:
    """The routes of the marketplace."""

    desk: Desk

    def routes(self) -> list[DeclaredRoute]:
        """What `mainspring serve` serves beside its own, for those who know the token."""
        found = [Route(BASE + endpoint.path, self._happen(endpoint), methods=["POST"]) for endpoint in ENDPOINTS]
        looks = [
            Route(
                BASE, self._guarded(lambda request: [*LOOKS, *(one.describe() for one in ENDPOINTS)]), methods=["GET"]
            ),
            Route(f"{BASE}/clock", self._guarded(self._clock), methods=["GET"]),
            Route(f"{BASE}/bookings", self._guarded(self._bookings), methods=["GET"]),
            Route(f"{BASE}/bookings/{{booking_id:int}}", self._guarded(self._booking), methods=["GET"]),
        ]
        return [by_token(route, TOKEN) for route in (*looks, *found)]

    def _clock(self, request: Request) -> Any:
        """The time that counts, in UTC and where the projects are."""
        with self.desk.connection() as conn:
            return show.clocks(self.desk, conn)

    def _bookings(self, request: Request) -> Any:
        with self.desk.connection() as conn:
            return show.bookings(conn, after=_number("after", request.query_params.get("after", "0")))

    def _booking(self, request: Request) -> Any:
        with self.desk.connection() as conn:
            return show.story(self.desk, conn, request.path_params["booking_id"])

    def _happen(self, endpoint: Endpoint) -> Handler:
        async def happen(request: Request) -> Response:
            body = await request.body()
            return await self._guarded(lambda _: self._act(endpoint, request, body))(request)

        return happen

    def _act(self, endpoint: Endpoint, request: Request, body: bytes) -> dict[str, Any]:
        fields = _fields(body, endpoint.body)
        with self.desk.connection() as conn, conn.transaction(), acting(fields.get("by")):
            found = endpoint.event(self.desk, conn, **request.path_params, **fields)
        return {"done": found is not False} if found is None or isinstance(found, bool) else {"id": found}

    def _guarded(self, answer: Callable[[Request], Any]) -> Handler:
        from starlette.concurrency import run_in_threadpool

        async def guarded(request: Request) -> Response:
            try:
                return _answer(await run_in_threadpool(answer, request), 200)
            except Malformed as error:
                return _refusal(error.field, str(error), 400)
            except NotAllowed as error:
                return _refusal(error.field, str(error), 403)
            except ms.ValidationError as error:
                return _refusal(error.field, str(error), 404 if _UNKNOWN.fullmatch(str(error)) else 409)
            except (psycopg.IntegrityError, psycopg.DataError) as error:
                return _refusal(error.diag.column_name, str(error.diag.message_primary or error), 409)
            except psycopg.OperationalError:
                return _refusal(None, "the database is away; nothing was written", 503)

        return guarded


class Malformed(ms.ValidationError):
    """A request that says nothing that could be done or refused."""


def _fields(body: bytes, type_: type[msgspec.Struct]) -> dict[str, Any]:
    """What a body says, by the names of the event's parameters."""
    try:
        known = msgspec.json.decode(body or b"{}")
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Malformed(f"body: is not JSON: {error}", field="body") from None
    if not isinstance(known, dict):
        raise Malformed("body: is not a JSON object", field="body")
    try:
        said = msgspec.convert({name: _timed(value) for name, value in known.items()}, type_)
    except msgspec.ValidationError as error:
        name, wrong = _complaint(str(error), type_)
        raise Malformed(f"{name}: {wrong}", field=name) from None
    fields = {name: getattr(said, name) for name in said.__struct_fields__}
    for name, value in fields.items():
        if (why := _unfit(value)) is not None:
            raise Malformed(f"{name}: {why}", field=name)
    return fields


def _unfit(value: Any) -> str | None:
    """What no event could keep."""
    if "\0" in str(value):
        return "contains a NUL character"
    if isinstance(value, int) and abs(value) > _LARGEST_ID:
        return "is too large a number"
    if isinstance(value, date) and not 1970 <= value.year < 2200:
        return "is not between 1970 and 2200"
    if isinstance(value, datetime) and value.tzinfo is None:
        return "does not say its offset from UTC, such as 2026-06-03T10:00:00Z"
    if isinstance(value, time) and value.tzinfo is not None:
        return "is a time of local clocks, such as 08:30"
    return None


def _timed(value: Any) -> Any:
    """Times as people write them, 08:30, are as good as those with seconds."""
    return f"{value}:00" if isinstance(value, str) and _MINUTE.fullmatch(value) else value


def _complaint(message: str, type_: type[msgspec.Struct]) -> tuple[str, str]:
    """The field that msgspec complains about, behind `$.` or else the first in backticks, and what is wrong with it."""
    why, found, place = message.partition(" - at `$.")  # as in: Expected `int`, got `str` - at `$.by`
    name = re.split(r"[.`\[]", place)[0] if found else message.split("`")[1]
    if why.startswith("Object missing"):
        return name, "is missing"
    if why.startswith("Object contains unknown"):
        return name, f"is unknown here, where there are {', '.join(type_.__struct_fields__)}"
    return name, f"is not {_kind(typing.get_type_hints(type_)[name])}"


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise Malformed(f"{name}: is not a whole number", field=name) from None


def _words(info: msgspec.structs.FieldInfo) -> str:
    return _kind(info.type) + ("" if info.required else ", optional")


def _kind(type_: Any) -> str:
    """A type as people say it."""
    if type_ in KINDS:
        return KINDS[type_]
    inner, origin = typing.get_args(type_), typing.get_origin(type_)
    if origin is typing.Literal:
        return " | ".join(inner)
    if origin in (UnionType, typing.Union):
        return " | ".join(_kind(one) for one in inner)
    return "an object" if origin is abc.Mapping else f"a list: {_kind(inner[0])}"


def _answer(value: Any, status: int) -> Response:
    return Response(msgspec.json.encode(value) + b"\n", status, media_type="application/json")


def _refusal(name: str | None, message: str, status: int) -> Response:
    return _answer({"error": {"code": CODES[status], "field": name, "message": message}}, status)
