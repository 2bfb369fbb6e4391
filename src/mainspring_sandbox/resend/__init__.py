"""Stands in for Resend: `POST /emails`, idempotent by key for a day, `GET /emails/{id}`, and its signed webhooks.

Every API key is taken but `re_invalid`. Mail to `bounce@…` is refused, as an address that is none. Mail to `bounced@…`
is taken, and bounces; whoever is `complained@…` takes it for spam. The others are told of as sent and delivered.
"""

from __future__ import annotations

from mainspring_sandbox.resend.pages import routes
from mainspring_sandbox.resend.state import ResendStandIn

__all__ = ["ResendStandIn", "routes"]
