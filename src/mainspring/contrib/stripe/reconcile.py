"""What a lost webhook would have told: rows that are pending for long are asked for at Stripe."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from mainspring.contrib.stripe import verbs
from mainspring.contrib.stripe.asking import Calls
from mainspring.contrib.stripe.movement import Movement
from mainspring.contrib.stripe.status import MovementKind, StripeStatus, latest
from mainspring.errors import ValidationError

_OVERDUE_AFTER: Final = timedelta(minutes=15)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A row of yours whose end is not known yet: by its key, and by Stripe's id where you have it.

    `of` narrows the look by key: the customer of a charge, the destination of a transfer, the intent of a refund. The
    transfer of a reversal must be said.
    """

    kind: MovementKind
    key: str
    since: datetime  # when the row, and with it the key, was made
    status: StripeStatus = "pending"
    id: str | None = None
    of: str | None = None


@dataclass(frozen=True, slots=True)
class StripeFinding:
    """What Stripe says about a row; `found` is None where it never heard of it: the call was not made."""

    row: Pending
    found: Movement | None

    @property
    def status(self) -> StripeStatus:
        """What the row shall say; raises where the two cannot both be true."""
        return self.row.status if self.found is None else latest(self.row.kind, self.row.status, self.found.status)

    @property
    def changed(self) -> bool:
        """Whether there is something to write."""
        return self.status != self.row.status


def overdue(rows: Iterable[Pending], now: datetime, after: timedelta = _OVERDUE_AFTER) -> list[Pending]:
    """The rows that wait for longer than fifteen minutes, by the database's time."""
    return [row for row in rows if row.status in {"pending", "action_required"} and now - row.since > after]


def find(row: Pending) -> Calls[StripeFinding]:
    """Ask Stripe about one row."""
    return StripeFinding(row, (yield from ask(row)))


def ask(row: Pending) -> Calls[Movement | None]:
    """What Stripe has for a row: by id, else by key."""
    match row.kind:
        case "charge" if row.id is not None:
            return (yield from verbs.intent(row.id))
        case "charge":
            return (yield from verbs.find_charge(row.key, row.since, customer=row.of))
        case "transfer" if row.id is not None:
            return (yield from verbs.get_transfer(row.id))
        case "transfer":
            return (yield from verbs.find_transfer(row.key, row.since, destination=row.of))
        case "reversal":
            return (yield from verbs.find_reversal(row.key, row.of or ""))
        case "refund" if row.id is not None:
            return (yield from verbs.get_refund(row.id))
        case "refund":
            return (yield from verbs.find_refund(row.key, row.since, intent=row.of))
    raise ValidationError(f"kind: {row.kind!r} is neither charge, transfer, reversal nor refund", field="kind")
