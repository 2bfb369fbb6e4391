"""Senders under notifications: what becomes of a job when a provider fails, and what the provider holds then."""

from __future__ import annotations

from typing import Any

import pytest
from tests.contrib.senders.kit import PUSH, RESEND, SMTP, TWILIO, Kind, fault

import mainspring as ms
from mainspring.contrib.notify import Notify, Template
from mainspring.contrib.notify.sender import Sender
from mainspring.testing import Harness
from mainspring_sandbox import Sandbox

RETRY = ms.fixed(60, attempts=3)
NOTE = Template("ready", "Ready", "Your machine is ready.", channels=("email",), class_="critical")


@pytest.fixture
def mail(request: pytest.FixtureRequest, sandbox: Sandbox) -> Sender:
    kind: Kind = getattr(request, "param", RESEND)
    return kind.make(sandbox, timeout=1.0)


@pytest.fixture
def notify(sandbox: Sandbox, mail: Sender) -> Notify:
    others = [TWILIO.make(sandbox, timeout=1.0), PUSH.make(sandbox, timeout=1.0)]
    return Notify(senders=[mail, *others], templates=[NOTE], retry=RETRY)


@pytest.fixture
def mainspring_app(notify: Notify) -> ms.App:
    return ms.App(ms.Registry("test"), blocks=[notify], maintenance=False)


@pytest.fixture
def mainspring(mainspring: Harness, notify: Notify) -> Harness:
    notify.save_recipient(
        "ana", email="ana@example.com", phone="+351900000007", push_token="device", by=mainspring.client
    )
    return mainspring


def ask(mainspring: Harness, notify: Notify, *channels: Any) -> list[Any]:
    """Ask for a notification, and try it once; its jobs, channel by channel."""
    asked = notify.send("ana", "ready", channels=channels or None, by=mainspring.client)
    mainspring.drain(raise_errors=False)
    return [mainspring.client.get(one.job_id) for one in asked]


def again(mainspring: Harness, job: Any) -> Any:
    """Try it once more, when it is due."""
    mainspring.advance(minutes=2, raise_errors=False)
    return mainspring.client.get(job.id)


@pytest.mark.rule("STAFF-14.03")
def test_channels_are_sent_and_retried_one_by_one(mainspring: Harness, notify: Notify, sandbox: Sandbox) -> None:
    fault(sandbox, "twilio", "error", status=503)

    mail, sms, push = ask(mainspring, notify, "email", "sms", "push")
    assert (mail.state, sms.state, push.state) == ("succeeded", "retrying", "succeeded")
    assert [sandbox.ledger.count(kind) for kind in ("mail", "sms", "push")] == [1, 0, 1]
    sandbox.faults.clear()

    assert again(mainspring, sms).state == "succeeded"
    assert [sandbox.ledger.count(kind) for kind in ("mail", "sms", "push")] == [1, 1, 1]


@pytest.mark.rule("RENT-5.05")
@pytest.mark.parametrize("mail", [RESEND, SMTP], ids=str, indirect=True)
def test_mail_is_tried_three_times(mainspring: Harness, notify: Notify, sandbox: Sandbox, mail: Sender) -> None:
    fault(sandbox, mail.name, "error", status=500, times=2)

    (job,) = ask(mainspring, notify)
    again(mainspring, job)
    job = again(mainspring, job)

    assert (job.state, job.attempt, sandbox.ledger.count("mail")) == ("succeeded", 3, 1)


@pytest.mark.rule("RENT-5.06")
@pytest.mark.parametrize("mail", [RESEND, SMTP], ids=str, indirect=True)
@pytest.mark.parametrize("address", ["a@", "bounce@example.com"])
def test_wrong_address_fails_after_one_attempt(
    mainspring: Harness, notify: Notify, sandbox: Sandbox, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    notify.save_recipient("ana", email=address, by=mainspring.client)

    (job,) = ask(mainspring, notify)

    assert (job.state, job.attempt, job.error["code"]) == ("failed", 1, "EMAIL_ADDRESS_INVALID")
    assert "email:error" in [record.getMessage() for record in caplog.records]
    assert sandbox.ledger.count("mail") == 0


@pytest.mark.rule("RENT-5.07", "PLAN-3.12")
@pytest.mark.parametrize("kind", ["timeout", "drop"])
def test_retry_after_a_lost_answer_delivers_once(
    mainspring: Harness, notify: Notify, sandbox: Sandbox, kind: str
) -> None:
    for provider in ("resend", "twilio", "push"):
        fault(sandbox, provider, kind, accepted=True, times=1)

    jobs = ask(mainspring, notify, "email", "sms", "push")
    assert [job.state for job in jobs] == ["retrying"] * 3
    mainspring.advance(minutes=2, raise_errors=False)

    assert [mainspring.client.get(job.id).state for job in jobs] == ["succeeded"] * 3
    assert [sandbox.ledger.count(kind) for kind in ("mail", "sms", "push")] == [1, 1, 1]


@pytest.mark.parametrize("mail", [SMTP], ids=str, indirect=True)
def test_mail_over_smtp_comes_at_most_once_more_with_the_same_id(
    mainspring: Harness, notify: Notify, sandbox: Sandbox
) -> None:
    fault(sandbox, "smtp", "drop", times=1)

    (job,) = ask(mainspring, notify)
    job = again(mainspring, job)

    held = [entry.body["message_id"] for entry in sandbox.ledger.find("mail")]
    assert (job.state, len(held), len(set(held))) == ("succeeded", 2, 1)


@pytest.mark.rule("PLAN-3.13")
def test_hint_of_a_provider_moves_the_job(mainspring: Harness, notify: Notify, sandbox: Sandbox) -> None:
    fault(sandbox, "resend", "error", status=429, retry_after=90, times=1)

    (job,) = ask(mainspring, notify)
    mainspring.advance(seconds=89, raise_errors=False)
    early = mainspring.client.get(job.id).state
    mainspring.advance(seconds=61)

    assert (job.state, early, mainspring.client.get(job.id).state) == ("retrying", "retrying", "succeeded")


def test_a_message_that_never_left_is_not_taken_for_another_one_of_the_same_words(
    mainspring: Harness, notify: Notify, sandbox: Sandbox
) -> None:
    fault(sandbox, "twilio", "error", status=503, times=1)  # and nobody knows whether it acted
    texts = [
        notify.send("ana", "ready", {"booking": n}, channels=["sms"], by=mainspring.client)[0].job_id for n in (1, 2)
    ]
    mainspring.drain(raise_errors=False)
    mainspring.advance(minutes=2, raise_errors=False)

    assert [mainspring.client.get(job).state for job in texts] == ["succeeded"] * 2
    assert sandbox.ledger.count("sms") == 2
