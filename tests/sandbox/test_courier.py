"""Stripe's webhooks by a virtual clock: into the application's own inbound path, late, twice, never, in disorder."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from urllib.parse import urlencode

import pytest
from tests.sandbox.kiosk import TABLES, Kiosk, heard
from tests.sandbox.till import ask_stripe

import mainspring as ms
from mainspring.testing import Harness
from mainspring_sandbox import Courier, Fault, Sandbox
from mainspring_sandbox.stripe import Manner

HOUR, LATE = timedelta(hours=1), timedelta(seconds=2)
CHARGE, INTENT = "charge.succeeded", "payment_intent.succeeded"


@pytest.fixture(scope="session")
def kiosk(mainspring_sandbox_server: Sandbox) -> Kiosk:
    return Kiosk(mainspring_sandbox_server.url)


@pytest.fixture(scope="session")
def mainspring_app(kiosk: Kiosk) -> ms.App:
    return kiosk.app


@pytest.fixture(scope="session")
def mainspring_migrations() -> Sequence[str]:
    return [TABLES]


@pytest.fixture
def manners(mainspring_sandbox: Sandbox) -> list[Manner]:
    return mainspring_sandbox.stripe.post.manners


def states(sandbox: Sandbox, type: str) -> list[tuple[str, int | None, int]]:
    found = sandbox.ledger.find("webhook", type=type)[::-1]
    return [(entry.body["state"], entry.body["status"], entry.body["attempts"]) for entry in found]


@pytest.mark.parametrize("colour", ["sell", "sell_plainly"])
def test_webhooks_arrive_two_seconds_after_the_charge_and_are_recorded_once_with_their_jobs(
    mainspring: Harness, mainspring_sandbox: Sandbox, kiosk: Kiosk, colour: str
) -> None:
    charged = mainspring.now() + HOUR
    mainspring.client.enqueue(getattr(kiosk, colour).job(number=1).after(HOUR))

    mainspring.advance(HOUR + timedelta(seconds=1, milliseconds=999))
    assert (mainspring_sandbox.ledger.count("charge"), heard(mainspring.conn)) == (1, [])
    mainspring.advance(milliseconds=1)

    assert heard(mainspring.conn) == [(CHARGE, charged + LATE), (INTENT, charged + LATE)]
    kept = mainspring.conn.execute("select type, job_id is not null from mainspring.inbound order by 1").fetchall()
    assert kept == [(CHARGE, True), ("customer.created", False), ("payment_intent.created", False), (INTENT, True)]
    assert states(mainspring_sandbox, INTENT) == [("delivered", 200, 1)]


def test_age_is_measured_in_virtual_time(mainspring: Harness, mainspring_sandbox: Sandbox, kiosk: Kiosk) -> None:
    mainspring.advance(days=400)
    mainspring.run_one(kiosk.sell.job(number=1))
    mainspring.run_until(lambda: heard(mainspring.conn))

    [intent] = mainspring_sandbox.ledger.find("stripe.payment_intent")
    assert intent.body["created"] == int((mainspring.now() - LATE).timestamp())


@pytest.mark.anyio
async def test_they_come_in_the_tests_own_loop(
    mainspring: Harness, mainspring_sandbox: Sandbox, kiosk: Kiosk, manners: list[Manner]
) -> None:
    start = mainspring.now()
    manners.append(Manner(type=INTENT, delay=58))
    mainspring.client.enqueue(kiosk.sell.job(number=1))

    await mainspring.arun_until(lambda: len(heard(mainspring.conn)) == 2)

    assert heard(mainspring.conn) == [(CHARGE, start + LATE), (INTENT, start + timedelta(minutes=1))]


def test_the_delay_is_the_couriers(mainspring: Harness, mainspring_sandbox: Sandbox, kiosk: Kiosk) -> None:
    mainspring.visitors[:] = [Courier(mainspring_sandbox, kiosk.app, delay=timedelta(0))]
    mainspring.client.enqueue(kiosk.sell.job(number=1))

    mainspring.drain()  # no time passes

    assert heard(mainspring.conn) == [(CHARGE, mainspring.now()), (INTENT, mainspring.now())]


def test_copies_are_one_event_and_one_job(
    mainspring: Harness, mainspring_sandbox: Sandbox, kiosk: Kiosk, manners: list[Manner]
) -> None:
    manners.append(Manner(type=CHARGE, copies=3))
    mainspring.client.enqueue(kiosk.sell.job(number=1))
    mainspring.advance(minutes=1)

    assert states(mainspring_sandbox, CHARGE) == [("delivered", 200, 1)] * 3
    assert [type for type, _ in heard(mainspring.conn)] == [CHARGE, INTENT]


def test_held_events_come_when_they_are_released_in_the_order_chosen(
    mainspring: Harness, mainspring_sandbox: Sandbox, kiosk: Kiosk, manners: list[Manner]
) -> None:
    manners += [Manner(type=CHARGE, hold=True), Manner(type=INTENT, hold=True)]
    mainspring.client.enqueue(kiosk.sell.job(number=1))
    mainspring.advance(hours=5)
    assert heard(mainspring.conn) == []

    post = mainspring_sandbox.stripe.post
    post.release([entry.id for entry in post.held()[::-1]])
    mainspring.drain()

    order = "select type from heard join mainspring.inbound using (event_id, type) order by inbound.job_id"
    assert mainspring.conn.execute(order).fetchall() == [(INTENT,), (CHARGE,)]
    assert heard(mainspring.conn) == [(CHARGE, mainspring.now()), (INTENT, mainspring.now())]


def test_dropped_events_never_come(
    mainspring: Harness, mainspring_sandbox: Sandbox, kiosk: Kiosk, manners: list[Manner]
) -> None:
    manners.append(Manner(type=INTENT, drop=True))
    mainspring.client.enqueue(kiosk.sell.job(number=1))
    mainspring.advance(days=2)

    assert [type for type, _ in heard(mainspring.conn)] == [CHARGE]
    assert states(mainspring_sandbox, INTENT) == [("dropped", None, 0)]


def test_broken_tries_are_repeated_after_their_gaps_in_virtual_time(
    mainspring: Harness, mainspring_sandbox: Sandbox, kiosk: Kiosk, manners: list[Manner]
) -> None:
    start = mainspring.now()
    mainspring_sandbox.stripe.settings.webhook_gaps = (60.0, 3600.0)
    manners.append(Manner(type=INTENT, failures=2))
    mainspring.client.enqueue(kiosk.sell.job(number=1))
    mainspring.advance(hours=2)

    assert heard(mainspring.conn) == [(CHARGE, start + LATE), (INTENT, start + LATE + timedelta(minutes=61))]
    assert states(mainspring_sandbox, INTENT) == [("delivered", 200, 3)]


def test_what_is_signed_with_another_secret_is_refused_and_given_up(
    mainspring: Harness, mainspring_sandbox: Sandbox, kiosk: Kiosk
) -> None:
    mainspring_sandbox.reset()
    mainspring.visitors[:] = [Courier(mainspring_sandbox, kiosk.app, secret="whsec_other")]
    mainspring_sandbox.stripe.settings.webhook_gaps = (60.0,)
    mainspring.client.enqueue(kiosk.sell.job(number=1))
    mainspring.advance(hours=1)

    assert states(mainspring_sandbox, INTENT) == [("failed", 400, 2)]
    assert mainspring.conn.execute("select count(*) from mainspring.inbound").fetchone() == (0,)


@pytest.mark.parametrize("place", ["/v1/inbound/acme", "/elsewhere"])
def test_where_the_application_takes_nothing_the_answer_is_404(
    mainspring: Harness, mainspring_sandbox: Sandbox, kiosk: Kiosk, place: str
) -> None:
    mainspring_sandbox.reset()
    mainspring_sandbox.stripe.register(f"http://127.0.0.1:8080{place}", INTENT)
    mainspring.visitors[:] = [Courier(mainspring_sandbox, kiosk.app)]
    mainspring.client.enqueue(kiosk.sell.job(number=1))
    mainspring.advance(seconds=2)

    assert states(mainspring_sandbox, INTENT) == [("waiting", 404, 1)]


def test_a_charge_whose_answer_was_lost_is_one_charge_and_one_webhook(
    mainspring: Harness, mainspring_sandbox: Sandbox, kiosk: Kiosk
) -> None:
    mainspring_sandbox.faults.set(Fault(provider="stripe", kind="drop", path="/payment_intents", times=1))
    mainspring.client.enqueue(kiosk.sell.job(number=1))
    mainspring.advance(hours=1, raise_errors=False)

    assert mainspring.conn.execute("select count(*) from sale").fetchone() == (1,)
    assert mainspring_sandbox.ledger.count("charge") == 1
    assert [type for type, _ in heard(mainspring.conn)] == [CHARGE, INTENT]


def test_what_is_under_way_is_shown_and_a_closed_courier_has_nothing(
    mainspring: Harness, mainspring_sandbox: Sandbox, kiosk: Kiosk
) -> None:
    [courier] = mainspring.visitors
    assert isinstance(courier, Courier)
    mainspring.run_one(kiosk.sell.job(number=1))
    at = mainspring.now() + LATE

    assert [(when, delivery["type"]) for when, delivery in courier.due()] == [
        (at, "customer.created"), (at, "payment_intent.created"), (at, CHARGE), (at, INTENT),
    ]  # fmt: skip
    assert (courier.next_at(mainspring.now()), courier.deliver(mainspring.now())) == (at, 0)
    courier.close()
    assert (courier.due(), courier.next_at(at), courier.deliver(at)) == ([], None, 0)


def test_an_application_without_webhooks_is_told_of_none(mainspring: Harness, mainspring_sandbox: Sandbox) -> None:
    mainspring_sandbox.reset()
    courier = Courier(mainspring_sandbox, ms.App(ms.Registry("plain"), dsn="postgresql://nowhere.invalid/x"))
    mainspring_sandbox.stripe.post.again("evt_1")

    assert mainspring_sandbox.ledger.find("stripe.webhook_endpoint") == []
    assert courier.next_at(mainspring.now()) is None


def test_session_that_nobody_pays_is_told_of_at_its_very_end(
    mainspring: Harness, mainspring_sandbox: Sandbox, kiosk: Kiosk
) -> None:
    line = {"line_items[0][price_data][currency]": "eur", "line_items[0][price_data][unit_amount]": "500"}
    ends = mainspring.now() + HOUR
    asked = line | {"mode": "payment", "success_url": "https://example.com/", "expires_at": str(int(ends.timestamp()))}
    assert ask_stripe(mainspring_sandbox, "POST", "/v1/checkout/sessions", urlencode(asked)).status_code == 200

    mainspring.advance(HOUR - timedelta(seconds=1))
    assert states(mainspring_sandbox, "checkout.session.expired") == []
    mainspring.advance(timedelta(seconds=4))

    assert states(mainspring_sandbox, "checkout.session.expired") == [("delivered", 200, 1)]
    (event,) = mainspring_sandbox.ledger.find("stripe.event", type="checkout.session.expired")
    assert event.at.replace(microsecond=0) == ends.replace(microsecond=0)
