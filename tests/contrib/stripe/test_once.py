"""Whatever happens around a call, money moves once: retries, lost answers, lost leases, crowds, days of downtime."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

import pytest
from tests.contrib.stripe.till import KEY, PATIENT, START, Till

import mainspring as ms
from mainspring.contrib.stripe import Money, OutcomeUnknown, Stripe
from mainspring_sandbox.faults import Fault

pytestmark = pytest.mark.anyio

FIVE = Money(500, "EUR")
KINDS = ["charge", "transfer", "refund"]
HELD = {"charge": "payment_intent", "transfer": "transfer", "refund": "refund"}


class Mover:
    """A task that moves money by one of the three verbs, and what it was told each time."""

    def __init__(self, till: Till, kind: str, *, key: str | None = None, **known: Any) -> None:
        self.told: list[Any] = []
        self.trouble: list[Any] = []  # what happens after a call, before the commit; one for each attempt
        self._till, self._kind, self._key, self._known = till, kind, key, known

        @till.tasks.task(name=kind, retry=PATIENT)
        async def move(ctx: ms.Context, *, intent: str = "") -> str:
            moved = await self.call(self._key or ctx.step_key("move"), intent)
            self.told.append(moved)
            if self.trouble:
                await self.trouble.pop(0)()
            return str(moved.id)

        self.task = move

    async def call(self, key: str, intent: str) -> Any:
        till, stripe = self._till, self._till.stripe
        if self._kind == "transfer":
            return await stripe.transfer(FIVE, destination=till.lender, key=key, **self._known)
        if self._kind == "refund":
            return await stripe.refund(intent=intent, amount=FIVE, key=key, **self._known)
        return await stripe.charge(FIVE, customer=till.customer, payment_method=till.card, key=key, **self._known)

    async def job(self) -> Any:
        return self.task.job(intent=(await self._till.paid()).id)

    def held(self) -> list[str]:
        """The ids of what Stripe holds because of it."""
        return [entry.id for entry in self._till.made(HELD[self._kind]) if entry.body["amount"] == FIVE.minor]


async def fails() -> None:
    raise RuntimeError("anything")


@pytest.mark.rule("STAFF-19.01", "STAFF-19.02", "ENG-9.14")
@pytest.mark.parametrize(
    ("kind", "key"), [("charge", "charge:7:2026-06-08:1"), ("transfer", "transfer:9"), ("refund", "refund:9:Shift")]
)
async def test_a_job_that_runs_five_times_moves_money_once(till: Till, kind: str, key: str) -> None:
    mover = Mover(till, kind, key=key, since=START)
    mover.trouble = [fails] * 4

    (job,) = await till.run(await mover.job(), times=5)

    assert await till.stage.result(job) == mover.told[0].id
    assert len(mover.told) == 5
    assert len({moved.id for moved in mover.told}) == 1
    assert mover.held() == [mover.told[0].id]
    assert [ask["key"] for ask in till.asked(HELD[kind])][-5:] == [key] * 5


@pytest.mark.rule("STAFF-19.02", "STAFF-19.01")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_lease_that_is_lost_after_the_call_lets_the_next_one_get_the_same(till: Till, kind: str) -> None:
    mover = Mover(till, kind)

    async def lost() -> None:
        till.later(seconds=61)
        till.stage.rows("select mainspring.rescue(1000, 3)")

    mover.trouble = [lost]
    (job,) = await till.run(await mover.job(), times=3)

    assert await till.stage.result(job) == mover.told[0].id
    assert [moved.id for moved in mover.told] == mover.held() * 2


@pytest.mark.rule("STAFF-19.03")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["the line breaks", "it comes too late"])
async def test_an_answer_that_is_lost_is_asked_for_with_the_same_key(till: Till, kind: str, how: str) -> None:
    mover = Mover(till, kind)
    job = await mover.job()
    if how == "the line breaks":
        till.sandbox.faults.set(Fault(provider="stripe", kind="drop", path=f"/v1/{HELD[kind]}s", times=1))
    else:
        till.sandbox.stripe.settings.pace = 0.3
        await till.waits(0.1)

    (id,) = await till.run(job)
    assert await till.stage.state(id) == "retrying"
    assert mover.told == []
    await till.stage.until(mover.held)  # it was done all the same

    till.sandbox.stripe.settings.pace = 0.0
    await till.waits(5)
    till.later(minutes=1)
    await till.drain()
    assert await till.stage.result(id) == mover.told[0].id
    assert mover.held() == [mover.told[0].id]
    assert {ask["key"] for ask in till.asked(HELD[kind])} - {"paid"} == {f"{id}:move"}


async def test_a_request_that_never_arrives_is_sent_again(till: Till) -> None:
    mover = Mover(till, "charge")
    till.sandbox.faults.set(Fault(provider="stripe", kind="timeout", times=1))
    await till.waits(0.1)
    ids = await till.run(mover.task.job())
    assert await till.stage.state(ids[0]) == "retrying"

    await till.waits(5)
    till.later(minutes=1)
    await till.drain()

    assert await till.stage.state(ids[0]) == "succeeded"
    assert len(mover.held()) == 1
    attempts = till.stage.rows("select error->>'code' from mainspring.attempts where job_id = %s", ids[0])
    assert ("HttpException",) in attempts


@pytest.mark.rule("STAFF-19.01")
async def test_twenty_runs_of_one_key_at_once_charge_once(till: Till) -> None:
    mover = Mover(till, "charge", key="charge:7:2026-06-08:1", since=START)
    till.sandbox.stripe.settings.pace = 0.02
    jobs = [mover.task.job() for _ in range(20)]

    ids = await till.run(*jobs, times=4)

    assert {await till.stage.result(job) for job in ids} == set(mover.held())
    assert len(mover.held()) == 1
    assert 409 in {ask["status"] for ask in till.asked("payment_intents")}


@pytest.mark.rule("STAFF-19.02", "STAFF-19.03")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("own", [False, True], ids=["key of the job", "key of ours"])
async def test_a_crash_and_a_day_of_downtime_move_money_once(till: Till, kind: str, own: bool) -> None:
    mover = Mover(till, kind, key="own:1", since=START) if own else Mover(till, kind)
    mover.trouble = [fails]
    (job,) = await till.run(await mover.job())
    looks = len(till.asked(HELD[kind], "GET"))

    till.later(hours=25)
    till.sandbox.stripe.keys.forget()
    await till.drain()

    assert await till.stage.result(job) == mover.told[0].id
    assert mover.held() == [mover.told[0].id]
    assert len(till.asked(HELD[kind], "GET")) == looks + 1


async def test_an_attempt_that_takes_hours_before_its_call_moves_money_once(
    till: Till, monkeypatch: pytest.MonkeyPatch
) -> None:
    mover = Mover(till, "charge")
    mover.trouble = [fails]
    (job,) = await till.run(mover.task.job())
    till.later(hours=22)

    began, call = time.monotonic(), mover.call

    async def late(key: str, intent: str) -> Any:
        till.later(hours=3)  # it was claimed in time, and worked
        monkeypatch.setattr("mainspring.declare.caller.monotonic", lambda: began + 3 * 3600 + 60)
        till.sandbox.stripe.keys.forget()
        return await call(key, intent)

    mover.call = late  # type: ignore[method-assign] # for this attempt
    await till.drain()

    assert await till.stage.result(job) == mover.told[0].id
    assert len(mover.held()) == 1


@pytest.mark.parametrize(("key", "known", "looks"), [(None, {}, 0), ("own:1", {"since": START}, 0), ("own:1", {}, 1)])
async def test_stripe_is_asked_first_only_where_it_may_have_forgotten(
    till: Till, key: str | None, known: dict[str, Any], looks: int
) -> None:
    mover = Mover(till, "charge", key=key, **known)

    await till.run(mover.task.job())

    assert len(mover.held()) == 1
    assert len(till.asked("payment_intents", "GET")) == looks


async def test_a_key_that_another_job_used_last_week_does_not_charge_again(till: Till) -> None:
    mover = Mover(till, "charge", key="own:1")
    await till.run(mover.task.job())
    till.later(days=7)

    await till.run(mover.task.job())

    assert [moved.id for moved in mover.told] == mover.held() * 2


@pytest.mark.parametrize("forgotten", [False, True])
async def test_a_key_means_one_amount_whether_stripe_remembers_or_we_look(till: Till, forgotten: bool) -> None:
    await till.paid(1000)
    if forgotten:
        till.sandbox.stripe.keys.forget()

    @till.tasks.task
    async def again(ctx: ms.Context) -> None:
        since = None if forgotten else START
        card, less = till.card, Money(999, "EUR")
        await till.stripe.charge(less, customer=till.customer, payment_method=card, key="paid", since=since)

    (job,) = await till.run(again.job())

    found = await till.stage.job(job)
    assert (found.state, (found.error or {})["code"]) == ("failed", "IDEMPOTENCY_KEY_REUSED")
    assert len(till.made("payment_intent")) == 1


@pytest.mark.rule("STAFF-19.01")
@pytest.mark.parametrize("forgotten", [False, True])
async def test_a_decline_stays_one_under_its_key_and_another_try_has_another(till: Till, forgotten: bool) -> None:
    bad = till.card_of("chargeCustomerFail")
    cards = {1: bad, 2: till.card}

    @till.tasks.task(retry=PATIENT)
    async def charge(ctx: ms.Context, *, number: int) -> str:
        key, card = f"charge:7:2026-06-08:{number}", cards[number]
        paid = await till.stripe.charge(FIVE, customer=till.customer, payment_method=card, key=key)
        return paid.id

    (job,) = await till.run(charge.job(number=1), times=3)
    found = await till.stage.job(job)
    assert (found.state, found.attempt, (found.error or {})["code"]) == ("failed", 1, "CARD_DECLINED")
    if forgotten:
        till.later(days=2)
        till.sandbox.stripe.keys.forget()
    (again,) = await till.run(charge.job(number=1))
    assert await till.stage.state(again) == "failed"
    assert len(till.made("payment_intent")) == 1

    (job,) = await till.run(charge.job(number=2))
    assert await till.stage.result(job) == till.made("payment_intent")[1].id
    assert len(till.sandbox.ledger.find("charge")) == 1


async def test_a_bank_that_wants_the_customer_ends_the_job_and_names_the_payment(till: Till) -> None:
    card = till.card_of("authenticationRequired")

    @till.tasks.task(retry=PATIENT)
    async def charge(ctx: ms.Context) -> None:
        await till.stripe.charge(FIVE, customer=till.customer, payment_method=card, key=ctx.idempotency_key)

    (job,) = await till.run(charge.job(), times=2)

    found = await till.stage.job(job)
    assert (found.state, found.attempt, (found.error or {})["code"]) == ("failed", 1, "PAYMENT_ACTION_REQUIRED")
    (intent,) = till.made("payment_intent")
    assert intent.id in (found.error or {})["message"]


async def test_a_busy_stripe_says_when_to_come_back_and_the_job_does(till: Till) -> None:
    mover = Mover(till, "charge")
    till.sandbox.faults.set(Fault(provider="stripe", kind="error", status=429, retry_after=600, times=1))

    (job,) = await till.run(mover.task.job())
    till.later(minutes=9)
    await till.drain()
    assert await till.stage.state(job) == "retrying"
    till.later(minutes=1)
    await till.drain()

    assert await till.stage.state(job) == "succeeded"


async def test_the_breaker_opens_by_what_stripe_fails_and_not_by_what_it_refuses(till: Till) -> None:
    bad = till.card_of("chargeCustomerFail")

    @till.tasks.task(needs=("stripe",), retry=PATIENT)
    async def charge(ctx: ms.Context, *, card: str) -> None:
        await till.stripe.charge(FIVE, customer=till.customer, payment_method=card, key=ctx.idempotency_key)

    def state() -> str:
        return str(till.stage.one("select mainspring.breaker_state(b) from mainspring.breaker b where name = 'stripe'"))

    await till.run(*[charge.job(card=bad) for _ in range(10)])
    assert state() == "closed"

    till.sandbox.faults.set(Fault(provider="stripe", kind="error", status=503))
    asked = len(till.asked())
    ids = await till.run(*[charge.job(card=till.card) for _ in range(30)])
    assert state() == "open"
    assert till.sandbox.faults.struck["stripe", "error"] < 30
    assert len(till.asked()) == asked

    till.sandbox.faults.clear()
    for _ in range(2):
        till.later(minutes=11)
        await till.drain()
    assert state() == "closed"
    assert {await till.stage.state(job) for job in ids} == {"succeeded"}
    assert len(till.sandbox.ledger.find("charge")) == 30


async def test_a_key_that_stripe_does_not_know_opens_the_breaker(till: Till) -> None:
    wrong = Stripe("pk_not_a_secret_key", base=f"{till.sandbox.url}/stripe")
    till.stripe = wrong

    @till.tasks.task(needs=("stripe",))
    async def charge(ctx: ms.Context) -> None:
        await wrong.charge(FIVE, customer=till.customer, payment_method=till.card, key=ctx.idempotency_key)

    ids = await till.run(*[charge.job() for _ in range(8)])

    errors = [(await till.stage.job(job)).error or {} for job in ids]
    assert {error["code"] for error in errors if error} == {"PROVIDER_CONFIGURATION"}
    assert (
        till.stage.one("select mainspring.breaker_state(b) from mainspring.breaker b where name = 'stripe'") == "open"
    )
    assert "pk_not" not in str(errors)


async def test_plain_functions_have_the_same_verbs(till: Till) -> None:
    paid = await till.paid()
    told: list[Any] = []
    looks = len(till.asked("payment_intents", "GET"))

    @till.tasks.task(retry=PATIENT)
    def move(ctx: ms.SyncContext, *, intent: str) -> None:
        stripe = till.stripe.sync
        key = ctx.step_key("charge")
        told.append(stripe.charge(FIVE, customer=till.customer, payment_method=till.card, key=key))
        told.append(stripe.transfer(FIVE, destination=till.lender, key=ctx.step_key("transfer")))
        told.append(stripe.refund(intent=intent, key=ctx.step_key("refund")))
        if ctx.attempt == 1:
            raise RuntimeError("once more")

    (job,) = await till.run(move.job(intent=paid.id), times=2)

    assert await till.stage.state(job) == "succeeded"
    assert told[:3] == told[3:]
    assert [len(till.made(kind)) for kind in ("payment_intent", "transfer", "refund")] == [2, 1, 1]
    assert len(till.asked("payment_intents", "GET")) == looks  # the job's time is known in its thread, too


async def test_what_was_promised_under_the_key_is_kept_though_nobody_runs_a_job(till: Till) -> None:
    once = await till.paid()
    till.sandbox.stripe.keys.forget()

    assert await till.paid() == once
    assert len(till.made("payment_intent")) == 1
    assert KEY not in repr(till.stripe)


async def test_a_crowd_of_callers_in_one_loop_shares_connections_and_none_is_left(till: Till) -> None:
    await asyncio.gather(*[till.stripe.intent("pi_unknown") for _ in range(50)])
    assert len(till.stripe.api._open) == 1
    await till.stripe.aclose()
    assert till.stripe.api._open == {}
    assert await till.stripe.intent("pi_unknown") is None  # and it opens again by itself


def test_the_end_of_an_event_loop_ends_its_connections() -> None:
    stripe = Stripe("sk_test_1", base="http://127.0.0.1:9/stripe", timeout=timedelta(seconds=1).total_seconds())

    async def call() -> None:
        with pytest.raises(OutcomeUnknown):
            await stripe.intent("pi_1")
        assert stripe.api._open

    for _ in range(2):
        asyncio.run(call())
        assert stripe.api._open == {}


def test_a_process_that_was_forked_has_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    stripe = Stripe("sk_test_1", base="http://127.0.0.1:9/stripe", timeout=1)
    mine = stripe.api._called()
    assert stripe.api._called() is mine

    monkeypatch.setattr("os.getpid", lambda: 7)  # two processes on one socket would read each other's answers
    theirs = stripe.api._called()

    assert theirs is not mine
