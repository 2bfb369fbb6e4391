"""The page of a checkout session, on which a person pays: without a card, and without money."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from mainspring_sandbox.stripe.errors import ErrorAnswer
from mainspring_sandbox.stripe.paying import DELAYED

if TYPE_CHECKING:
    from mainspring_sandbox.stripe.state import StripeStandIn

PAYMENT_HTML = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Pay</title>
<body style="font: 1.2rem sans-serif; margin: 4rem auto; max-width: 30rem">
<h1>{amount} {currency}</h1><p>The sandbox's payment page for {id}: no card is asked for, and no money moves.</p>
{forms}"""
PAYMENT_FORM = (
    '<form method="post"><button name="method" value="{method}" '
    'style="font: inherit; padding: .5rem 2rem; margin: .5rem">{said}</button></form>'
)


def served(stripe: StripeStandIn) -> list[BaseRoute]:
    """The page, and what its button does."""

    async def show(request: Request) -> Response:
        stripe.lapse()
        session = stripe.world.ledger.get("stripe.checkout.session", request.path_params["id"])
        if session is None or not (session.body["status"] == "open" or session.body["_voucher_until"]):
            return HTMLResponse("There is nothing to pay here.", 404)
        asked = {"amount": session.body["amount_total"], "currency": session.body["currency"].upper(), "id": session.id}
        ways = {"pm_card_visa": "Pay"} | {
            way: f"Pay by {way}" for way in session.body["payment_method_types"] if way in DELAYED
        }
        if session.body["_voucher_until"]:
            ways = {"": "Pay the voucher"}
        forms = "".join(PAYMENT_FORM.format(method=escape(way), said=escape(said)) for way, said in ways.items())
        page = PAYMENT_HTML.format(**{name: escape(str(value)) for name, value in asked.items()}, forms=forms)
        return HTMLResponse(page)

    async def pay(request: Request) -> Response:
        try:
            method = dict(parse_qsl((await request.body()).decode("utf-8", "replace"))).get("method") or "pm_card_visa"
            session = stripe.settle(request.path_params["id"], "succeeded", method=method)
        except ErrorAnswer as refused:
            return HTMLResponse(escape(str(refused)), refused.status)
        there = (session["success_url"] or "").replace("{CHECKOUT_SESSION_ID}", session["id"])
        return RedirectResponse(there, 303) if there else HTMLResponse("Paid.")

    return [Route("/pay/{id}", show), Route("/pay/{id}", pay, methods=["POST"])]
