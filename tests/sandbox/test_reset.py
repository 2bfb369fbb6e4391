"""A sandbox that many tests share: empty and well-behaved again after each, at the same addresses."""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime

import pytest
from tests.sandbox.till import Clock, Receiver, Till, until

from mainspring.contrib.notify import senders
from mainspring_sandbox import Fault, Sandbox
from mainspring_sandbox.server import _listening
from mainspring_sandbox.stripe import Manner, StripeSettings


def test_a_reset_forgets_everything_but_the_addresses(sandbox: Sandbox, shop: Till, hook: Receiver) -> None:
    url, smtp = sandbox.url, sandbox.smtp_port
    first = [shop.pay("k").id, shop.v1.customers.create({}).id]
    sandbox.faults.set(Fault(provider="stripe", kind="error", rate=0.5))
    struck = [sandbox.faults.strike("stripe") is not None for _ in range(20)]
    sandbox.stripe.register(hook.url)
    sandbox.stripe.settings.strict_balance = True
    sandbox.stripe.post.manners.append(Manner(drop=True))

    sandbox.reset()

    assert (sandbox.url, sandbox.smtp_port) == (url, smtp)
    assert (sandbox.ledger.find(), sandbox.faults.on, sandbox.stripe.post.manners) == ([], [], [])
    assert (sandbox.stripe.settings, dict(sandbox.faults.struck)) == (StripeSettings(), {})
    assert [shop.pay("k", amount=99).id, shop.v1.customers.create({}).id] == first  # the key is free, ids begin anew
    assert hook.got == []
    sandbox.faults.set(Fault(provider="stripe", kind="error", rate=0.5))
    assert [sandbox.faults.strike("stripe") is not None for _ in range(20)] == struck


def test_what_was_under_way_does_not_arrive_after_a_reset(sandbox: Sandbox, shop: Till, hook: Receiver) -> None:
    sandbox.stripe.register(hook.url, "charge.succeeded")
    sandbox.stripe.post.manners.append(Manner(delay=0.05))
    shop.pay()
    sandbox.reset()
    secret = sandbox.stripe.register(hook.url, "charge.succeeded", "customer.created")["secret"]
    sandbox.stripe.post.manners.append(Manner(type="charge.*", delay=0.15))  # the ids of the first deliveries again
    shop.pay()
    shop.v1.customers.create({})
    until(lambda: len(hook.got) == 2)

    assert [event.type for event in hook.events(secret)] == ["customer.created", "charge.succeeded"]


def test_a_reset_may_bring_another_clock(sandbox: Sandbox, clock: Clock, shop: Till) -> None:
    sandbox.reset(lambda: datetime(2031, 1, 1, tzinfo=UTC))
    assert shop.v1.customers.create({}).created == int(datetime(2031, 1, 1, tzinfo=UTC).timestamp())

    sandbox.reset()
    assert sandbox.world.now() == datetime(2031, 1, 1, tzinfo=UTC)


def test_it_stands_in_for_what_the_environment_names(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESEND_API_KEY", "re_real")
    monkeypatch.setenv("STRIPE_API_KEY", "sk_live_1")
    before = dict(os.environ)

    with sandbox.standing_in():
        assert os.environ["MAINSPRING_STRIPE_BASE"] == f"{sandbox.url}/stripe"
        assert (os.environ["STRIPE_API_KEY"], os.environ.get("RESEND_API_KEY")) == ("sk_test_sandbox", None)
        monkeypatch.setenv("RESEND_API_KEY", "re_real")  # behind `eval "$(mainspring sandbox env)"`
        assert repr(senders()[0]) == f"<Resend {sandbox.url}/resend>"
        monkeypatch.delenv("RESEND_API_KEY")
        assert sandbox.environment("whsec_1")["STRIPE_WEBHOOK_SECRET"] == "whsec_1"

    assert dict(os.environ) == before


def test_work_for_a_sandbox_that_does_not_run_is_refused() -> None:
    async def work() -> None:
        """Nothing."""

    sandbox = Sandbox()
    with pytest.raises(RuntimeError, match="does not run"):
        sandbox.run(work())
    sandbox.stop()


def test_answers_do_not_wait_for_the_callers_acknowledgement() -> None:
    with _listening(0) as listening:
        assert listening.proto == socket.IPPROTO_TCP  # by which asyncio knows whom to give TCP_NODELAY
