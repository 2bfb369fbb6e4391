"""The senders that the environment configures."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from mainspring.contrib.notify.push import Push
from mainspring.contrib.notify.resend import RESEND_URL, Resend
from mainspring.contrib.notify.sender import Sender
from mainspring.contrib.notify.smtp import Smtp
from mainspring.contrib.notify.twilio import TWILIO_URL, Twilio
from mainspring.errors import ConfigurationError


def senders(env: Mapping[str, str] | None = None) -> list[Sender]:
    """Build what is configured; half a configuration is an error that names what is missing.

    >>> senders({"RESEND_API_KEY": "re_1", "MAINSPRING_MAIL_FROM": "Shop <shop@example.com>"})
    [<Resend https://api.resend.com>]
    """
    given = {name: value.strip() for name, value in (os.environ if env is None else env).items() if value.strip()}
    found: list[Sender] = []
    if "RESEND_API_KEY" in given:
        key, sender = _together(given, "RESEND_API_KEY", "MAINSPRING_MAIL_FROM")
        with _named(sender="MAINSPRING_MAIL_FROM", base="MAINSPRING_RESEND_BASE"):
            found.append(Resend(key, sender=sender, base=given.get("MAINSPRING_RESEND_BASE", RESEND_URL)))
    if "MAINSPRING_SMTP_URL" in given:
        url, sender = _together(given, "MAINSPRING_SMTP_URL", "MAINSPRING_MAIL_FROM")
        with _named(sender="MAINSPRING_MAIL_FROM", url="MAINSPRING_SMTP_URL", **_OF_URL):
            found.append(Smtp.from_url(url, sender=sender))
    if "TWILIO_ACCOUNT_SID" in given:
        sid, token, sender = _together(given, "TWILIO_ACCOUNT_SID", "TWILIO_AUTH_TOKEN", "TWILIO_FROM")
        with _named(sender="TWILIO_FROM", base="MAINSPRING_TWILIO_BASE"):
            found.append(Twilio(sid, token, sender=sender, base=given.get("MAINSPRING_TWILIO_BASE", TWILIO_URL)))
    if "MAINSPRING_PUSH_BASE" in given:
        base, token = _together(given, "MAINSPRING_PUSH_BASE", "MAINSPRING_PUSH_TOKEN")
        with _named(base="MAINSPRING_PUSH_BASE"):
            found.append(Push(base, token=token))
    return found


_OF_URL = {"tls": "MAINSPRING_SMTP_URL", "password": "MAINSPRING_SMTP_URL"}


def _together(given: Mapping[str, str], *names: str) -> list[str]:
    for name in names:
        if name not in given:
            raise ConfigurationError(f"{name}: is needed with {names[0]}")
    return [given[name] for name in names]


@contextmanager
def _named(**variables: str) -> Iterator[None]:
    """Name the variable where a sender names its argument."""
    try:
        yield
    except ConfigurationError as error:
        field, _, what = str(error).partition(": ")
        raise ConfigurationError(f"{variables.get(field, field)}: {what}") from None
