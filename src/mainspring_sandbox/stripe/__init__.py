"""Stands in for Stripe: its HTTP API as payments use it, with its idempotency, its test cards and its webhooks."""

from __future__ import annotations

from starlette.routing import BaseRoute

from mainspring_sandbox.post import Manner
from mainspring_sandbox.stripe import (
    accounts,
    balance,
    charges,
    checkout,
    customers,
    disputes,
    endpoints,
    events,
    intents,
    methods,
    payment_page,
    payouts,
    refunds,
    setups,
    transfers,
)
from mainspring_sandbox.stripe.pages import served
from mainspring_sandbox.stripe.state import StripeSettings, StripeStandIn
from mainspring_sandbox.world import World

__all__ = ["Manner", "StripeSettings", "StripeStandIn", "routes"]

PAGES = (
    *accounts.PAGES,
    *balance.PAGES,
    *charges.PAGES,
    *checkout.PAGES,
    *customers.PAGES,
    *disputes.PAGES,
    *endpoints.PAGES,
    *events.PAGES,
    *intents.PAGES,
    *methods.PAGES,
    *payouts.PAGES,
    *refunds.PAGES,
    *setups.PAGES,
    *transfers.PAGES,
)


def routes(world: World) -> list[BaseRoute]:
    """The pages of the provider."""
    stripe = world.part(StripeStandIn)
    return [*payment_page.served(stripe), *served(stripe, PAGES)]
