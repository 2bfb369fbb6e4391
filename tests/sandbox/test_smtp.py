"""The mailbox, from the outside: by Python's own SMTP client."""

from __future__ import annotations

import smtplib
import time
from collections.abc import Iterator
from email.message import EmailMessage
from typing import Any

import pytest

from mainspring_sandbox import Sandbox
from mainspring_sandbox.faults import Fault


@pytest.fixture
def line(sandbox: Sandbox) -> Iterator[smtplib.SMTP]:
    with smtplib.SMTP("127.0.0.1", sandbox.smtp_port, timeout=1) as line:
        yield line


def a_mail(to: str = "jo@example.com") -> EmailMessage:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"], mail["Message-ID"] = "Shop <shop@example.com>", to, "Olá", "<1@x>"
    mail.set_content("text\n.\nmore\n")
    mail.add_alternative("<p>html</p>", subtype="html")
    return mail


def test_mail_is_kept_with_all_that_people_ask_for(sandbox: Sandbox, line: smtplib.SMTP) -> None:
    line.send_message(a_mail())

    (entry,) = sandbox.ledger.find("mail")
    asked = ("provider", "from", "to", "subject", "text", "html", "message_id", "mail_from")
    assert [entry.body[name] for name in asked] == [
        "smtp", "Shop <shop@example.com>", ["jo@example.com"], "Olá", "text\n.\nmore\n", "<p>html</p>\n", "<1@x>",
        "shop@example.com",
    ]  # fmt: skip
    assert entry.body["headers"]["subject"] == "Olá"


@pytest.mark.parametrize(
    "raw", [b"", b"\r\n", b"no header", b"Subject: =?utf-8?b?zz?=\r\nContent-Type: text/plain; charset=odd\r\n\r\n\xff"]
)
def test_mail_that_is_none_is_kept_as_it_is(sandbox: Sandbox, line: smtplib.SMTP, raw: bytes) -> None:
    line.sendmail("a@example.com", ["b@example.com"], raw)

    assert sandbox.ledger.count("mail") == 1


def test_some_recipients_bounce(sandbox: Sandbox, line: smtplib.SMTP) -> None:
    with pytest.raises(smtplib.SMTPRecipientsRefused) as refused:
        line.send_message(a_mail("bounce@example.com"))

    assert refused.value.recipients["bounce@example.com"][0] == 550
    assert sandbox.ledger.count("mail") == 0


def test_fault_may_be_for_some_recipients(sandbox: Sandbox, line: smtplib.SMTP) -> None:
    sandbox.faults.set(Fault(provider="smtp", kind="error", status=450, path="@slow.example"))

    line.send_message(a_mail())
    with pytest.raises(smtplib.SMTPRecipientsRefused):
        line.send_message(a_mail("jo@slow.example"))

    assert sandbox.ledger.count("mail") == 1


@pytest.mark.parametrize(
    ("fault", "kept"),
    [
        ({"kind": "drop"}, 1),
        ({"kind": "timeout"}, 0),
        ({"kind": "timeout", "accepted": True}, 1),
        ({"kind": "error", "accepted": True}, 1),
        ({"kind": "error"}, 0),
        ({"kind": "error", "provider": "smtp.data"}, 0),
    ],
)
def test_faults_happen_before_or_after_the_mail_is_kept(
    sandbox: Sandbox, line: smtplib.SMTP, fault: dict[str, Any], kept: int
) -> None:
    line.timeout = 0.2
    if line.sock is not None:
        line.sock.settimeout(0.2)
    asked: dict[str, Any] = {"provider": "smtp", "times": 1} | fault
    sandbox.faults.set(Fault(**asked))

    with pytest.raises((smtplib.SMTPException, TimeoutError)):
        line.send_message(a_mail())

    assert sandbox.ledger.count("mail") == kept
    assert sandbox.faults.struck.total() == 1


def test_slow_is_late_and_well(sandbox: Sandbox, line: smtplib.SMTP) -> None:
    sandbox.faults.set(Fault(provider="smtp", kind="slow", seconds=0.1))

    began = time.monotonic()
    line.send_message(a_mail())

    assert time.monotonic() - began >= 0.1
    assert sandbox.ledger.count("mail") == 1


@pytest.mark.parametrize("kind", ["error", "drop", "timeout"])
def test_line_may_not_be_had_at_all(sandbox: Sandbox, kind: Any) -> None:
    sandbox.faults.set(Fault(provider="smtp.connect", kind=kind, times=1))

    with pytest.raises((smtplib.SMTPException, OSError)):
        smtplib.SMTP("127.0.0.1", sandbox.smtp_port, timeout=0.1)
    smtplib.SMTP("127.0.0.1", sandbox.smtp_port, timeout=1).quit()


def test_one_password_is_wrong(line: smtplib.SMTP) -> None:
    with pytest.raises(smtplib.SMTPAuthenticationError):
        line.login("shop", "wrong")
    line.login("shop", "right")
