"""A webhook that is lost changes nothing: what is pending for long is asked for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.contrib.stripe.till import START, Till

import mainspring as ms
from mainspring.contrib.stripe import IllegalTransition, Money, Pending, StripeFinding, overdue

pytestmark = pytest.mark.anyio


def row(minutes: float, **fields: Any) -> Pending:
    known: dict[str, Any] = {"kind": "charge", "key": "k", "since": START - timedelta(minutes=minutes)}
    return Pending(**known | fields)


@pytest.mark.rule("STAFF-19.08")
async def test_rows_are_asked_for_that_wait_for_more_than_fifteen_minutes() -> None:
    young, just, old = row(14.9), row(15), row(15.1)
    asked, done = row(600, status="action_required"), row(600, status="succeeded")

    assert overdue([young, just, old, asked, done], START) == [old, asked]


@pytest.mark.rule("STAFF-19.08")
async def test_state_is_right_within_twenty_minutes_though_every_webhook_is_lost(till: Till) -> None:
    till.stage.rows("create table payment (key text primary key, intent text, status text, since timestamptz)")

    @till.tasks.task
    async def reconcile(ctx: ms.Context) -> None:
        async with ctx.transaction() as conn:
            rows = await (await conn.execute("select key, intent, status, since from payment")).fetchall()
        pending = [Pending(kind="charge", key=r[0], id=r[1], status=r[2], since=r[3], of=till.customer) for r in rows]
        found = [finding async for finding in till.stripe.reconcile(overdue(pending, ctx.job.claimed_at))]
        async with ctx.complete() as conn:
            for finding in found:
                if finding.changed:
                    about = [finding.status, finding.row.key]
                    await conn.execute("update payment set status = %s where key = %s", about)

    till.card = till.card_of("processing")
    slow = {name: await till.paid(key=name) for name in ("paid", "declined", "open", "crashed")}
    till.card = till.card_of("visa")
    slow["known"] = await till.paid(key="known")
    for key, intent in ((key, None if key == "crashed" else charge.id) for key, charge in slow.items()):
        till.stage.rows("insert into payment values (%s, %s, 'pending', %s)", key, intent, till.now)
    till.stage.rows("insert into payment values ('unsent', null, 'pending', %s)", till.now)
    till.sandbox.stripe.settle(slow["paid"].id, "succeeded")
    till.sandbox.stripe.settle(slow["declined"].id, "failed")
    till.sandbox.stripe.settle(slow["crashed"].id, "succeeded")

    for minutes in (5, 10, 15, 20):
        till.later(minutes=5)
        await till.run(reconcile.job())
        statuses: dict[str, str] = dict(till.stage.rows("select key, status from payment"))
        if minutes <= 15:
            assert set(statuses.values()) == {"pending"}

    assert statuses == {
        "paid": "succeeded",
        "declined": "failed",
        "open": "pending",
        "crashed": "succeeded",  # found by its key: the id was never written
        "known": "succeeded",
        "unsent": "pending",
    }


@pytest.mark.rule("STAFF-19.08")
async def test_transfers_reversals_and_refunds_are_asked_for_as_well(till: Till) -> None:
    paid = await till.paid()
    sent = await till.stripe.transfer(Money(500, "EUR"), destination=till.lender, key="transfer:1", since=START)
    back = await till.stripe.refund(intent=paid.id, amount=Money(500, "EUR"), key="refund:1:Shift", since=START)
    taken = await till.stripe.reverse(sent.id, key="reversal:1")  # without `since` it looks first
    assert (taken, taken.amount, taken.transfer) == (
        await till.stripe.reverse(sent.id, key="reversal:1"),
        sent.amount,
        sent.id,
    )
    rows = [
        Pending(kind="reversal", key="reversal:1", since=START, of=sent.id),
        Pending(kind="reversal", key="reversal:2", since=START, of=sent.id),
        Pending(kind="transfer", key="transfer:1", since=START, of=till.lender),
        Pending(kind="transfer", key="transfer:1", since=START, id=sent.id),
        Pending(kind="refund", key="refund:1:Shift", since=START, of=paid.id),
        Pending(kind="refund", key="refund:1:Shift", since=START, id=back.id),
        Pending(kind="transfer", key="transfer:2", since=START),
        Pending(kind="refund", key="x", since=START, id="re_unknown"),
    ]

    found = [finding async for finding in till.stripe.reconcile(rows)]

    assert [finding.found and finding.found.id for finding in found[:2]] == [taken.id, None]
    assert [finding.found and finding.found.id for finding in found[2:]] == [
        sent.id,
        sent.id,
        back.id,
        back.id,
        None,
        None,
    ]
    assert [finding.status for finding in found[2:]] == ["canceled"] * 2 + ["succeeded"] * 2 + ["pending"] * 2
    assert found == list(till.stripe.sync.reconcile(rows))


async def test_what_cannot_both_be_true_raises(till: Till) -> None:
    paid = await till.paid()
    finding = StripeFinding(row(20, status="canceled"), paid)

    with pytest.raises(IllegalTransition):
        _ = finding.status
