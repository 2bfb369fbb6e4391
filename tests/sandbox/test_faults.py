"""Faults strike the requests that they are meant for, as often as they are told to."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from tests.sandbox.till import ask, ask_stripe

from mainspring_sandbox import Sandbox
from mainspring_sandbox.faults import Fault, Faults


def test_a_fault_strikes_only_what_it_is_meant_for() -> None:
    faults = Faults()
    faults.set(Fault(provider="stripe", kind="error", path="/refunds", method="POST"))

    assert faults.strike("stripe", "/v1/refunds", method="POST") is not None
    assert faults.strike("stripe", "/v1/refunds", method="GET") is None
    assert faults.strike("stripe", "/v1/charges", method="POST") is None
    assert faults.strike("twilio", "/v1/refunds", method="POST") is None
    assert faults.strike("stripe", "/v1/refunds", ["slow"], method="POST") is None


def test_a_fault_strikes_so_often_and_no_more() -> None:
    faults = Faults()
    faults.set(Fault(provider="stripe", kind="error", times=2), Fault(provider="stripe", kind="slow", times=1))

    struck = [faults.strike("stripe") for _ in range(4)]
    assert [fault and fault.kind for fault in struck] == ["error", "error", "slow", None]
    assert faults.struck == {("stripe", "error"): 2, ("stripe", "slow"): 1}


def test_a_part_of_the_requests_is_struck_and_each_run_strikes_the_same() -> None:
    def run() -> list[bool]:
        faults = Faults(seed=7)
        faults.set(Fault(provider="stripe", kind="error", rate=0.2))
        return [faults.strike("stripe") is not None for _ in range(1000)]

    assert run() == run()
    assert 150 < sum(run()) < 250


def test_faults_are_cleared_by_provider() -> None:
    faults = Faults()
    faults.set(Fault(provider="stripe", kind="error"), Fault(provider="twilio", kind="error"))
    faults.clear("stripe")
    assert [fault.provider for fault in faults.on] == ["twilio"]
    faults.clear()
    assert faults.on == []


def test_an_error_is_answered_as_told_and_nothing_happens(sandbox: Sandbox) -> None:
    body = {"provider": "stripe", "kind": "error", "status": 429, "code": "rate_limit", "retry_after": 7, "times": 1}
    assert ask(sandbox, "POST", "/sandbox/faults", body).json()[0]["times"] == 1
    answer = ask_stripe(sandbox, "POST", "/v1/customers")

    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "7")
    assert answer.json()["error"]["code"] == "rate_limit"
    assert sandbox.ledger.find() == []
    assert ask_stripe(sandbox, "POST", "/v1/customers").status_code == 200


@pytest.mark.parametrize(("kind", "accepted", "kept"), [("drop", False, 1), ("error", True, 1), ("error", False, 0)])
def test_what_is_accepted_has_happened(sandbox: Sandbox, kind: Any, accepted: bool, kept: int) -> None:
    sandbox.faults.set(Fault(provider="stripe", kind=kind, accepted=accepted))
    if kind == "drop":
        with pytest.raises(httpx2.RemoteProtocolError):
            ask_stripe(sandbox, "POST", "/v1/customers")
    else:
        assert ask_stripe(sandbox, "POST", "/v1/customers").status_code == 500

    assert sandbox.ledger.count("stripe.customer") == kept


@pytest.mark.parametrize(("accepted", "kept"), [(True, 1), (False, 0)])
def test_silence_lasts_until_the_caller_gives_up(sandbox: Sandbox, accepted: bool, kept: int) -> None:
    sandbox.faults.set(Fault(provider="stripe", kind="timeout", accepted=accepted, times=1))
    with pytest.raises(httpx2.ReadTimeout):
        httpx2.post(
            f"{sandbox.url}/stripe/v1/customers", headers={"Authorization": "Bearer sk_1"}, timeout=0.2, trust_env=False
        )

    assert sandbox.ledger.count("stripe.customer") == kept
    assert ask_stripe(sandbox, "GET", "/v1/customers").status_code == 200


def test_slow_is_late_and_right(sandbox: Sandbox) -> None:
    sandbox.faults.set(Fault(provider="stripe", kind="slow", seconds=0.1))
    answer = ask_stripe(sandbox, "POST", "/v1/customers")

    assert answer.status_code == 200
    assert answer.elapsed.total_seconds() >= 0.1


@pytest.mark.parametrize(
    "body",
    [
        {"provider": "stripe"},
        {"provider": "stripe", "kind": "wet"},
        {"provider": "paypal", "kind": "error"},
        {"provider": "stripe", "kind": "error", "rate": 2},
        {"provider": "stripe", "kind": "error", "status": 200},
        {"provider": "stripe", "kind": "error", "sometimes": True},
        [],
    ],
)
def test_a_fault_that_is_none_is_refused(sandbox: Sandbox, body: Any) -> None:
    answer = ask(sandbox, "POST", "/sandbox/faults", body)

    assert answer.status_code == 422
    assert answer.json()["error"]
    assert sandbox.faults.on == []


def test_faults_are_shown_and_switched_off(sandbox: Sandbox) -> None:
    for provider in ("stripe", "smtp"):
        ask(sandbox, "POST", "/sandbox/faults", {"provider": provider, "kind": "error"})

    assert [fault["provider"] for fault in ask(sandbox, "GET", "/sandbox/faults").json()] == ["stripe", "smtp"]
    assert len(ask(sandbox, "DELETE", "/sandbox/faults?provider=smtp").json()) == 1
    assert ask(sandbox, "DELETE", "/sandbox/faults").json() == []
