"""The marketplace over HTTP: every business event as a JSON endpoint, and the story of a booking.

An event's function is its contract: its parameters are the fields of the body, checked by their types; what it
refuses is answered with the field's name, and nothing is written. Who acts is who asks, as a session or an access
token says, and sees what they have a part in. A program that knows `STAFFING_TOKEN`, where that is set, sees all and
says itself who acts: it has a login of its own.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections import abc
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from functools import cached_property
from types import UnionType
from typing import Any, Final, TypeAlias

import msgspec
import psycopg
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

import mainspring as ms
from mainspring.declare.route import DeclaredRoute, by_role, public, who_asks
from mainspring_apps.staffing import bookings, insurance, people, shifts, show, wishes, withdrawal
from mainspring_apps.staffing.conflicts import disputes, incidents
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.payments import accounts, arrears, reversals, weekly
from mainspring_apps.staffing.rules.wishes import Wish
from mainspring_apps.staffing.searches import listings, search
from mainspring_apps.staffing.states import NotAllowed
from mainspring_apps.staffing.store import Conn

BASE: Final = "/staffing"
TOKEN: Final = "STAFFING_TOKEN"  # noqa: S105 (the name of a variable)
#: The organisation of people who come in. Jobs are of `default`: nothing of the engine's own API is there for them.
PEOPLE: Final = "staffing"
ABOUT: Final = """A staffing marketplace lives here; its people are jobs. Look at one of its bookings:

  in words        {mainspring} staffing booking show 1{elsewhere}
  as JSON         {curl.platform} {url}/staffing/bookings/1
  what is there   {curl.platform} {url}/staffing
  as another      curl.borrower, curl.supervisor, curl.worker and curl.lender lie beside it
"""
Handler: TypeAlias = "Callable[[Request], Awaitable[Response]]"
Asker: TypeAlias = int | None  # the user who asks; None: a program, which says itself who acts
CODES: Final = {400: "INVALID_INPUT", 403: "FORBIDDEN", 404: "NOT_FOUND", 409: "REFUSED", 503: "UNAVAILABLE"}
KINDS: Final = {
    int: "a number", str: "a text", bool: "true | false", type(None): "null", date: "a date such as 2026-06-03",
    time: "a time such as 08:30", datetime: "an instant such as 2026-06-03T10:00:00Z",
}  # fmt: skip
_CALLED: Final[Mapping[str, str]] = {
    "digest": "digests of your saved searches",
    "instant_alert": "alerts of new workers",
}
_PAGE: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Messages</title>
<p>{}</p></html>
"""
_ASKS: Final = """No more {}?</p><form method="post"><button>No more of these</button></form><p>
What concerns your bookings still comes."""
_DONE: Final = "These messages do not come any more."
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

    def describe(self, by: Asker) -> dict[str, Any]:
        """What a newcomer needs to know of it."""
        path = BASE + self.path.replace(":int}", "}")
        about = {"method": self.method, "path": path, "does": (self.event.__doc__ or "").split("\n")[0]}
        said = [field for field in msgspec.structs.fields(self.body) if by is None or field.name != "by"]
        return about | {"body": {field.encode_name: _words(field) for field in said}}


def field_of(default: Any) -> Any:
    """A default as msgspec takes it."""
    return msgspec.field(default=default)


