"""A provider's outage is nobody's fault: `python -m tests.apps.staffing.outages`, or `make outages`.

Stripe is away for a minute, an hour, half a day or more, over the Wednesday on which 1, 2, 7 or 200 bookings are
charged. On virtual time, and in each way in which it can be away. When it is back everybody must have been charged
exactly once, and nobody may have been warned, blamed or released; no dead letter may be left. The table that this
prints stands in docs/apps/staffing.md.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal
from unittest.mock import patch
from zoneinfo import ZoneInfo

import requests
from tests.apps.staffing.town import NY, T00, W10, Town

from mainspring_apps.staffing.languages import moment
from mainspring_sandbox import Fault
from mainspring_sandbox.stripe import Manner

PAGE: Final = Path(__file__).parents[3] / "docs" / "apps" / "staffing.md"
HEAD: Final = "| Stripe is away | bookings | in which way | charged once | warned, blamed | released | dead letters |"
DECLINED_HEAD: Final = (
    "| Stripe is away, and then declines | bookings | in which way | told until when | released before | released then "
    "| dead letters |"
)
SCHEDULES: Final = ("weekly-payments", "weekly-final-warning", "weekly-hard-cutoff", "payment-reconciliation")
#: What asks Stripe, or waits for what it says: none of it is left over.
ASKING: Final = frozenset({"charge_week", "reconcile_payment", "ask_again"})
#: Messages to a borrower who is said not to have paid.
BLAMING: Final = ("action_required", "final_warning", "late_warning", "worker_released")
DECLINED: Final = "pm_card_chargeDeclinedInsufficientFunds"
SOON: Final = timedelta(minutes=30)  # after its return everything is as if it had never been away
HOUR: Final = timedelta(hours=1)

Way = Literal["refuses", "breaks off", "fails"]
WAYS: Final[dict[Way, str]] = {
    "refuses": "takes no connections",
    "breaks off": "charges, and is not heard",
    "fails": "answers 503",
}


@dataclass(frozen=True)
class Cell:
    """An outage, and how many bookings it meets."""

    lasts: timedelta
    bookings: int
    way: Way
    declines: bool = False  # what every card does

    @property
    def begins(self) -> datetime:
        """Before Wednesday's run, two hours at the most."""
        return W10 - min(self.lasts / 2, 2 * HOUR)

    @property
    def ends(self) -> datetime:
        """When it answers again."""
        return self.begins + self.lasts

    def row(self, once: int, wrongly: int, released: int, dead: int) -> str:
        """Its line of the table: who was charged or told once, and what must not have happened."""
        first, last = (at.astimezone(ZoneInfo(NY)).strftime("%a %H:%M:%S") for at in (self.begins, self.ends))
        away = f"{self.lasts / HOUR:g} h" if self.lasts >= HOUR else "1 min"
        once_each, gone = ("all" if number == self.bookings else str(number) for number in (once, released))
        return (
            f"| {away}, {first} to {last} | {self.bookings} | {WAYS[self.way]} | {once_each} | {wrongly} | {gone} "
            f"| {dead} |"
        )


#: Every length with every number, and the ways in turn.
CELLS: Final = tuple(
    Cell(lasts, bookings, list(WAYS)[(row + column) % len(WAYS)])
    for row, lasts in enumerate((timedelta(minutes=1), HOUR, 13 * HOUR, 30 * HOUR))
    for column, bookings in enumerate((1, 2, 7, 200))
)
#: Where every card is declined when it is back: everybody is told the instant at which they are released.
DECLINED_CELLS: Final = (
    Cell(timedelta(minutes=1), 7, "refuses", declines=True),
    Cell(HOUR, 2, "breaks off", declines=True),
    Cell(13 * HOUR, 7, "fails", declines=True),
    Cell(30 * HOUR, 2, "refuses", declines=True),
)


