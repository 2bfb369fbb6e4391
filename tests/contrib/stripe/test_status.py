"""One table of what may follow what; in whatever order events come, the end is the same."""

from __future__ import annotations

from itertools import permutations, product
from typing import get_args

import pytest

from mainspring.contrib.stripe.status import (
    MOVEMENT_TRANSITIONS,
    STRIPE_STATUSES,
    IllegalTransition,
    MovementKind,
    StripeStatus,
    latest,
    move,
)

KINDS: tuple[MovementKind, ...] = get_args(MovementKind)
PAIRS = list(product(KINDS, STRIPE_STATUSES, STRIPE_STATUSES))
#: Written out once more, so that a change of the table is a decision.
LEGAL = {
    "charge": {
        ("pending", "action_required"), ("pending", "failed"), ("pending", "succeeded"), ("pending", "canceled"),
        ("action_required", "failed"), ("action_required", "succeeded"), ("action_required", "canceled"),
        ("failed", "succeeded"), ("failed", "canceled"),
    },
    "transfer": {("pending", "failed"), ("pending", "succeeded"), ("pending", "canceled"), ("succeeded", "canceled")},
    "reversal": {("pending", "failed"), ("pending", "succeeded")},
    "refund": {
        ("pending", "action_required"), ("pending", "failed"), ("pending", "succeeded"), ("pending", "canceled"),
        ("action_required", "failed"), ("action_required", "succeeded"), ("action_required", "canceled"),
        ("succeeded", "failed"),
    },
}  # fmt: skip


@pytest.mark.rule("STAFF-19.10")
@pytest.mark.parametrize(("kind", "old", "new"), PAIRS, ids="-".join)
def test_a_status_follows_another_by_the_table_or_raises(
    kind: MovementKind, old: StripeStatus, new: StripeStatus
) -> None:
    if old == new or (old, new) in LEGAL[kind]:
        assert move(kind, old, new) == new
    else:
        with pytest.raises(IllegalTransition, match=f"cannot become {new}"):
            move(kind, old, new)


@pytest.mark.parametrize("kind", KINDS)
def test_the_table_is_closed_so_that_a_lost_event_in_between_harms_nobody(kind: MovementKind) -> None:
    table = MOVEMENT_TRANSITIONS[kind]
    assert set(table) == set(STRIPE_STATUSES)
    for status in STRIPE_STATUSES:
        assert status not in table[status]
        assert {later for next_ in table[status] for later in table[next_]} <= table[status]


@pytest.mark.rule("STAFF-19.06", "STAFF-19.10")
@pytest.mark.parametrize(
    ("kind", "seen", "end"),
    [
        ("charge", ["pending", "action_required", "failed", "succeeded"], "succeeded"),
        ("charge", ["pending", "action_required", "failed", "canceled"], "canceled"),
        ("charge", ["failed", "failed", "succeeded", "succeeded", "pending"], "succeeded"),
        ("transfer", ["pending", "succeeded", "canceled"], "canceled"),
        ("refund", ["pending", "action_required", "succeeded", "failed"], "failed"),
    ],
)
def test_events_in_every_order_have_the_same_end(
    kind: MovementKind, seen: list[StripeStatus], end: StripeStatus
) -> None:
    for order in set(permutations(seen)):
        status: StripeStatus = "pending"
        for each in order:
            status = latest(kind, status, each)
        assert status == end, order


def test_what_cannot_both_be_true_is_for_a_person() -> None:
    for kind, known, seen in (("charge", "canceled", "succeeded"), ("charge", "succeeded", "canceled")):
        with pytest.raises(IllegalTransition):
            latest(kind, known, seen)  # type: ignore[arg-type] # from a table