ENDPOINTS: Final[Sequence[Endpoint]] = (
    Endpoint("/operators", bookings.add_operator),
    Endpoint("/companies", bookings.add_company),
    Endpoint("/companies/{company_id:int}/card", bookings.put_card),
    Endpoint("/companies/{company_id:int}/account", accounts.connect_account),
    Endpoint("/users", bookings.add_user),
    Endpoint("/users/{user_id:int}/principal", bookings.let_in),
    Endpoint("/users/{user_id:int}/language", bookings.choose_language),
    Endpoint("/projects", bookings.add_project),
    Endpoint("/workers", bookings.add_worker),
    Endpoint("/workers/{worker_id:int}/list", listings.list_worker),
    Endpoint("/workers/{worker_id:int}/unlist", listings.unlist_worker),
    Endpoint("/searches", search.save_search),
    Endpoint("/users/{user_id:int}/opt-out", wishes.opt_out),
    Endpoint("/users/{user_id:int}/opt-in", wishes.opt_in),
    Endpoint("/policies", bookings.add_policy),
    Endpoint("/policies/{policy_id:int}/renew", insurance.renew_insurance),
    Endpoint("/policies/{policy_id:int}/deactivate", insurance.deactivate_insurance),
    Endpoint("/bookings", bookings.confirm_booking),
    Endpoint("/bookings/{booking_id:int}/pay", weekly.pay_by_hand),
    Endpoint("/bookings/{booking_id:int}/pay-arrears", arrears.pay_arrears),
    Endpoint("/bookings/{booking_id:int}/divide", reversals.divide_set_aside),
    Endpoint("/bookings/{booking_id:int}/end", shifts.change_scheduled_end),
    Endpoint("/bookings/{booking_id:int}/cancel", withdrawal.cancel_booking),
    Endpoint("/bookings/{booking_id:int}/incidents", incidents.file_incident),
    Endpoint("/incidents/{incident_id:int}/resolve", incidents.resolve_incident),
    Endpoint("/shifts/{time_log_id:int}/end", shifts.change_shift_end),
    Endpoint("/shifts/{time_log_id:int}/clock-in", shifts.clock_in),
    Endpoint("/shifts/{time_log_id:int}/draft", shifts.save_draft),
    Endpoint("/shifts/{time_log_id:int}/submit", shifts.submit_timesheet),
    Endpoint("/shifts/{time_log_id:int}/force-clock-out", shifts.force_clock_out),
    Endpoint("/shifts/{time_log_id:int}/edit", shifts.edit_timesheet),
    Endpoint("/shifts/{time_log_id:int}/verify", shifts.verify_timesheet),
    Endpoint("/shifts/{time_log_id:int}/confirm-extra-time", shifts.confirm_extra_time),
    Endpoint("/shifts/{time_log_id:int}/was-worked", shifts.was_worked),
    Endpoint("/shifts/{time_log_id:int}/cancel", withdrawal.cancel_shift),
    Endpoint("/shifts/{time_log_id:int}/dispute", disputes.file_dispute),
    Endpoint("/transfers/{transfer_id:int}/reverse", reversals.reverse_transfer),
    Endpoint("/disputes/{dispute_id:int}/propose", disputes.propose_settlement),
    Endpoint("/disputes/{dispute_id:int}/resolve", disputes.resolve_dispute),
)

#: What can be looked at.
LOOKS: Final = tuple(
    {"method": "GET", "path": BASE + path, "does": does}
    for path, does in (
        ("/clock", "What the clocks of the projects show now, and UTC."),
        ("/bookings", "Your bookings by number; ?after=100 for those that follow."),
        ("/bookings/{booking_id}", "What has happened to a booking, what comes next, its shifts and its money."),
    )
)


