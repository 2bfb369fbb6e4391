"""Stripe's HTTP API as a list of pages, and what is the same for all of them: who asks, keys, errors, answers."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mainspring_sandbox.stripe.call import Call, Thing, expanded, shown
from mainspring_sandbox.stripe.errors import ErrorAnswer
from mainspring_sandbox.stripe.form import FormParams, nested, pairs
from mainspring_sandbox.stripe.keys import fingerprint

if TYPE_CHECKING:
    from mainspring_sandbox.stripe.state import StripeStandIn

ALWAYS = frozenset({"expand"})


@dataclass(frozen=True, slots=True)
class Page:
    """One method of one path: what does it, and the parameters that it takes."""

    method: str
    path: str
    does: Callable[[Call], Thing]
    takes: frozenset[str]


def page(method: str, path: str, does: Callable[[Call], Thing], takes: str = "") -> Page:
    """Declare a page; `takes` names its parameters."""
    return Page(method, path, does, ALWAYS | frozenset(takes.split()))


def served(stripe: StripeStandIn, pages: Iterable[Page]) -> list[BaseRoute]:
    """The routes of these pages, and the answer to whoever asks for another."""

    def route(page: Page) -> Route:
        async def answer(request: Request) -> Response:
            return await _answer(stripe, page, request)

        return Route(page.path, answer, methods=[page.method])

    async def unknown(request: Request) -> Response:
        return await _answer(stripe, Page(request.method, "", _nowhere(request), frozenset()), request)

    return [*map(route, pages), Route("/{rest:path}", unknown, methods=["GET", "POST", "DELETE", "PUT", "PATCH"])]


def _nowhere(request: Request) -> Callable[[Call], Thing]:
    def refuse(call: Call) -> Thing:
        raise ErrorAnswer(404, f"Unrecognized request URL ({request.method}: {_path(request)}).", executed=False)

    return refuse


async def _answer(stripe: StripeStandIn, page: Page, request: Request) -> Response:
    """Answer a request, whatever it is; and write it down."""
    call = Call(stripe, id=stripe.world.new_id("req"), path=dict(request.path_params))
    headers = {"Request-Id": str(call.id)}
    try:
        status, body, first = await _executed(call, page, request)
    except ErrorAnswer as refused:
        status, body, first = refused.status, _error(refused, call), None
    if call.key is not None:
        headers["Idempotency-Key"] = call.key.encode("ascii", "replace").decode()
    if call.version is not None:
        headers["Stripe-Version"] = call.version
    if first is not None:
        headers |= {"Idempotent-Replayed": "true", "Original-Request": first}
    seen: dict[str, Any] = {"method": page.method, "path": _path(request), "account": call.account}
    seen |= {"version": call.version, "key": call.key, "status": status, "replayed": first is not None}
    stripe.world.ledger.add("stripe.request", str(call.id), seen)
    return Response(body, status, headers, media_type="application/json")


def _path(request: Request) -> str:
    """The path as Stripe has it, without the place where the sandbox puts it."""
    return str(request.scope["path"]).removeprefix(request.scope.get("root_path", ""))


async def _executed(call: Call, page: Page, request: Request) -> tuple[int, str, str | None]:
    """Status, body, and the id of the first request if this is what that was answered."""
    _admit(call, request)
    given = pairs(request.url.query)
    if page.method != "GET":
        try:
            given += pairs((await request.body()).decode())
        except UnicodeDecodeError:
            raise ErrorAnswer(400, "Invalid request: the body is not UTF-8.", executed=False) from None
    call.params = FormParams(nested(given))
    keys, key, print = call.stripe.keys, call.key, fingerprint(page.method, _path(request), given)
    if key is not None and (kept := keys.find(call.account, key, print)):
        return kept.status, kept.body, kept.request
    with keys.running(call.account, key):
        if call.stripe.settings.pace:  # otherwise nobody comes between a key and its answer
            await asyncio.sleep(call.stripe.settings.pace)
        with call.stripe.world.ledger.together():  # what happened and what was answered: both or none
            status, body, executed = _done(call, page)
            if key is not None and executed and call.stripe.settings.broken:
                call.stripe.settings.broken -= 1
                status, body = 500, _error(ErrorAnswer(500, "An unknown error occurred.", type="api_error"), call)
            if key is not None and executed:
                keys.keep(call.account, key, print, str(call.id), status, body)
    return status, body, None


def _done(call: Call, page: Page) -> tuple[int, str, bool]:
    try:
        with call.stripe.world.ledger.together():
            call.params.only(page.takes)
            wanted = call.params.words("expand")
            try:
                thing = page.does(call)
            except ErrorAnswer as refused:
                if refused.status != 402:
                    raise
                return 402, _error(refused, call), True  # declined: it happened, and what it wrote stays
            return 200, json.dumps(expanded(call, shown(thing), wanted)), True
    except ErrorAnswer as refused:
        if not refused.executed:
            raise
        return refused.status, _error(refused, call), True


def _admit(call: Call, request: Request) -> None:
    """Who asks, by the headers."""
    if not _secret(request.headers.get("authorization", "")).startswith(("sk_", "rk_")):
        message = "You did not provide an API key, or one that is none: send it as `Authorization: Bearer sk_test_...`."
        raise ErrorAnswer(401, message, executed=False)
    call.version = request.headers.get("stripe-version") or call.stripe.settings.version
    call.key = (request.headers.get("idempotency-key") or None) if request.method == "POST" else None
    account = request.headers.get("stripe-account")
    if account is not None and call.stripe.world.ledger.get("stripe.account", account) is None:
        message = f"The provided key does not have access to account '{account}' (or that account does not exist)."
        raise ErrorAnswer(403, message, code="account_invalid", executed=False)
    call.account = account


def _secret(authorization: str) -> str:
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).decode().partition(":")[0]
        except (binascii.Error, UnicodeDecodeError):
            return ""
    return ""


def _error(refused: ErrorAnswer, call: Call) -> str:
    error: dict[str, Any] = refused.error
    return json.dumps(
        {"error": {**error, "request_log_url": f"{call.stripe.world.url}/sandbox/outbox/stripe.request/{call.id}"}}
    )
