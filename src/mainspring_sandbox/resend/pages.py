"""Resend over HTTP: mail is taken, once for a key, and shown."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from mainspring_sandbox.replay import replayed
from mainspring_sandbox.resend.state import ResendStandIn
from mainspring_sandbox.world import World


class _Email(msgspec.Struct):
    sender: str = msgspec.field(name="from")
    to: list[str] | str
    subject: str
    text: str | None = None
    html: str | None = None
    headers: dict[str, str] = msgspec.field(default_factory=dict)


def routes(world: World) -> list[BaseRoute]:
    """The pages of the provider."""
    resend = world.part(ResendStandIn)

    async def create(request: Request) -> Response:
        if (refusal := _unknown(request)) is not None:
            return refusal
        raw = await request.body()
        try:
            mail = msgspec.json.decode(raw, type=_Email)
        except msgspec.MsgspecError as error:
            return _error(422, "validation_error", str(error))
        to = [mail.to] if isinstance(mail.to, str) else mail.to
        if not to or any("@" not in one or one.endswith("@") or one.startswith("bounce@") for one in to):
            return _error(422, "validation_error", "Invalid `to` field. It must be an address that takes mail.")
        if mail.text is None and mail.html is None:
            return _error(422, "validation_error", "Missing `html` or `text` field.")
        key = request.headers.get("idempotency-key")
        made: list[str] = []

        def taken() -> tuple[int, dict[str, Any]]:
            made.append(_taken(world, mail, to, key))
            return 200, {"id": made[0]}

        answer = replayed(world, "resend", key, msgspec.json.decode(raw), taken)
        if made:
            resend.taken(made[0])
        if answer == "mismatch":
            return _error(409, "invalid_idempotent_request", "This idempotency key was used with another body.")
        return answer

    async def show(request: Request) -> Response:
        if (refusal := _unknown(request)) is not None:
            return refusal
        found = world.ledger.get("mail", request.path_params["id"])
        if found is None:
            return _error(404, "not_found", "There is no such email.")
        return JSONResponse({"object": "email", "id": found.id, "created_at": found.at.isoformat(), **found.body})

    return [Route("/emails", create, methods=["POST"]), Route("/emails/{id}", show)]


def _taken(world: World, mail: _Email, to: list[str], key: str | None) -> str:
    id = world.new_id("email")
    body = {
        "provider": "resend",
        "from": mail.sender,
        "to": to,
        "subject": mail.subject,
        "text": mail.text,
        "html": mail.html,
        "headers": mail.headers,
        "key": key,
        "last_event": "delivered",
    }
    world.ledger.add("mail", id, body)
    return id


def _unknown(request: Request) -> Response | None:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not key:
        return _error(401, "missing_api_key", "Missing API key in the authorization header.")
    return _error(403, "invalid_api_key", "API key is invalid.") if key == "re_invalid" else None


def _error(status: int, name: str, message: str) -> Response:
    return JSONResponse({"statusCode": status, "name": name, "message": message}, status)
