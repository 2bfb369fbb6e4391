"""What is asked of Stripe: the requests themselves, what is refused before, looking, and what is never told."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from inspect import getdoc, iscoroutinefunction, isgeneratorfunction, signature
from typing import Any, get_args, get_type_hints

import pytest
import stripe as sdk
from stripe._api_version import _ApiVersion
from tests.contrib.stripe.till import KEY, SECRET, START, Till

import mainspring as ms
from mainspring import ValidationError
from mainspring.contrib.stripe import (
    API_VERSION,
    ActionRequired,
    Declined,
    Money,
    OutcomeUnknown,
    RequestRefused,
    Stripe,
    asking,
    chargeback,
    checkout_session,
    verbs,
)
from mainspring.contrib.stripe.asking import StripeRequest
from mainspring.errors import ConfigurationError
from mainspring.worker.steps import type_of
from mainspring_sandbox.faults import Fault

pytestmark = pytest.mark.anyio

FIVE = Money(500, "EUR")
INTENT = {"id": "pi_1", "object": "payment_intent", "status": "succeeded", "amount": 500, "currency": "eur"}
INTENT |= {"created": 1, "metadata": {"mainspring_key": "k"}}


def begun(**more: Any) -> Any:
    return verbs.charge(FIVE, customer="cus_1", payment_method="pm_1", key="k", **more)


async def test_a_charge_is_made_off_session_and_confirmed_at_once() -> None:
    flow = begun(metadata={"order": "7"}, description="Order 7", since=START)

    look = next(flow)
    assert (look.method, look.path, look.key) == ("get", "/v1/payment_intents", None)
    assert look.params["customer"] == "cus_1"
    assert look.params["created"] == {"gte": int(START.timestamp()) - 3600}
    call = flow.send({"data": [], "has_more": False})

    assert (call.method, call.path, call.key) == ("post", "/v1/payment_intents", "k")
    assert call.params == {
        "amount": 500,
        "currency": "eur",
        "customer": "cus_1",
        "payment_method": "pm_1",
        "off_session": True,
        "confirm": True,
        "automatic_payment_methods": {"enabled": True, "allow_redirects": "never"},
        "metadata": {"order": "7", "mainspring_key": "k"},
        "description": "Order 7",
        "expand": ["latest_charge.balance_transaction"],
    }


def ended(flow: Any, answer: Any) -> Any:
    with pytest.raises(StopIteration) as done:
        flow.send(answer)
    return done.value.value


async def test_an_error_that_stripe_remembers_is_looked_behind() -> None:
    unknown = OutcomeUnknown("500", code="HttpException")
    unknown.replayed = True
    flow = begun()
    next(flow)
    flow.send({"data": []})
    look = flow.throw(unknown)
    assert look.method == "get"
    assert ended(flow, {"data": [INTENT]}).id == "pi_1"  # it was charged though Stripe says 500 for a day

    flow = begun()
    next(flow)
    flow.send({"data": []})
    flow.throw(unknown)
    with pytest.raises(OutcomeUnknown):  # it was not, as far as anybody knows: the same key again
        flow.send({"data": []})


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"status": "requires_payment_method", "last_payment_error": {"decline_code": "lost_card"}}, Declined),
        ({"status": "requires_payment_method"}, Declined),
        (
            {"status": "requires_payment_method", "last_payment_error": {"code": "authentication_required"}},
            ActionRequired,
        ),
        ({"status": "requires_action"}, ActionRequired),
    ],
)
async def test_what_is_found_is_judged_as_what_is_answered(changes: dict[str, Any], error: type[Exception]) -> None:
    flow = begun()
    next(flow)
    with pytest.raises(error) as raised:
        flow.send({"data": [INTENT | changes]})
    assert raised.value.intent == "pi_1"  # type: ignore[attr-defined] # both have it


@pytest.mark.parametrize("status", ["processing", "requires_capture", "requires_confirmation", "something_new"])
async def test_what_has_not_ended_is_pending(status: str) -> None:
    flow = begun()
    next(flow)
    assert ended(flow, {"data": [INTENT | {"status": status}]}).status == "pending"


async def test_both_colours_have_each_verb_with_its_signature_documentation_and_answer() -> None:
    stripe = Stripe("sk_test_1")
    homes = (verbs, checkout_session, chargeback)
    written = {name: verb for home in homes for name, verb in vars(home).items() if isgeneratorfunction(verb)}
    offered = {name: verb for name, verb in written.items() if verb.__module__ in {home.__name__ for home in homes}}
    assert len(offered) == 22
    for name, verb in offered.items():
        plain, awaited = getattr(stripe.sync, name), getattr(stripe, name)
        assert (iscoroutinefunction(plain), iscoroutinefunction(awaited)) == (False, True)
        assert getdoc(plain) == getdoc(awaited) == getdoc(verb)
        assert signature(plain) == signature(awaited)
        assert signature(plain).parameters == signature(verb).parameters
        assert type_of(plain) == type_of(awaited) == get_args(get_type_hints(verb)["return"])[-1]


REFUSED: list[tuple[str, Callable[[], Any]]] = [
    ("amount", lambda: begun_with(amount=500)),
    ("amount", lambda: begun_with(amount=Money(0, "EUR"))),
    ("amount", lambda: begun_with(amount=Money(-1, "EUR"))),
    ("customer", lambda: begun_with(customer="cus_1/../x")),
    ("customer", lambda: begun_with(customer="")),
    ("payment_method", lambda: begun_with(payment_method=None)),
    ("key", lambda: begun_with(key="")),
    ("metadata", lambda: begun_with(metadata={"mainspring_key": "x"})),
    ("destination", lambda: verbs.transfer(FIVE, destination="acct 1", key="k")),
    ("transfer", lambda: verbs.reverse("tr_1/..", key="k")),
    ("intent", lambda: verbs.refund(key="k")),
    ("intent", lambda: verbs.refund(intent="pi_1", charge="ch_1", key="k")),
    ("amount", lambda: verbs.refund(intent="pi_1", amount=Money(0, "EUR"), key="k")),
    ("id", lambda: verbs.intent("../customers")),
    ("intent", lambda: verbs.cancel("pi_1?x=1", key="k")),
]


def begun_with(**changes: Any) -> Any:
    given: dict[str, Any] = {"amount": FIVE, "customer": "cus_1", "payment_method": "pm_1", "key": "k"} | changes
    return verbs.charge(given.pop("amount"), **given)


@pytest.mark.parametrize(("field", "flow"), REFUSED, ids=[f"{n}-{row[0]}" for n, row in enumerate(REFUSED)])
async def test_bad_input_is_refused_by_its_name_before_anything_is_sent(field: str, flow: Callable[[], Any]) -> None:
    with pytest.raises(ValidationError) as refused:
        next(flow())
    assert refused.value.field == field


async def test_every_request_says_the_version_that_the_block_was_written_for(till: Till) -> None:
    await till.paid()

    assert {ask["version"] for ask in [*till.asked(), *till.asked(method="GET")]} == {API_VERSION}
    assert API_VERSION == _ApiVersion.CURRENT, "the SDK moved on: read what changed, then pin its version"
    old = Stripe(KEY, base=f"{till.sandbox.url}/stripe", api_version="2024-06-20")
    assert await old.intent("pi_unknown") is None
    assert till.asked("pi_unknown", "GET")[0]["version"] == "2024-06-20"


async def test_a_connected_account_is_acted_for(till: Till) -> None:
    acting = Stripe(KEY, base=f"{till.sandbox.url}/stripe", connect_account=till.lender)

    assert await acting.intent("pi_unknown") is None
    assert till.asked("pi_unknown", "GET")[0]["account"] == till.lender


async def test_what_was_made_is_found_by_key_and_by_id(till: Till, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "STRIPE_PAGE", 2)
    stripe = till.stripe
    paid = [await till.paid(1000 + n, f"k{n}") for n in range(5)]
    sent = [await stripe.transfer(FIVE, destination=till.lender, key=f"t{n}", group="g", since=START) for n in range(3)]
    back = [
        await stripe.refund(intent=paid[0].id, amount=Money(100, "EUR"), key=f"r{n}", since=START) for n in range(3)
    ]

    assert await stripe.find_charge("k0", START, customer=till.customer) == paid[0]
    assert await stripe.find_charge("k0") == paid[0] == await stripe.intent(paid[0].id)
    assert await stripe.find_charge("k9") is None
    assert await stripe.find_transfer("t0", START, destination=till.lender, group="g") == sent[0]
    assert await stripe.find_transfer("k0") is None
    assert sent[0] == await stripe.get_transfer(sent[0].id) == stripe.sync.get_transfer(sent[0].id)
    assert back[0] == await stripe.get_refund(back[0].id) == stripe.sync.get_refund(back[0].id)
    assert (await stripe.get_transfer("tr_unknown"), await stripe.get_refund("re_unknown")) == (None, None)
    assert await stripe.find_refund("r0", START, intent=paid[0].id) == back[0]
    assert await stripe.find_refund("r0", charge=paid[1].charge) is None
    assert await stripe.charges(START) == paid[::-1] == stripe.sync.charges(START, customer=till.customer)
    assert await stripe.transfers(START, group="g") == sent[::-1]
    assert await stripe.refunds(START, intent=paid[0].id) == back[::-1]
    till.later(hours=3)
    assert await stripe.charges(till.now) == []
    assert paid[0].fee is not None


async def test_a_long_key_is_found_as_well(till: Till) -> None:
    paid = await till.paid(key="x" * 1000)

    assert await till.stripe.find_charge("x" * 1000) == paid
    assert len(str(paid.key)) == 71


async def test_a_charge_is_cancelled_unless_it_was_paid_meanwhile(till: Till) -> None:
    till.card = till.card_of("processing")
    waiting = await till.paid()
    assert waiting.status == "pending"
    assert (await till.stripe.cancel(waiting.id, key="c1")).status == "canceled"

    late = await till.paid(key="late")
    till.sandbox.stripe.settle(late.id, "succeeded")
    assert (await till.stripe.cancel(late.id, key="c2")).status == "succeeded"
    with pytest.raises(RequestRefused, match="404 resource_missing"):
        await till.stripe.cancel("pi_unknown", key="c3")


async def test_no_secret_is_told_in_logs_errors_or_names(till: Till, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    said = [repr(till.stripe), str(till.stripe.inbound), repr(till.stripe.sync), repr(till.stripe.breakers)]
    faults = [
        None,
        *(Fault(provider="stripe", kind="error", status=s, times=1) for s in (400, 401, 402, 403, 429, 500)),
    ]
    for fault in faults:
        if fault is not None:
            till.sandbox.faults.set(fault)
        for call in (
            till.stripe.charges(START),
            till.stripe.charge(FIVE, customer="cus_no", payment_method="pm_no", key="k"),
        ):
            try:
                said.append(repr(await call))
            except ms.Failure as error:
                said += [repr(error), str(error.__dict__), repr(error.__context__), repr(error.__cause__)]

    text = "\n".join([*said, caplog.text])
    assert KEY not in text
    assert SECRET not in text
    assert len(said) > 20


@pytest.mark.parametrize("colour", ["async", "sync"])
async def test_what_stripe_says_of_people_is_not_logged(
    till: Till, caplog: pytest.LogCaptureFixture, colour: str
) -> None:
    caplog.set_level(logging.INFO)  # as workers log
    said = {"error": {"type": "invalid_request_error", "message": "Invalid email address: ada@example"}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sdk.AIOHTTPClient, "request_with_retries_async", _answering(said))
        patch.setattr(sdk.RequestsClient, "request_with_retries", lambda *_, **__: (json.dumps(said), 400, {}))
        call = till.stripe.sync.customer if colour == "sync" else till.stripe.customer
        with pytest.raises(RequestRefused):
            await call(key="k", email="ada@example")  # type: ignore[misc] # the plain one raises before it is awaited

    assert "ada@example" not in caplog.text


def _answering(said: Any) -> Any:
    async def answer(*_: Any, **__: Any) -> Any:
        return json.dumps(said), 400, {}

    return answer


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"api_key": ""}, "api_key"),
        ({"api_key": None}, "api_key"),
        ({"api_key": "sk_test_\n1"}, "api_key"),
        ({"api_key": "sk_test 1"}, "api_key"),
        ({"base": "http://stripe.example"}, "base"),
        ({"base": "ftp://127.0.0.1"}, "base"),
        ({"base": "https://[::1"}, "base"),
        ({"base": "https://"}, "base"),
        ({"base": "https://ada:hunter2@stripe.example"}, "base"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": True}, "timeout"),
        ({"timeout": 301}, "timeout"),
        ({"webhook_secrets": "whsec_1"}, "webhook_secrets"),
        ({"webhook_secrets": [""]}, "webhook_secrets"),
        ({"breaker": ms.breaker("other")}, "breaker"),
    ],
)
async def test_settings_that_cannot_work_are_refused_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"Stripe: .*{message}") as refused:
        Stripe(**{"api_key": "sk_test_1"} | options)
    assert not any(secret in str(refused.value) for secret in ("sk_test", "hunter2"))


async def test_without_the_extra_one_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "stripe", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'mainspring\[stripe\]'"):
        Stripe("sk_test_1")


async def test_the_sdk_itself_never_tries_again(till: Till) -> None:
    till.sandbox.faults.set(Fault(provider="stripe", kind="error", status=503, path="payment_intents"))
    with pytest.raises(OutcomeUnknown):
        await till.stripe.charges(START)
    with pytest.raises(OutcomeUnknown):
        till.stripe.sync.charges(START)
    assert till.sandbox.faults.struck["stripe", "error"] == 2
    assert sdk.VERSION.split(".")[0] == "16"


async def test_calls_are_values() -> None:
    assert StripeRequest("get", "/v1/refunds") == StripeRequest("get", "/v1/refunds", {}, None)
