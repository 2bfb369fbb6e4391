"""Stands in for Twilio's Messages: create, list, fetch.

Every login is taken whose user is the account in the path and whose password is not `wrong`. Some numbers are refused,
as Twilio's own test credentials do it: see `TO` and `FROM`. There is no idempotency: asked twice, it sends twice.
"""

from __future__ import annotations

import base64
import binascii
import re
from datetime import UTC
from email.utils import format_datetime
from typing import Any, Final
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from mainspring_sandbox.ledger import LedgerEntry
from mainspring_sandbox.world import World

Refusal = tuple[int, int, str]  # the status, Twilio's code, its text

TO: Final[dict[str, Refusal]] = {
    "+15005550001": (400, 21211, "The 'To' number is not a valid phone number."),
    "+15005550002": (400, 21612, "The 'To' number cannot be reached from the 'From' number."),
    "+15005550003": (400, 21408, "Permission to send an SMS has not been enabled for the region."),
    "+15005550004": (400, 21610, "Attempt to send to an unsubscribed recipient."),
    "+15005550009": (400, 21614, "The 'To' number is not a valid mobile number."),
}
FROM: Final[dict[str, Refusal]] = {
    "+15005550001": (400, 21212, "The 'From' number is not a valid phone number."),
    "+15005550007": (400, 21606, "The 'From' number is not one of the account's."),
}
LONGEST_SMS: Final = 1600
MOST_PAGE_MESSAGES: Final = 1000  # on one page
_NUMBER: Final = re.compile(r"\+[1-9][0-9]{6,14}")


def routes(world: World) -> list[BaseRoute]:
    """The pages of the provider."""

    async def messages(request: Request) -> Response:
        if (refusal := _unknown(request)) is not None:
            return _error(*refusal)
        if request.method == "GET":
            return JSONResponse(_listed(world, request))
        form = dict(parse_qsl((await request.body()).decode("utf-8", "replace")))
        if (refusal := _wrong(form)) is not None:
            return _error(*refusal)
        sid = f"SM{world.ledger.number():032x}"
        body = {
            "provider": "twilio",
            "account_sid": request.path_params["sid"],
            "to": form["To"],
            "from": form.get("From"),
            "messaging_service_sid": form.get("MessagingServiceSid"),
            "text": form["Body"],
            "status": "delivered",
        }
        return JSONResponse(_shown(world.ledger.add("sms", sid, body)) | {"status": "queued"}, 201)

    async def message(request: Request) -> Response:
        if (refusal := _unknown(request)) is not None:
            return _error(*refusal)
        found = world.ledger.get("sms", request.path_params["message"])
        return JSONResponse(_shown(found)) if found else _error(404, 20404, "The requested resource was not found.")

    account = "/2010-04-01/Accounts/{sid}"
    return [
        Route(f"{account}/Messages.json", messages, methods=["GET", "POST"]),
        Route(f"{account}/Messages/{{message}}.json", message),
    ]


def _listed(world: World, request: Request) -> dict[str, Any]:
    """The newest first, as many as a page holds."""
    asked = request.query_params
    size, since = asked.get("PageSize", ""), asked.get("DateSent>", "")
    fields: dict[str, Any] = {"account_sid": request.path_params["sid"]}
    fields |= {"to": asked["To"]} if "To" in asked else {}
    found = world.ledger.find("sms", limit=min(int(size), MOST_PAGE_MESSAGES) if size.isdigit() else 50, **fields)
    return {"messages": [_shown(one) for one in found if one.at.isoformat() >= since], "next_page_uri": None}


def _shown(entry: LedgerEntry) -> dict[str, Any]:
    body = {name: value for name, value in entry.body.items() if name not in ("provider", "text")}
    date = format_datetime(entry.at.astimezone(UTC))
    return body | {
        "sid": entry.id,
        "body": entry.body["text"],
        "date_created": date,
        "date_sent": date,
        "direction": "outbound-api",
        "error_code": None,
    }


def _wrong(form: dict[str, str]) -> Refusal | None:
    to, sender, text = form.get("To", ""), form.get("From", ""), form.get("Body", "")
    if to in TO or not _NUMBER.fullmatch(to):
        return TO.get(to, TO["+15005550001"])
    if not sender and not form.get("MessagingServiceSid"):
        return 400, 21603, "A 'From' number is required."
    if not text:
        return 400, 21602, "Message body is required."
    if len(text) > LONGEST_SMS:
        return 400, 21617, f"The message is longer than {LONGEST_SMS} characters."
    return FROM.get(sender)


def _unknown(request: Request) -> Refusal | None:
    scheme, _, login = request.headers.get("authorization", "").partition(" ")
    try:
        user, _, password = base64.b64decode(login, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        user = password = ""
    fits = scheme.lower() == "basic" and user == request.path_params["sid"] and password not in ("", "wrong")
    return None if fits else (401, 20003, "Authenticate")


def _error(status: int, code: int, message: str) -> Response:
    return JSONResponse({"code": code, "message": message, "status": status}, status)
