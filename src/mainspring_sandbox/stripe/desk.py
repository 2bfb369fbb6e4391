"""What people and tests make happen at Stripe, over HTTP, below `/sandbox/stripe`."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mainspring_sandbox.acts import answered, asked_of, guarded
from mainspring_sandbox.post import Manner
from mainspring_sandbox.stripe.disputes import Verdict
from mainspring_sandbox.stripe.state import ChargeOutcome, StripeSettings, StripeStandIn
from mainspring_sandbox.world import World


class Settle(msgspec.Struct, forbid_unknown_fields=True):
    """An intent, a refund or a checkout session, and how it ends."""

    id: str
    outcome: ChargeOutcome
    decline_code: str = "generic_decline"
    method: str = "pm_card_visa"  # by which a session is paid


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


class GiveBack(msgspec.Struct, forbid_unknown_fields=True):
    """A charge or an intent that somebody refunds in the dashboard, whole or in part."""

    id: str
    amount: int | None = None


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
            stripe.settings = msgspec.convert(now | await asked_of(request, dict[str, Any]), StripeSettings)
        return answered(stripe.settings)

    async def settle(request: Request) -> Response:
        asked = await asked_of(request, Settle)
        return answered(stripe.settle(asked.id, asked.outcome, asked.decline_code, method=asked.method))

    async def register(request: Request) -> Response:
        asked = await asked_of(request, Register)
        found = stripe.register(
            asked.url, *asked.events, secret=asked.secret, account=asked.account, connect=asked.connect
        )
        return answered(found)

    async def manners(request: Request) -> Response:
        if request.method == "POST":
            stripe.post.manners.append(await asked_of(request, Manner))
        elif request.method == "DELETE":
            stripe.post.manners.clear()
        return answered(stripe.post.manners)

    async def held(request: Request) -> Response:
        return answered([{"id": entry.id, **entry.body} for entry in stripe.post.held()])

    async def release(request: Request) -> Response:
        return answered(stripe.post.release((await asked_of(request, Release)).ids))

    async def deliver(request: Request) -> Response:
        return answered(stripe.post.again(request.path_params["id"]))

    async def keys(request: Request) -> Response:
        stripe.keys.forget()
        return answered({"forgotten": True})

    async def restrict(request: Request) -> Response:
        asked, id = await asked_of(request, Restrict), request.path_params["id"]
        shown = stripe.restrict(id, **asked.capabilities or {})
        return answered(shown if asked.past_due is None else stripe.require(id, *asked.past_due))

    async def payout(request: Request) -> Response:
        asked = await asked_of(request, FailPayout)
        return answered(stripe.fail_payout(request.path_params["id"], asked.amount, asked.currency, asked.code))

    async def dispute(request: Request) -> Response:
        asked = await asked_of(request, Complain)
        return answered(stripe.dispute(asked.charge, asked.amount, asked.reason, inquiry=asked.inquiry))

    async def refund(request: Request) -> Response:
        asked = await asked_of(request, GiveBack)
        return answered(stripe.refund(asked.id, asked.amount))

    async def escalate(request: Request) -> Response:
        return answered(stripe.escalate(request.path_params["id"]))

    async def decide(request: Request) -> Response:
        return answered(stripe.close_dispute(request.path_params["id"], (await asked_of(request, Decide)).verdict))

    return [
        Route("/settings", guarded(settings), methods=["GET", "POST"]),
        Route("/settle", guarded(settle), methods=["POST"]),
        Route("/webhooks", guarded(register), methods=["POST"]),
        Route("/manners", guarded(manners), methods=["GET", "POST", "DELETE"]),
        Route("/held", guarded(held)),
        Route("/release", guarded(release), methods=["POST"]),
        Route("/events/{id}/deliver", guarded(deliver), methods=["POST"]),
        Route("/keys", guarded(keys), methods=["DELETE"]),
        Route("/accounts/{id}", guarded(restrict), methods=["POST"]),
        Route("/accounts/{id}/payouts/fail", guarded(payout), methods=["POST"]),
        Route("/refunds", guarded(refund), methods=["POST"]),
        Route("/disputes", guarded(dispute), methods=["POST"]),
        Route("/disputes/{id}/escalate", guarded(escalate), methods=["POST"]),
        Route("/disputes/{id}/close", guarded(decide), methods=["POST"]),
    ]
