"""Transfers, refunds and balances at the sandbox's Stripe: no more goes out than came in."""

from __future__ import annotations

import pytest
import stripe
from tests.sandbox.till import Clock, Till, ask

from mainspring_sandbox import Sandbox


def amounts(sandbox: Sandbox, kind: str) -> list[int]:
    return [entry.body["amount"] for entry in sandbox.ledger.find(kind)]


def test_a_transfer_is_one_movement_to_its_destination(sandbox: Sandbox, shop: Till) -> None:
    account = shop.v1.accounts.create({"capabilities": {"transfers": {"requested": True}}})
    paid = shop.pay(transfer_group="booking-7")
    params = {
        "amount": 1000,
        "currency": "eur",
        "destination": account.id,
        "source_transaction": str(paid.latest_charge),
        "metadata": {"hold": "9"},
    }
    made = [shop.v1.transfers.create(params, {"idempotency_key": "transfer:9"}) for _ in range(3)]

    [entry] = sandbox.ledger.find("transfer")
    assert {transfer.id for transfer in made} == {entry.id}
    assert made[0].transfer_group == "booking-7"
    wanted = {"amount": 1000, "destination": account.id, "metadata": {"hold": "9"}, "key": "transfer:9"}
    assert {name: entry.body[name] for name in wanted} == wanted
    assert [one.id for one in shop.v1.transfers.list({"destination": account.id}).data] == [entry.id]


def test_transfers_from_a_charge_are_never_above_it(sandbox: Sandbox, shop: Till) -> None:
    account = shop.v1.accounts.create({})
    source = str(shop.pay().latest_charge)
    common = {"currency": "eur", "destination": account.id, "source_transaction": source}
    shop.v1.transfers.create({"amount": 1000, **common})
    with pytest.raises(stripe.InvalidRequestError):
        shop.v1.transfers.create({"amount": 251, **common})

    assert amounts(sandbox, "transfer") == [1000]


def test_an_account_that_may_not_receive_gets_nothing(sandbox: Sandbox, shop: Till) -> None:
    account = shop.v1.accounts.create({"capabilities": {"card_payments": {"requested": True}}})
    other = shop.v1.accounts.create({})
    ask(sandbox, "POST", f"/sandbox/stripe/accounts/{other.id}", {"capabilities": {"transfers": "inactive"}})
    for destination, code in (
        (account.id, "insufficient_capabilities_for_transfer"),
        (other.id, "insufficient_capabilities_for_transfer"),
        ("acct_nobody", "resource_missing"),
    ):
        with pytest.raises(stripe.InvalidRequestError) as refused:
            shop.v1.transfers.create({"amount": 1000, "currency": "eur", "destination": destination})
        assert refused.value.code == code

    assert amounts(sandbox, "transfer") == []


def test_a_strict_balance_lets_only_out_what_came_in(sandbox: Sandbox, shop: Till) -> None:
    sandbox.stripe.settings.strict_balance = True
    account = shop.v1.accounts.create({})
    shop.pay()
    with pytest.raises(stripe.InvalidRequestError) as refused:
        shop.v1.transfers.create({"amount": 1251, "currency": "eur", "destination": account.id})
    shop.v1.transfers.create({"amount": 1250, "currency": "eur", "destination": account.id})

    assert refused.value.code == "balance_insufficient"
    assert [(one.amount, one.currency) for one in shop.v1.balance.retrieve().available] == [(0, "eur")]


def test_a_charge_with_a_destination_transfers_by_itself(sandbox: Sandbox, shop: Till) -> None:
    account = shop.v1.accounts.create({})
    shop.pay(transfer_data={"destination": account.id, "amount": 1000}, on_behalf_of=account.id)

    assert (amounts(sandbox, "charge"), amounts(sandbox, "transfer")) == ([1250], [1000])


def test_a_transfer_is_taken_back_once(sandbox: Sandbox, shop: Till) -> None:
    account = shop.v1.accounts.create({})
    transfer = shop.v1.transfers.create({"amount": 1000, "currency": "eur", "destination": account.id})
    shop.v1.transfers.reversals.create(transfer.id, {"amount": 400})
    with pytest.raises(stripe.InvalidRequestError):
        shop.v1.transfers.reversals.create(transfer.id, {"amount": 601})
    shop.v1.transfers.reversals.create(transfer.id)
    with pytest.raises(stripe.InvalidRequestError):
        shop.v1.transfers.reversals.create(transfer.id)

    assert amounts(sandbox, "reversal") == [600, 400]
    assert shop.v1.transfers.retrieve(transfer.id).reversed


