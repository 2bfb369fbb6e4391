"""Stripe's webhooks through the real endpoint: verified, recorded once, applied in whatever order they come."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from itertools import permutations
from typing import Any

import httpx2
import pytest
from tests.contrib.stripe.till import SECRET, Till
from tests.web.visit import open_to, served

import mainspring as ms
from mainspring.contrib.stripe import Charge, NotYet, StripeEvent, latest, sign
from mainspring.events import Event as Told
from mainspring.events import JobDeadlettered
from mainspring_sandbox.stripe import Manner

pytestmark = pytest.mark.anyio

TYPES = ("payment_intent.processing", "payment_intent.payment_failed", "payment_intent.succeeded")
STATUSES = {
    "payment_intent.processing": "processing",
    "payment_intent.payment_failed": "requires_payment_method",
    "payment_intent.succeeded": "succeeded",
    "payment_intent.canceled": "canceled",
}


class Books:
    """What a shop does with events: one row a payment, and how often it was changed."""

    def __init__(self, till: Till) -> None:
        self.till = till
        self.alerts: list[Told] = []
        till.stage.rows("create table payment (intent text primary key, status text not null, changes int default 0)")

        @till.stripe.on(*TYPES, "payment_intent.canceled")
        @till.tasks.task(snooze_limit=timedelta(hours=1))
        async def payment_changed(ctx: ms.Context, *, provider: str, event_id: str) -> None:
            event = await till.stripe.event(ctx, event_id)
            charge = event.movement
            assert isinstance(charge, Charge)
            async with ctx.complete() as conn:
                query = "select status from payment where intent = %s for update"
                row = await (await conn.execute(query, [charge.id])).fetchone()
                if row is None:
                    raise NotYet
                if (status := latest("charge", row[0], charge.status)) != row[0]:
                    change = "update payment set status = %s, changes = changes + 1 where intent = %s"
                    await conn.execute(change, [status, charge.id])

        self.app = till.app(observers=[self])

    def __call__(self, events: Any) -> None:
        self.alerts += [event for event in events if isinstance(event, JobDeadlettered)]

    def write(self, intent: str) -> None:
        self.till.stage.rows("insert into payment values (%s, 'pending')", intent)

    def statuses(self) -> dict[str, str]:
        return dict(self.till.stage.rows("select intent, status from payment"))

    def rows(self) -> int:
        return int(self.till.stage.one("select count(*) from mainspring.inbound"))

    def jobs(self) -> int:
        return int(self.till.stage.one("select count(*) from mainspring.job where task = 'payment_changed'"))


@pytest.fixture
def books(till: Till) -> Books:
    return Books(till)


def event(id: str, type: str, intent: str) -> bytes:
    about = {"id": intent, "object": "payment_intent", "status": STATUSES.get(type, "succeeded"), "amount": 500}
    about |= {"currency": "eur", "created": 1, "metadata": {}}
    return json.dumps({"id": id, "object": "event", "type": type, "created": 1, "data": {"object": about}}).encode()


class Caller:
    """Stripe, as the endpoint sees it."""

    def __init__(self, visitor: httpx2.AsyncClient, books: Books) -> None:
        self._visitor, self._books = visitor, books

    async def send(self, body: bytes, *, secret: str = SECRET, at: datetime | None = None, header: str = "") -> int:
        headers = {"Stripe-Signature": header or sign(body, secret, at or self._books.till.now)}
        return (await self._visitor.post("/v1/inbound/stripe", content=body, headers=headers)).status_code


@asynccontextmanager
async def stripe_calls(books: Books) -> AsyncIterator[Caller]:
    async with open_to(books.app) as visitor:
        yield Caller(visitor, books)


@pytest.mark.rule("STAFF-19.04", "ENG-24.10", "RENT-2.02")
async def test_what_is_not_from_stripe_or_too_old_is_answered_400_and_leaves_nothing(books: Books) -> None:
    body, now = event("evt_1", TYPES[2], "pi_1"), books.till.now
    async with stripe_calls(books) as stripe:
        assert await stripe.send(body, secret="whsec_of_somebody_else") == 400
        assert await stripe.send(body, header="t=1,v1=00") == 400
        assert await stripe.send(body, header="garbage") == 400
        assert await stripe.send(body[:-1] + b" ", header=sign(body, SECRET, now)) == 400
        for seconds in (301, -301):
            assert await stripe.send(body, at=now - timedelta(seconds=seconds)) == 400
        for bad in (b"not json", b'{"type": "a"}', b"[]", b"", b'{"id": "evt_\\u0000", "type": "a"}'):
            assert await stripe.send(bad) == 400
        assert (books.rows(), books.jobs()) == (0, 0)

        for n, seconds in enumerate((299, 300, -300)):
            fine = event(f"evt_fine_{n}", TYPES[2], "pi_1")
            assert await stripe.send(fine, at=now - timedelta(seconds=seconds)) == 200
        assert books.rows() == 3


@pytest.mark.rule("STAFF-19.05", "ENG-24.10")
async def test_an_event_that_comes_twice_has_one_effect(books: Books) -> None:
    books.write("pi_1")
    body = event("evt_1", TYPES[2], "pi_1")
    async with stripe_calls(books) as stripe:
        assert [await stripe.send(body) for _ in range(2)] == [200, 200]
        await books.till.drain()
        assert await stripe.send(body) == 200
        await books.till.drain()

    assert (books.rows(), books.jobs()) == (1, 1)
    assert books.till.stage.rows("select status, changes from payment") == [("succeeded", 1)]


@pytest.mark.rule("STAFF-19.06", "STAFF-19.05")
async def test_events_in_every_order_repeated_and_early_have_the_same_end(books: Books) -> None:
    orders = list(permutations([*TYPES, TYPES[1]]))  # one of them comes twice
    intents = [f"pi_{n}" for n in range(len(orders))]
    for intent in intents[::2]:
        books.write(intent)
    async with stripe_calls(books) as stripe:
        for step in range(4):
            for intent, order in zip(intents, orders, strict=True):
                assert await stripe.send(event(f"evt_{intent}_{order[step]}", order[step], intent)) == 200
            await books.till.drain()
            books.till.later(seconds=1)
        assert set(books.statuses().values()) == {"succeeded"}

        for intent in intents[1::2]:  # these events came before our own row was committed
            books.write(intent)
        books.till.later(seconds=30)
        await books.till.drain()

    assert set(books.statuses().values()) == {"succeeded"}
    assert len(books.statuses()) == len(orders)
    assert books.rows() == 3 * len(orders)
    assert books.till.stage.rows("select distinct state from mainspring.jobs") == [("succeeded",)]


@pytest.mark.rule("STAFF-19.07")
async def test_an_event_that_nobody_wants_is_recorded_and_no_more(books: Books) -> None:
    async with stripe_calls(books) as stripe:
        assert await stripe.send(event("evt_1", "invoice.whatever", "pi_1")) == 200

    assert (books.rows(), books.jobs()) == (1, 0)
    assert books.till.stage.one("select job_id from mainspring.inbound") is None


@pytest.mark.rule("STAFF-19.07")
async def test_an_event_about_a_payment_that_nobody_knows_is_kept_and_alerted(books: Books) -> None:
    async with stripe_calls(books) as stripe:
        assert await stripe.send(event("evt_1", TYPES[2], "pi_unknown")) == 200
    for _ in range(2):
        await books.till.drain(app=books.app)
        books.till.later(minutes=59, seconds=55)
    await books.till.drain(app=books.app)

    (job,) = books.till.stage.rows("select state, error->>'code' from mainspring.jobs")
    assert job == ("dead", "SNOOZED_TOO_LONG")
    assert len(books.alerts) == 1
    assert books.rows() == 1


async def test_two_ends_that_exclude_each_other_are_for_a_person(books: Books) -> None:
    books.write("pi_1")
    async with stripe_calls(books) as stripe:
        await stripe.send(event("evt_1", "payment_intent.canceled", "pi_1"))
        await books.till.drain()
        await stripe.send(event("evt_2", TYPES[2], "pi_1"))
        await books.till.drain()

    assert books.statuses() == {"pi_1": "canceled"}
    failed = books.till.stage.rows("select error->>'code' from mainspring.jobs where state = 'failed'")
    assert failed == [("BUSINESS_RULE",)]


@pytest.mark.rule("ENG-24.10", "STAFF-19.05", "STAFF-19.06")
async def test_stripe_delivers_twice_and_late_over_a_real_line(books: Books) -> None:
    till, post = books.till, books.till.sandbox.stripe.post
    with served(books.app) as url:
        till.sandbox.stripe.register(f"{url}/v1/inbound/stripe", *TYPES, secret=SECRET)
        post.manners.append(Manner(copies=2))
        till.card = till.card_of("processing")
        charge = await till.paid()
        till.sandbox.stripe.settle(charge.id, "succeeded")
        books.write(charge.id)
        await till.stage.until(lambda: len(till.sandbox.ledger.find("webhook", state="delivered")) == 4)
    await till.drain()

    assert books.rows() == books.jobs() == 2
    assert books.statuses() == {charge.id: "succeeded"}


async def test_a_plain_handler_reads_events_as_well_and_misses_none_silently(till: Till) -> None:
    seen: list[StripeEvent] = []

    @till.stripe.on("charge.refunded")
    @till.tasks.task
    def refunded(ctx: ms.SyncContext, *, provider: str, event_id: str) -> None:
        seen.append(till.stripe.sync.event(ctx, event_id))

    body = b'{"id": "evt_1", "type": "charge.refunded", "account": "acct_1", "data": {"object": {"object": "charge"}}}'
    async with open_to(till.app()) as visitor:
        headers = {"Stripe-Signature": sign(body, SECRET, till.now)}
        assert (await visitor.post("/v1/inbound/stripe", content=body, headers=headers)).status_code == 200
    (lost,) = await till.run(refunded.job(provider="stripe", event_id="evt_9"))

    assert [(each.id, each.account, each.object, each.movement) for each in seen] == [
        ("evt_1", "acct_1", {"object": "charge"}, None)
    ]
    found = await till.stage.job(lost)
    assert (found.state, (found.error or {})["message"]) == ("failed", "event_id: no event evt_9 was received")


async def test_a_payload_names_the_event_and_holds_nothing_of_it(books: Books) -> None:
    async with stripe_calls(books) as stripe:
        await stripe.send(event("evt_1", TYPES[2], "pi_1"))

    assert books.till.stage.one("select payload from mainspring.jobs") == {"provider": "stripe", "event_id": "evt_1"}
