"""Senders from the environment."""

from __future__ import annotations

import pytest

from mainspring.contrib.notify.settings import senders
from mainspring.errors import ConfigurationError

WHOLE = {
    "RESEND_API_KEY": "hunter2",
    "MAINSPRING_MAIL_FROM": "Shop <shop@example.com>",
    "MAINSPRING_SMTP_URL": "smtp://shop:hunter2@mail.example.com",
    "TWILIO_ACCOUNT_SID": "AC1",
    "TWILIO_AUTH_TOKEN": "hunter2",
    "TWILIO_FROM": "+4930901820",
    "MAINSPRING_PUSH_BASE": "https://push.example.com",
    "MAINSPRING_PUSH_TOKEN": "hunter2",
}


def test_what_is_configured_is_built_and_nothing_else() -> None:
    assert senders({}) == []
    assert [sender.name for sender in senders(WHOLE)] == ["resend", "smtp", "twilio", "push"]
    assert [sender.channel for sender in senders(WHOLE)] == ["email", "email", "sms", "push"]
    only = {name: WHOLE[name] for name in ("MAINSPRING_SMTP_URL", "MAINSPRING_MAIL_FROM")}
    assert [repr(sender) for sender in senders(only)] == ["<Smtp mail.example.com:587>"]


@pytest.mark.parametrize(
    "missing", ["MAINSPRING_MAIL_FROM", "TWILIO_AUTH_TOKEN", "TWILIO_FROM", "MAINSPRING_PUSH_TOKEN"]
)
def test_half_a_configuration_names_what_is_missing(missing: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{missing}: is needed with "):
        senders(WHOLE | {missing: " "})


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("MAINSPRING_MAIL_FROM", "nobody"),
        ("MAINSPRING_SMTP_URL", "http://shop:hunter2@mail.example.com"),
        ("MAINSPRING_SMTP_URL", "smtp://shop:hunter2@mail.example.com?tls=none"),
        ("MAINSPRING_PUSH_BASE", "http://push.example.com"),
        ("MAINSPRING_TWILIO_BASE", "hunter2"),
        ("MAINSPRING_RESEND_BASE", "hunter2"),
    ],
)
def test_mistakes_name_the_variable_and_not_its_value(variable: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{variable}: ") as refused:
        senders(WHOLE | {variable: value})

    assert "hunter2" not in str(refused.value)
