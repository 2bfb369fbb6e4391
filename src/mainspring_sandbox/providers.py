"""The providers that the sandbox stands in for: the first part of the path, and the pages behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from starlette.routing import BaseRoute

from mainspring_sandbox import partner, push, resend, stripe, twilio, vendus
from mainspring_sandbox.smtp import smtp_server
from mainspring_sandbox.world import World

__all__ = ["PROVIDERS", "smtp_server"]

PROVIDERS: Final[dict[str, Callable[[World], list[BaseRoute]]]] = {
    "stripe": stripe.routes,
    "twilio": twilio.routes,
    "resend": resend.routes,
    "push": push.routes,
    "partner": partner.routes,
    "vendus": vendus.routes,
}