def test_refunds_are_never_above_the_charge(sandbox: Sandbox, shop: Till) -> None:
    paid = shop.pay()
    refund = shop.v1.refunds.create({"payment_intent": paid.id, "amount": 500, "reason": "duplicate"})
    with pytest.raises(stripe.InvalidRequestError) as above:
        shop.v1.refunds.create({"payment_intent": paid.id, "amount": 751})
    shop.v1.refunds.create({"charge": str(paid.latest_charge)})
    with pytest.raises(stripe.InvalidRequestError) as again:
        shop.v1.refunds.create({"payment_intent": paid.id})

    assert (above.value.http_status, above.value.param) == (400, "amount")
    assert again.value.code == "charge_already_refunded"
    assert (refund.status, amounts(sandbox, "refund")) == ("succeeded", [750, 500])
    assert shop.v1.charges.retrieve(str(paid.latest_charge)).refunded
    assert [entry.body["refunded"] for entry in sandbox.ledger.find("charge")] == [1250]
    assert len(shop.v1.refunds.list({"payment_intent": paid.id}).data) == 2


def test_a_refund_under_one_key_happens_once(sandbox: Sandbox, shop: Till) -> None:
    paid = shop.pay()
    options = {"idempotency_key": "refund:9"}
    made = [shop.v1.refunds.create({"payment_intent": paid.id, "amount": 100}, options).id for _ in range(3)]

    assert len(set(made)) == 1
    assert amounts(sandbox, "refund") == [100]


@pytest.mark.parametrize("method", ["pm_card_chargeDeclined", "pm_card_processing"])
def test_what_was_not_taken_is_not_given_back(sandbox: Sandbox, shop: Till, method: str) -> None:
    if method == "pm_card_processing":
        intent = shop.pay(method=method).id
    else:
        with pytest.raises(stripe.CardError):
            shop.pay(method=method)
        intent = shop.v1.payment_intents.list().data[0].id
    with pytest.raises(stripe.InvalidRequestError):
        shop.v1.refunds.create({"payment_intent": intent})

    assert amounts(sandbox, "refund") == []


def test_a_refund_may_be_decided_later(sandbox: Sandbox, shop: Till) -> None:
    waiting = shop.v1.refunds.create({"payment_intent": shop.pay(method="pm_card_pendingRefund").id})
    lost = shop.v1.refunds.create({"payment_intent": shop.pay(method="pm_card_refundFail").id})
    assert (waiting.status, lost.status) == ("pending", "succeeded")

    sandbox.stripe.settle(waiting.id, "succeeded")
    sandbox.stripe.settle(lost.id, "failed")

    assert [shop.v1.refunds.retrieve(one.id).status for one in (waiting, lost)] == ["succeeded", "failed"]
    assert [entry.body["status"] for entry in sandbox.ledger.find("refund")] == ["failed", "succeeded"]
    assert shop.v1.balance.retrieve().available[0].amount == 1250  # what was not refunded came back


def test_lists_come_in_pages_newest_first(shop: Till, clock: Clock) -> None:
    customer = shop.v1.customers.create({})
    made = []
    for _ in range(5):
        made.append(shop.pay(customer=customer.id).id)
        shop.pay()
        clock.advance(minutes=1)
    newest = made[::-1]
    list_ = shop.v1.payment_intents.list

    first = list_({"customer": customer.id, "limit": 2})
    second = list_({"customer": customer.id, "limit": 2, "starting_after": first.data[-1].id})
    last = list_({"customer": customer.id, "limit": 2, "starting_after": second.data[-1].id})
    back = list_({"customer": customer.id, "limit": 2, "ending_before": last.data[0].id})

    pages = [[one.id for one in page.data] for page in (first, second, last, back)]
    assert pages == [newest[:2], newest[2:4], newest[4:], newest[2:4]]
    assert [page.has_more for page in (first, second, last, back)] == [True, True, False, True]
    assert [one.id for one in list_({"customer": customer.id, "limit": 2}).auto_paging_iter()] == newest


def test_lists_are_cut_by_time(shop: Till, clock: Clock) -> None:
    made = []
    for _ in range(3):
        made.append((shop.pay().id, int(clock.at.timestamp())))
        clock.advance(minutes=1)
    middle = made[1][1]

    def found(**created: int) -> list[str]:
        return [one.id for one in shop.v1.payment_intents.list({"created": created}).data]

    ids = [id for id, _ in made]
    assert found(gte=middle) == [ids[2], ids[1]]
    assert found(gt=middle) == [ids[2]]
    assert found(lte=middle) == [ids[1], ids[0]]
    assert found(lt=middle, gte=made[0][1]) == [ids[0]]


