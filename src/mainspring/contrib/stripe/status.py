"""Where a charge, a transfer, a reversal or a refund stands, and the one table of what may follow what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, get_args

from mainspring.errors import JobError

MovementKind = Literal["charge", "transfer", "reversal", "refund"]
StripeStatus = Literal["pending", "action_required", "failed", "succeeded", "canceled"]
STRIPE_STATUSES: Final[tuple[StripeStatus, ...]] = get_args(StripeStatus)

#: What may follow. Closed: whatever follows in two steps may follow in one, because a webhook in between may be lost.
MOVEMENT_TRANSITIONS: Final[Mapping[MovementKind, Mapping[StripeStatus, frozenset[StripeStatus]]]] = {
    "charge": {
        "pending": frozenset({"action_required", "failed", "succeeded", "canceled"}),
        "action_required": frozenset({"failed", "succeeded", "canceled"}),
        "failed": frozenset({"succeeded", "canceled"}),  # the same intent, paid by another card
        "succeeded": frozenset(),
        "canceled": frozenset(),
    },
    "transfer": {
        "pending": frozenset({"failed", "succeeded", "canceled"}),
        "action_required": frozenset(),
        "failed": frozenset(),
        "succeeded": frozenset({"canceled"}),  # reversed
        "canceled": frozenset(),
    },
    "reversal": {
        "pending": frozenset({"failed", "succeeded"}),
        "action_required": frozenset(),
        "failed": frozenset(),
        "succeeded": frozenset(),
        "canceled": frozenset(),
    },
    "refund": {
        "pending": frozenset({"action_required", "failed", "succeeded", "canceled"}),
        "action_required": frozenset({"failed", "succeeded", "canceled"}),
        "failed": frozenset(),
        "succeeded": frozenset({"failed"}),  # the customer's bank sends it back, days later
        "canceled": frozenset(),
    },
}


class IllegalTransition(JobError):
    """This status cannot follow that one."""

    code = "BUSINESS_RULE"


def move(kind: MovementKind, old: StripeStatus, new: StripeStatus) -> StripeStatus:
    """The new status, if it may follow the old one.

    >>> move("charge", "pending", "succeeded")
    'succeeded'
    >>> move("charge", "succeeded", "failed")
    Traceback (most recent call last):
    mainspring.contrib.stripe.status.IllegalTransition: a charge that succeeded cannot become failed
    """
    if new == old or new in MOVEMENT_TRANSITIONS[kind][old]:
        return new
    said = {"pending": "is pending", "action_required": "waits for an action", "canceled": "was canceled"}.get(old, old)
    raise IllegalTransition(f"a {kind} that {said} cannot become {new}")


def latest(kind: MovementKind, known: StripeStatus, seen: StripeStatus) -> StripeStatus:
    """What holds after something was seen, in whatever order things are seen: what came before it changes nothing.

    >>> latest("charge", "succeeded", "failed"), latest("charge", "failed", "succeeded")
    ('succeeded', 'succeeded')

    What can be neither before nor after it raises: a canceled charge that is said to have succeeded needs a person.
    """
    return known if known in MOVEMENT_TRANSITIONS[kind][seen] else move(kind, known, seen)
