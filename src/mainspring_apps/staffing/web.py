"""The marketplace over HTTP: every business event as a JSON endpoint, and the story of a booking.

An event's function is its contract: its parameters are the fields of the body, checked by their types; what it
refuses is answered with the field's name, and nothing is written. Put your own login before it: it believes who acts.
"""

from __future__ import annotations

import hmac
import inspect
import os
import re
import typing
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, TypeAlias

import msgspec
import psycopg
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import mainspring as ms
from mainspring_apps.staffing import (
    accounts,
    bookings,
    charging,
    disputes,
    incidents,
    insurance,
    listings,
    search,
    shifts,
    show,
)
from mainspring_apps.staffing.desk import acting, desk

BASE: Final = "/staffing"
TOKEN: Final = "STAFFING_TOKEN"  # noqa: S105 (the name of a variable)
ABOUT: Final = """A staffing marketplace lives here; its people are jobs. Look at one of its bookings:

  in words        mainspring staffing booking show 1
  as JSON         curl {url}/staffing/bookings/1
  what is there   curl {url}/staffing
"""
Handler: TypeAlias = "Callable[[Request], Awaitable[Response]]"
_MINUTE: Final = re.compile(r"[0-2]\d:[0-5]\d")


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
        for name, parameter in list(inspect.signature(self.event).parameters.items())[1:]:  # after the connection
            if f"{{{name}:int}}" not in self.path:
                known = parameter.default is not inspect.Parameter.empty
                fields.append((name, hints[name], field_of(parameter.default)) if known else (name, hints[name]))
        return msgspec.defstruct(self.event.__name__, fields, kw_only=True, forbid_unknown_fields=True)

    def describe(self) -> dict[str, Any]:
        """What a newcomer needs to know of it."""
        about = {"method": self.method, "path": BASE + self.path, "does": (self.event.__doc__ or "").split("\n")[0]}
        return about | {"body": {f.encode_name: _words(f) for f in msgspec.structs.fields(self.body)}}


def field_of(default: Any) -> Any:
    """A default as msgspec takes it."""
    return msgspec.field(default=default)


ENDPOINTS: Final[Sequence[Endpoint]] = (
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
    Endpoint("/bookings/{booking_id:int}/pay", charging.pay_by_hand),
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
    Endpoint("/disputes/{dispute_id:int}/resolve", disputes.resolve_dispute),
)


@dataclass
class Web:
    """The routes of the marketplace."""

    token: str | None = field(default_factory=lambda: os.environ.get(TOKEN) or None)

    def routes(self) -> list[Route]:
        """What `mainspring serve` serves beside its own."""
        found = [Route(BASE + endpoint.path, self._happen(endpoint), methods=["POST"]) for endpoint in ENDPOINTS]
        return [
            Route(BASE, self._guarded(lambda request: [one.describe() for one in ENDPOINTS]), methods=["GET"]),
            Route(f"{BASE}/clock", self._guarded(self._clock), methods=["GET"]),
            Route(f"{BASE}/bookings", self._guarded(self._bookings), methods=["GET"]),
            Route(f"{BASE}/bookings/{{booking_id:int}}", self._guarded(self._booking), methods=["GET"]),
            *found,
        ]

    def _clock(self, request: Request) -> Any:
        """The time that counts, in UTC and where the projects are."""
        with desk().connection() as conn:
            return show.clocks(conn)

    def _bookings(self, request: Request) -> Any:
        with desk().connection() as conn:
            return show.bookings(conn, after=int(request.query_params.get("after", "0")))

    def _booking(self, request: Request) -> Any:
        with desk().connection() as conn:
            return show.story(conn, request.path_params["booking_id"])

    def _happen(self, endpoint: Endpoint) -> Handler:
        async def happen(request: Request) -> Response:
            body = await request.body()
            return await self._guarded(lambda _: self._act(endpoint, request, body))(request)

        return happen

    def _act(self, endpoint: Endpoint, request: Request, body: bytes) -> dict[str, Any]:
        said = msgspec.convert(_timed(msgspec.json.decode(body or b"{}")), endpoint.body)
        fields = {name: getattr(said, name) for name in said.__struct_fields__}
        with desk().connection() as conn, conn.transaction(), acting(fields.get("by")):
            found = endpoint.event(conn, **request.path_params, **fields)
        return {"id": found} if isinstance(found, int) and not isinstance(found, bool) else {"done": True}

    def _guarded(self, answer: Callable[[Request], Any]) -> Handler:
        from starlette.concurrency import run_in_threadpool

        async def guarded(request: Request) -> Response:
            said = request.headers.get("authorization", "")
            if self.token and not hmac.compare_digest(said.encode(), f"Bearer {self.token}".encode()):
                return _answer({"error": {"field": "authorization", "message": "authorization: is not the token"}}, 401)
            try:
                return _answer(await run_in_threadpool(answer, request), 200)
            except msgspec.MsgspecError as error:
                return _refusal(_field(str(error)), str(error), 400)
            except ms.ValidationError as error:
                status = 404 if "there is no" in str(error) else 409
                return _refusal(error.field, str(error), status)
            except psycopg.errors.CheckViolation as error:
                return _refusal(None, str(error.diag.message_primary), 409)

        return guarded


def _timed(body: Any) -> Any:
    """Times as people write them, 08:30, are as good as those with seconds."""
    if not isinstance(body, dict):
        return body
    return {
        name: f"{value}:00" if isinstance(value, str) and _MINUTE.fullmatch(value) else value
        for name, value in body.items()
    }


def _field(message: str) -> str | None:
    """The field that msgspec complains about: behind `$.`, or the first name in backticks."""
    _, found, rest = message.partition("`$.")
    if found:
        return rest.partition("`")[0].partition(".")[0]
    return next((part for part in message.split("`")[1::2] if part.isidentifier()), None)


def _words(info: msgspec.structs.FieldInfo) -> str:
    if typing.get_origin(info.type) is typing.Literal:
        name = " | ".join(typing.get_args(info.type))
    else:
        name = getattr(info.type, "__name__", None) or str(info.type).replace("datetime.", "")
    return name if info.required else f"{name}, optional"


def _answer(value: Any, status: int) -> Response:
    return Response(msgspec.json.encode(value) + b"\n", status, media_type="application/json")


def _refusal(name: str | None, message: str, status: int) -> Response:
    return _answer({"error": {"field": name, "message": message}}, status)