def test_intents_are_found_by_their_metadata(sandbox: Sandbox, shop: Till, clock: Clock) -> None:
    wanted = shop.pay(metadata={"key": "charge:7:o'clock", "booking": "7"})
    other = shop.pay(metadata={"key": "charge:8", "booking": "7"})

    def found(query: str) -> list[str]:
        return [one.id for one in shop.v1.payment_intents.search({"query": query}).data]

    assert found(r"metadata['key']:'charge:7:o\'clock'") == [wanted.id]
    assert found('metadata["booking"]:"7"') == [other.id, wanted.id]
    assert found("metadata['booking']:'7' AND status:'succeeded' AND -metadata['key']:'charge:8'") == [wanted.id]
    assert found("metadata['key']:'charge:8' OR metadata['key']~'clock'") == [other.id, wanted.id]
    assert found("metadata['nothing']:null AND amount>1249 AND amount<=1250") == [other.id, wanted.id]
    assert found("amount<1250") == []
    sandbox.stripe.settings.search_lag = 60  # as at Stripe: who looks at once finds nothing
    assert found("metadata['booking']:'7'") == []
    clock.advance(minutes=1)
    assert len(found("metadata['booking']:'7'")) == 2


def test_a_search_comes_in_pages(shop: Till) -> None:
    made = [shop.pay(metadata={"booking": "7"}).id for _ in range(3)]
    query = "metadata['booking']:'7'"
    first = shop.v1.payment_intents.search({"query": query, "limit": 2})
    second = shop.v1.payment_intents.search({"query": query, "limit": 2, "page": str(first.next_page)})

    assert [one.id for one in [*first.data, *second.data]] == made[::-1]
    assert (first.has_more, second.has_more, second.next_page) == (True, False, None)


def test_customers_are_kept_changed_and_deleted(shop: Till) -> None:
    customer = shop.v1.customers.create(
        {"name": "Ada", "metadata": {"a": "1", "b": "2"}, "payment_method": "pm_card_visa"}
    )
    changed = shop.v1.customers.update(customer.id, {"metadata": {"a": "", "c": "3"}, "email": "ada@example.com"})
    assert changed.metadata is not None
    assert (changed.name, changed.email, changed.metadata.to_dict()) == ("Ada", "ada@example.com", {"b": "2", "c": "3"})
    [method] = shop.v1.customers.payment_methods.list(customer.id).data
    assert method.customer == customer.id
    assert shop.v1.payment_methods.detach(method.id).customer is None

    shop.v1.customers.delete(customer.id)
    with pytest.raises(stripe.InvalidRequestError):
        shop.v1.customers.retrieve(customer.id)
    assert shop.v1.customers.list().data == []


def test_a_checkout_session_is_paid_by_a_person(sandbox: Sandbox, shop: Till) -> None:
    line = {"quantity": 2, "price_data": {"currency": "eur", "unit_amount": 500, "product_data": {"name": "Bike"}}}
    session = shop.v1.checkout.sessions.create(
        {"mode": "payment", "line_items": [line], "success_url": "https://example.com/", "metadata": {"rental": "3"}}
    )
    assert (session.status, session.payment_status, session.amount_total) == ("open", "unpaid", 1000)
    assert amounts(sandbox, "charge") == []

    sandbox.stripe.settle(session.id, "succeeded")

    paid = shop.v1.checkout.sessions.retrieve(session.id, {"expand": ["payment_intent"]})
    assert isinstance(paid.payment_intent, stripe.PaymentIntent)
    assert (paid.status, paid.payment_status, paid.payment_intent.status) == ("complete", "paid", "succeeded")
    assert amounts(sandbox, "charge") == [1000]
    assert shop.v1.events.list({"type": "checkout.session.completed"}).data[0].data.object["metadata"]["rental"] == "3"
    with pytest.raises(stripe.InvalidRequestError):
        shop.v1.checkout.sessions.expire(session.id)


def test_a_checkout_session_has_a_page_with_a_button(sandbox: Sandbox, shop: Till) -> None:
    line = {"quantity": 1, "price_data": {"currency": "eur", "unit_amount": 500}}
    back = "https://example.com/?session={CHECKOUT_SESSION_ID}"
    session = shop.v1.checkout.sessions.create({"mode": "payment", "line_items": [line], "success_url": back})
    path = session.url.removeprefix(sandbox.url)

    assert "500 EUR" in ask(sandbox, "GET", path).text
    pressed = ask(sandbox, "POST", path)
    assert (pressed.status_code, pressed.headers["Location"]) == (303, f"https://example.com/?session={session.id}")
    assert [ask(sandbox, method, path).status_code for method in ("GET", "POST")] == [404, 400]
    assert amounts(sandbox, "charge") == [500]