@contextmanager
def away(town: Town, way: Way) -> Iterator[None]:
    """Inside the block Stripe does not answer, nor does it tell anything by itself."""
    post, faults = town.sandbox.stripe.post, town.sandbox.faults
    post.manners.append(Manner(hold=True))
    send = requests.adapters.HTTPAdapter.send

    def refuses(adapter: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        if "/stripe/" in request.url:
            raise requests.ConnectionError(ConnectionRefusedError())
        return send(adapter, request, *args, **kwargs)

    try:
        if way == "refuses":
            with patch.object(requests.adapters.HTTPAdapter, "send", refuses):
                yield
        else:
            kind: Any = "drop" if way == "breaks off" else "error"
            faults.set(Fault(provider="stripe", kind=kind, status=503))
            yield
    finally:
        faults.clear("stripe")
        post.manners.clear()
        post.release()


def simulate(town: Town, cell: Cell) -> tuple[str, list[str]]:
    """Let an outage happen: its line of the table, and what is wrong."""
    town.only(*SCHEDULES, at=cell.begins - timedelta(seconds=1))
    borrower = town.company("Borrower", card_on_file=DECLINED if cell.declines else "pm_card_visa")
    lender = town.company("Lender")
    bookings = [town.booking(shifts=1, borrower=borrower, lender=lender).id for _ in range(cell.bookings)]
    wrong: list[str] = []
    with away(town, cell.way):
        town.mainspring.advance(to=cell.ends, raise_errors=False, limit=100_000)
        told = bool(town.wrong("charges_unanswered"))
    if told is not (cell.ends - W10 > town.desk.settings.silence):
        wrong.append(f"operations were{' ' if told else ' not '}told of {cell.lasts}")
    return _declined(town, cell, wrong) if cell.declines else _charged(town, cell, bookings, wrong)


def _declined(town: Town, cell: Cell, wrong: list[str]) -> tuple[str, list[str]]:
    """Everybody is told until when to pay, in one word by every message, and released then and not before."""
    latest = max(T00, cell.ends + SOON + town.desk.settings.answer_grace)
    town.mainspring.advance(to=latest + SOON, raise_errors=False, limit=100_000)
    until: dict[int, set[str]] = defaultdict(set)
    told: Counter[tuple[str, int, str]] = Counter()
    said = "select template, (data ->> 'booking_id')::bigint, channel, data ->> 'Cutoff' from mainspring.notification"
    for kind, booking, channel, cutoff in town.rows(said):
        told[kind, booking, channel] += kind in BLAMING[:3]
        if kind in ("action_required", "late_warning"):
            until[booking].add(cutoff)
        elif kind == "final_warning":
            until[booking].add(moment(T00, NY))
    if max(told.values(), default=0) > 1 or any(len(words) > 1 for words in until.values()):
        wrong.append(f"told: {told}, until {dict(until)}")
    released = "select subject, created_at from staffing.audit_log where action = 'booking_released'"
    gone = dict(town.rows(released))
    named = {f"booking {booking}": datetime.fromisoformat(min(one).partition("[")[0]) for booking, one in until.items()}
    early = [booking for booking, at in gone.items() if at < named.get(booking, latest)]
    late = [booking for booking, at in gone.items() if at > named.get(booking, latest) + SOON]
    if early or late or not all(T00 <= at <= latest for at in named.values()):
        wrong.append(f"released {gone}, told {named}")
    dead = len(town.rows("select id from mainspring.dead_letters"))
    if town.sandbox.ledger.find("charge"):
        wrong.append("somebody was charged")
    return cell.row(len(until), len(early), len(gone), dead), wrong


def _charged(town: Town, cell: Cell, bookings: list[int], wrong: list[str]) -> tuple[str, list[str]]:
    """Everybody is charged once, and nobody is blamed."""
    town.mainspring.advance(to=max(cell.ends, T00) + SOON, raise_errors=False, limit=100_000)
    intents = town.sandbox.ledger.find("stripe.payment_intent", status="succeeded")
    taken = Counter(int(entry.body["metadata"]["booking_id"]) for entry in intents)
    blamed = sum(len(town.messages(kind)) for kind in BLAMING[:3])
    released = len(town.audit("booking_released"))
    dead = len(town.rows("select id from mainspring.dead_letters"))
    funded = {
        row[0]: row[1]
        for row in town.rows(
            "select booking_id, settled_at from staffing.pending_payments where status = 'Succeeded' and try = 1"
        )
    }
    if taken != Counter(bookings):
        wrong.append(f"taken: {taken}")
    if sorted(funded) != bookings or max(funded.values()) > max(cell.ends, W10) + SOON:
        wrong.append(f"{len(funded)} funded, the last at {max(funded.values(), default=None)}")
    if left := {task for task, _, _ in town.waiting()} & ASKING:
        wrong.append(f"somebody still waits: {left}")
    if town.wrong("charges_unanswered"):
        wrong.append("the alert is still open")
    failed = "select task, count(*) from mainspring.jobs where state in ('failed', 'dead', 'retrying') group by 1"
    if unfinished := town.rows(failed):
        wrong.append(f"jobs did not succeed: {unfinished}")
    if blamed or released or dead or town.messages():
        wrong.append(f"somebody was blamed: {Counter(kind for kind, *_ in town.messages())}, dead letters: {dead}")
    return cell.row(len(taken), blamed, released, dead), wrong


def main(args: Sequence[str] | None = None) -> int:
    """Simulate every cell, and compare the page."""
    from tests.apps.staffing.walk import marketplace

    parser = argparse.ArgumentParser(prog="make outages", description=__doc__)
    parser.add_argument("--bookings", type=int, help="only the cells with so many")
    said = parser.parse_args(args)
    logging.disable(logging.CRITICAL)  # failures are the point
    failed, page = False, PAGE.read_text()
    for cell in (*CELLS, *DECLINED_CELLS):
        if cell in (CELLS[0], DECLINED_CELLS[0]):
            sys.stdout.write(f"{DECLINED_HEAD if cell.declines else HEAD}\n")
        if said.bookings not in (None, cell.bookings):
            continue
        began = time.monotonic()
        with marketplace() as (mainspring, sandbox, desk):
            town = Town(mainspring, sandbox, desk)
            row, wrong = simulate(town, cell)
            town.close()
        if row not in page:
            wrong.append(f"this line does not stand in {PAGE.name}")
        failed = failed or bool(wrong)
        sys.stdout.write("\n".join([f"{row}  {time.monotonic() - began:.0f} s", *wrong]) + "\n")
        sys.stdout.flush()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
