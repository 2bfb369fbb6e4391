"""What people and tests make happen at Stripe, over HTTP, below `/sandbox/stripe`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from mainspring_sandbox.stripe.disputes import Verdict
from mainspring_sandbox.stripe.errors import ErrorAnswer
from mainspring_sandbox.stripe.post import Manner
from mainspring_sandbox.stripe.state import ChargeOutcome, StripeSettings, StripeStandIn
from mainspring_sandbox.world import World

AskedT = TypeVar("AskedT")
RequestHandler = Callable[[Request], Awaitable[Response]]


class Settle(msgspec.Struct, forbid_unknown_fields=True):
    """An intent, a refund or a checkout session, and how it ends."""

    id: str
    outcome: ChargeOutcome
    decline_code: str = "generic_decline"


class Register(msgspec.Struct, forbid_unknown_fields=True):
    """A webhook endpoint on this machine."""

    url: str
    events: list[str] = []
    secret: str | None = None
    account: str | None = None
    connect: bool = False


class Release(msgspec.Struct, forbid_unknown_fields=True):
    """Deliveries that are held back, in the order in which they shall go; none named: all, as they came."""

    ids: list[str] | None = None


class Restrict(msgspec.Struct, forbid_unknown_fields=True):
    """What a connected account may do, and what it owes an answer to."""

    capabilities: dict[str, str] | None = None
    past_due: list[str] | None = None


class Complain(msgspec.Struct, forbid_unknown_fields=True):
    """A charge that its customer disputes at the bank."""

    charge: str
    amount: int | None = None
    reason: str = "fraudulent"
    inquiry: bool = False


class Decide(msgspec.Struct, forbid_unknown_fields=True):
    """How a dispute ends."""

    verdict: Verdict


class FailPayout(msgspec.Struct, forbid_unknown_fields=True):
    """A payout that comes back from the bank."""

    amount: int
    currency: str = "usd"
    code: str = "account_closed"


def routes(world: World) -> list[BaseRoute]:
    """The pages."""
    stripe = world.part(StripeStandIn)

    async def settings(request: Request) -> Response:
        if request.method == "POST":
            now = msgspec.to_builtins(stripe.settings)
            stripe.settings = msgspec.convert(now | await _asked(request, dict[str, Any]), StripeSettings)
        return _shown(stripe.settings)

    async def settle(request: Request) -> Response:
        asked = await _asked(request, Settle)
        return _shown(stripe.settle(asked.id, asked.outcome, asked.decline_code))

    async def register(request: Request) -> Response:
        asked = await _asked(request, Register)
        found = stripe.register(
            asked.url, *asked.events, secret=asked.secret, account=asked.account, connect=asked.connect
        )
        return _shown(found)

    async def manners(request: Request) -> Response:
        if request.method == "POST":
            stripe.post.manners.append(await _asked(request, Manner))
        elif request.method == "DELETE":
            stripe.post.manners.clear()
        return _shown(stripe.post.manners)

    async def held(request: Request) -> Response:
        return _shown([{"id": entry.id, **entry.body} for entry in stripe.post.held()])

    async def release(request: Request) -> Response:
        return _shown(stripe.post.release((await _asked(request, Release)).ids))

    async def deliver(request: Request) -> Response:
        return _shown(stripe.post.again(request.path_params["id"]))

    async def keys(request: Request) -> Response:
        stripe.keys.forget()
        return _shown({"forgotten": True})

    async def restrict(request: Request) -> Response:
        asked, id = await _asked(request, Restrict), request.path_params["id"]
        shown = stripe.restrict(id, **asked.capabilities or {})
        return _shown(shown if asked.past_due is None else stripe.require(id, *asked.past_due))

    async def payout(request: Request) -> Response:
        asked = await _asked(request, FailPayout)
        return _shown(stripe.fail_payout(request.path_params["id"], asked.amount, asked.currency, asked.code))

    async def dispute(request: Request) -> Response:
        asked = await _asked(request, Complain)
        return _shown(stripe.dispute(asked.charge, asked.amount, asked.reason, inquiry=asked.inquiry))

    async def escalate(request: Request) -> Response:
        return _shown(stripe.escalate(request.path_params["id"]))

    async def decide(request: Request) -> Response:
        return _shown(stripe.close_dispute(request.path_params["id"], (await _asked(request, Decide)).verdict))

    return [
        Route("/settings", _guarded(settings), methods=["GET", "POST"]),
        Route("/settle", _guarded(settle), methods=["POST"]),
        Route("/webhooks", _guarded(register), methods=["POST"]),
        Route("/manners", _guarded(manners), methods=["GET", "POST", "DELETE"]),
        Route("/held", _guarded(held)),
        Route("/release", _guarded(release), methods=["POST"]),
        Route("/events/{id}/deliver", _guarded(deliver), methods=["POST"]),
        Route("/keys", _guarded(keys), methods=["DELETE"]),
        Route("/accounts/{id}", _guarded(restrict), methods=["POST"]),
        Route("/accounts/{id}/payouts/fail", _guarded(payout), methods=["POST"]),
        Route("/disputes", _guarded(dispute), methods=["POST"]),
        Route("/disputes/{id}/escalate", _guarded(escalate), methods=["POST"]),
        Route("/disputes/{id}/close", _guarded(decide), methods=["POST"]),
    ]


async def _asked(request: Request, kind: type[AskedT]) -> AskedT:
    return msgspec.json.decode(await request.body() or b"{}", type=kind)


def _guarded(handler: RequestHandler) -> RequestHandler:
    """What cannot be read or done is said in one line."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return JSONResponse({"error": str(error)}, 422)
        except ErrorAnswer as refused:
            return JSONResponse({"error": str(refused)}, refused.status)

    return answer


def _shown(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
