"""Carries Stripe's events: as Stripe signs them, and to whom it sends them."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import TYPE_CHECKING

from mainspring_sandbox.post import Post
from mainspring_sandbox.stripe.call import Thing, shown

if TYPE_CHECKING:
    from mainspring_sandbox.stripe.state import StripeSettings, StripeStandIn


def signature(secret: str, at: int, body: str) -> str:
    """What stands in `Stripe-Signature`.

    >>> signature("whsec_1", 1700000000, "{}")[:20]
    't=1700000000,v1=c8cf'
    """
    mac = hmac.new(secret.encode(), f"{at}.{body}".encode(), hashlib.sha256)
    return f"t={at},v1={mac.hexdigest()}"


class StripePost(Post):
    """The deliveries of Stripe."""

    provider = "stripe"

    def __init__(self, stripe: StripeStandIn) -> None:
        super().__init__(stripe.world)
        self._stripe = stripe

    @property
    def settings(self) -> StripeSettings:
        """Those of Stripe."""
        return self._stripe.settings

    def signed(self, event: Thing, endpoint: Thing) -> tuple[dict[str, str], bytes]:
        """With a stamp and a signature of both."""
        body = json.dumps(shown(event))
        signed = signature(endpoint["_secret"], int(self._world.now().timestamp()), body)
        return {"Stripe-Signature": signed, "User-Agent": "Stripe/1.0"}, body.encode()

    def wants(self, endpoint: Thing, event: Thing) -> bool:
        """Events of connected accounts go to their own endpoints and to the platform's that asked for them."""
        if endpoint["status"] != "enabled" or not {"*", event["type"]} & set(endpoint["enabled_events"]):
            return False
        owner = event["_account"]
        return bool(endpoint["_account"] == owner and not (owner is None and endpoint["_connect"])) or (
            owner is not None and endpoint["_account"] is None and bool(endpoint["_connect"])
        )

    def about(self, event: Thing) -> str | None:
        """The id of the object that it shows."""
        id: str | None = event["data"]["object"].get("id")
        return id

    def lapse(self) -> int:
        """Sessions and vouchers end."""
        return self._stripe.lapse()
