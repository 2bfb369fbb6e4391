"""The settings by which an application finds the sandbox in place of real providers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

#: Real providers, which an application that is tried out must not reach.
REAL: Final = ("RESEND_API_KEY",)
#: What Stripe's stand-in signs with where nobody says otherwise; no secret: it is on this machine alone.
WEBHOOK_SECRET: Final = "whsec_sandbox"  # noqa: S105
#: The same for Resend's, which takes secrets of this form only.
RESEND_SECRET: Final = "whsec_c2FuZGJveC1zYW5kYm94LXNhbmRib3gh"  # noqa: S105


def environment(url: str, smtp_port: int, webhook_secret: str = WEBHOOK_SECRET) -> dict[str, str]:
    """The settings by which an application finds the sandbox in place of real providers.

    >>> environment("http://127.0.0.1:8025", 1025, "whsec_1")["MAINSPRING_SMTP_URL"]
    'smtp://127.0.0.1:1025?tls=none'
    """
    return {
        "MAINSPRING_SANDBOX": url,
        "MAINSPRING_SMTP_URL": f"smtp://127.0.0.1:{smtp_port}?tls=none",
        "MAINSPRING_MAIL_FROM": "Shop <shop@example.com>",
        "SEND_EMAILS": "true",
        "TWILIO_ACCOUNT_SID": "ACsandbox",
        "TWILIO_AUTH_TOKEN": "sandbox",
        "TWILIO_FROM": "+15005550006",
        "MAINSPRING_TWILIO_BASE": f"{url}/twilio",
        "MAINSPRING_PUSH_BASE": f"{url}/push",
        "MAINSPRING_PUSH_TOKEN": "sandbox",
        "STRIPE_API_KEY": "sk_test_sandbox",
        "MAINSPRING_STRIPE_BASE": f"{url}/stripe",
        "STRIPE_WEBHOOK_SECRET": webhook_secret,
        "MAINSPRING_RESEND_BASE": f"{url}/resend",  # whoever has a key sends it here
        "RESEND_WEBHOOK_SECRET": RESEND_SECRET,
        "VENDUS_API_KEY": "sandbox",
        "MAINSPRING_VENDUS_BASE": f"{url}/vendus",
    }


@contextmanager
def applied(settings: Mapping[str, str], without: Iterable[str] = REAL) -> Iterator[None]:
    """Inside the block the environment has these settings, and not those; afterwards it is as before."""
    before = {name: os.environ.get(name) for name in (*settings, *without)}
    for name in without:
        os.environ.pop(name, None)
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