@dataclass
class Web:
    """The routes of the marketplace."""

    desk: Desk
    links: wishes.OptOutLinks | None = None  # None: there are no links in messages

    def routes(self) -> list[DeclaredRoute]:
        """What `mainspring serve` serves beside its own."""
        looks = {"": self._endpoints, "/clock": self._clock, "/bookings": self._bookings}
        looks["/bookings/{booking_id:int}"] = self._booking
        found = [Route(BASE + path, self._answering(look), methods=["GET"]) for path, look in looks.items()]
        found += [Route(BASE + one.path, self._answering(self._event(one)), methods=["POST"]) for one in ENDPOINTS]
        guarded = [by_role(route, "member", org=PEOPLE, token=TOKEN) for route in found]
        return guarded if self.links is None else [*guarded, self._opting_out(self.links)]

    def _opting_out(self, links: wishes.OptOutLinks) -> DeclaredRoute:
        """The page behind a link in a message. It only asks: scanners of mail follow links; what it posts is done."""
        from starlette.concurrency import run_in_threadpool

        def done(user_id: int, kind: Wish) -> str:
            with self.desk.connection() as conn, ms.calling(ms.Caller()):
                wishes.opt_out(self.desk, conn, user_id, kind=kind, by=user_id)
            return _DONE

        async def page(request: Request) -> Response:
            user_id, kind, signature = (request.path_params[name] for name in ("user_id", "kind", "signature"))
            if not links.knows(user_id, kind, signature):
                return _page("There is nothing here.", 404)
            if request.method != "POST":
                return _page(_ASKS.format(_CALLED[kind]), 200)
            try:
                return _page(await run_in_threadpool(done, user_id, kind), 200)
            except ms.ValidationError:
                return _page("There is nothing here.", 404)
            except psycopg.OperationalError:
                return _page("Please try again later.", 503)

        route = Route(wishes.PATH + "/{user_id:int}/{kind}/{signature}", page, methods=["GET", "POST"])
        return public(route, accepts=())  # what it posts has no body; what mail programs post says so in one

    def _endpoints(self, visit: Visit) -> Any:
        return [*LOOKS, *(one.describe(visit.by) for one in ENDPOINTS)]

    def _clock(self, visit: Visit) -> Any:
        """The time that counts, in UTC and where the projects are."""
        return show.clocks(self.desk, visit.conn)

    def _bookings(self, visit: Visit) -> Any:
        after = _number("after", visit.request.query_params.get("after", "0"))
        return show.bookings(visit.conn, after=after, by=visit.by)

    def _booking(self, visit: Visit) -> Any:
        return show.story(self.desk, visit.conn, visit.request.path_params["booking_id"], by=visit.by)

    def _event(self, endpoint: Endpoint) -> Callable[[Visit], Any]:
        def happen(visit: Visit) -> Any:
            fields = _fields(visit.body, endpoint.body, visit.by)
            found = endpoint.event(self.desk, visit.conn, **visit.request.path_params, **fields)
            return {"done": found is not False} if found is None or isinstance(found, bool) else {"id": found}

        return happen

    def _answering(self, answer: Callable[[Visit], Any]) -> Handler:
        from starlette.concurrency import run_in_threadpool

        def asked(request: Request, body: bytes) -> Any:
            with self.desk.connection() as conn, ms.calling(ms.Caller()):  # jobs are of `default`, whoever asks
                return answer(Visit(request, body, conn, _asks(conn, request)))

        async def answering(request: Request) -> Response:
            try:
                return _answer(await run_in_threadpool(asked, request, await request.body()), 200)
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

        return answering


@dataclass(frozen=True)
class Visit:
    """A request, the transaction in which it is answered, and who asks."""

    request: Request
    body: bytes
    conn: Conn
    by: Asker


def _asks(conn: Conn, request: Request) -> Asker:
    """Who asks; where they are nobody of this marketplace, nothing of it is there for them."""
    who = who_asks(request)
    if who.program == TOKEN:
        return None
    user = people.known_as(conn, who.name)
    if user is None:
        raise NotAllowed(f"by: {who.name} is no user of this marketplace: see `let_in`", field="by")
    return user


class Malformed(ms.ValidationError):
    """A request that says nothing that could be done or refused."""


def _fields(body: bytes, type_: type[msgspec.Struct], by: Asker) -> dict[str, Any]:
    """What a body says, by the names of the event's parameters; who acts it says for a program alone."""
    try:
        known = msgspec.json.decode(body or b"{}")
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Malformed(f"body: is not JSON: {error}", field="body") from None
    if not isinstance(known, dict):
        raise Malformed("body: is not a JSON object", field="body")
    if by is not None and "by" in known:
        raise Malformed("by: is said by who asks, and not by the body", field="by")
    if by is not None:
        known["by"] = by
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


def _page(text: str, status: int) -> Response:
    """A page of a few words. It may post to where it is from: without a referrer a browser would not say from where."""
    return HTMLResponse(_PAGE.format(text), status, {"referrer-policy": "same-origin"})


def _refusal(name: str | None, message: str, status: int) -> Response:
    return _answer({"error": {"code": CODES[status], "field": name, "message": message}}, status)
