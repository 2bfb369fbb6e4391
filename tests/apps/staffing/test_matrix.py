"""Who may cause what, cell by cell: each line of the table is tried by everybody, and by their like elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, time
from typing import Any, Final

import pytest
from tests.apps.staffing.quarrels import HOUR, TUESDAY, T, filed
from tests.apps.staffing.town import MONDAY, Booking, Town
from tests.docs.pages import ROOT
from tools.app_events import page

from mainspring_apps.frame.refusal import missing
from mainspring_apps.staffing.conflicts import incidents
from mainspring_apps.staffing.events import EVENTS
from mainspring_apps.staffing.people import SUBJECTS, SYSTEM, By
from mainspring_apps.staffing.rules.parts import MAY, Part
from mainspring_apps.staffing.states import NotAllowed, Refused

NOBODY: Final = 10**9
LATER, NEXT_YEAR = date(2026, 7, 6), date(2027, 7, 6)


@dataclass(frozen=True)
class Scene:
    """A booking on Monday at 17:00, with a shift in each state and everybody who plays a part; one cell's arguments."""

    booking: Booking
    player: int  # who plays the part of the cell: what is one's own is theirs
    company: int  # and whose they are
    policy: int  # of that company
    free_worker: int
    listed_worker: int
    scheduled: int
    working: int
    pending: int
    dispute: int
    incident: int
    longer: int  # with extra time that is to be confirmed
    missed: int  # which nobody began
    unpaid: int  # another booking of everybody in it, whose week is due
    owing: int  # one that has ended before its work was paid
    returned: int  # and one with money that is set aside,
    transfer: int  # of which this was sent
    refund: int  # that failed

    @property
    def by_id(self) -> dict[str, int]:
        return {"booking_id": self.booking.id}


#: What each line is tried with: enough to be done, by somebody who may. A new event needs its line here.
ARGUMENTS: Final[Mapping[str, Callable[[Scene], dict[str, Any]]]] = {
    "add_operator": lambda s: {"name": "Otto"},
    "add_company": lambda s: {"kind": "Lender", "name": "Staff"},
    "let_in": lambda s: {"user_id": s.player, "principal": "user:ada@example.com"},
    "choose_language": lambda s: {"user_id": s.player, "language": "de"},
    "add_user": lambda s: {"company_id": s.company, "role": "Worker", "name": "Ada"},
    "put_card": lambda s: {"company_id": s.company, "customer": "cus_1", "payment_method": "pm_card_visa"},
    "connect_account": lambda s: {"company_id": s.company, "account": "acct_another"},
    "add_policy": lambda s: {"company_id": s.company, "expiration_date": NEXT_YEAR},
    "renew_insurance": lambda s: {"policy_id": s.policy, "expiration_date": NEXT_YEAR},
    "deactivate_insurance": lambda s: {"policy_id": s.policy},
    "add_project": lambda s: {"company_id": s.company, "name": "Tower", "timezone": "UTC"},
    "add_worker": lambda s: {
        "company_id": s.company, "user_id": s.booking.worker_user, "trade": "welder", "zip_code": "10001",
    },
    "list_worker": lambda s: {"worker_id": s.free_worker},
    "unlist_worker": lambda s: {"worker_id": s.listed_worker},
    "save_search": lambda s: {"user_id": s.player, "criteria": {}},
    "opt_out": lambda s: {"user_id": s.player, "kind": "digest"},
    "opt_in": lambda s: {"user_id": s.player, "kind": "empty_digest"},
    "confirm_booking": lambda s: {
        "project_id": s.booking.project, "worker_id": s.free_worker, "supervisor_id": None, "start_date": LATER,
        "end_date": LATER, "start": time(9), "end": time(17), "rate_minor": 3000, "currency": "USD",
    },
    "pay_by_hand": lambda s: {"booking_id": s.unpaid},
    "pay_arrears": lambda s: {"booking_id": s.owing},
    "change_scheduled_end": lambda s: s.by_id | {"end": time(18)},
    "change_shift_end": lambda s: {"time_log_id": s.scheduled, "end": T + 4 * HOUR},
    "clock_in": lambda s: {"time_log_id": s.scheduled},
    "save_draft": lambda s: {"time_log_id": s.working, "end": T},
    "submit_timesheet": lambda s: {"time_log_id": s.working},
    "force_clock_out": lambda s: {"time_log_id": s.working},
    "edit_timesheet": lambda s: {"time_log_id": s.pending, "end": T},
    "verify_timesheet": lambda s: {"time_log_id": s.pending},
    "confirm_extra_time": lambda s: {"time_log_id": s.longer},
    "was_worked": lambda s: {"time_log_id": s.missed, "start": T - 8 * HOUR, "end": T},
    "cancel_shift": lambda s: {"time_log_id": s.scheduled},
    "cancel_booking": lambda s: s.by_id,
    "file_dispute A": lambda s: {"time_log_id": s.pending, "option": "A"},
    "file_dispute B": lambda s: {"time_log_id": s.pending, "option": "B"},
    "propose_settlement": lambda s: {"dispute_id": s.dispute, "lender_minor": 24000, "borrower_minor": 0},
    "resolve_dispute": lambda s: {
        "dispute_id": s.dispute, "status": "Settled", "lender_minor": 24000, "borrower_minor": 0,
    },
    "file_incident A": lambda s: s.by_id | {"option": "A"},
    "file_incident B": lambda s: s.by_id | {"option": "B"},
    "resolve_incident": lambda s: {"incident_id": s.incident},
    "reverse_transfer": lambda s: {"transfer_id": s.transfer, "to": "held", "reason": "by mistake"},
    "repeat_refund": lambda s: {"refund_id": s.refund},
    "divide_set_aside": lambda s: {
        "booking_id": s.returned, "lender_minor": 24000, "borrower_minor": 0, "reason": "as both said",
    },
}  # fmt: skip


def scenes(town: Town) -> Callable[[Part], Scene]:
    """The scene for whoever plays a part in it."""
    booking = town.booking()
    scheduled = town.shift(booking, MONDAY, time(17), time(20))
    working = town.shift(booking, MONDAY, status="Working")
    town.mainspring.clock.set(T)
    sheet: dict[str, Any] = {"clock_out_time": T, "work_end_time": T, "auto_approval_time": T + 4 * HOUR}
    longer = town.shift(booking, MONDAY, status="Verified", paid_minutes=480, extra_minutes=20)
    missed = town.shift(booking, MONDAY)
    pending, disputed = (town.shift(booking, MONDAY, status="Pending_Verification", **sheet) for _ in range(2))
    town.funded(booking)
    dispute = filed(town, disputed, by=booking.borrowing_admin)
    with town.conn.transaction():
        incident = incidents.file_incident(
            town.desk, town.conn, booking.id, option="A", by=booking.borrowing_admin
        )  # fmt: skip
    unpaid = town.booking(borrower=booking.borrower, lender=booking.lender, worker=booking.worker, shifts=[TUESDAY])
    owing = town.booking(borrower=booking.borrower, lender=booking.lender, worker=booking.worker, status="Cancelled")
    town.shift(owing, MONDAY, status="Verified")
    returned = town.booking(borrower=booking.borrower, lender=booking.lender, worker=booking.worker, shifts=[LATER])
    payment = town.funded(returned)
    town.conn.execute("update staffing.escrow_holds set set_aside = true where payment_id = %s", [payment])
    sent: dict[str, Any] = {"amount_minor": 24000, "currency": "USD", "status": "Succeeded", "created_at": T}
    transfer = town.insert("transfers", payment_id=payment, idempotency_key="transfer:1", **sent)
    failed = {"payment_id": payment, "elsewhere": True, "idempotency_key": "refund:1"}
    refund = town.insert("refunds", **failed, **sent | {"status": "Failed"})
    free, listed = town.worker(booking.lender), town.worker(booking.lender, state="Listed", listed_at=T)
    for shift, hands in ((working, free), (missed, listed)):  # of others, as nobody is in two places at once
        town.conn.execute("update staffing.time_log set worker_id = %s where id = %s", [hands, shift])
    plays = played(town, booking)
    policies = {company: town.policy(company) for company in (booking.borrower, booking.lender)}

    def scene(part: Part) -> Scene:
        company = booking.lender if part == "Worker" or part.startswith("Lending") else booking.borrower
        player = plays[part] if part != "SYSTEM" else booking.worker_user
        assert player != SYSTEM
        return Scene(
            booking, player, company, policies[company], free, listed, scheduled, working, pending, dispute, incident,
            longer, missed, unpaid.id, owing.id, returned.id, transfer, refund,
        )  # fmt: skip

    return scene


def played(town: Town, booking: Booking) -> dict[Part, By]:
    """Who plays which part towards a booking, its companies and what is their own."""
    return {
        "Worker": booking.worker_user, "Supervisor": booking.supervisor or 0,
        "Borrowing Manager": booking.borrowing_manager, "Borrowing Admin": booking.borrowing_admin,
        "Lending Manager": booking.lending_manager, "Lending Admin": booking.lending_admin,
        "Platform Operator": town.operator, "SYSTEM": SYSTEM,
    }  # fmt: skip


def tried(town: Town, line: str, by: By, about: Mapping[str, Any]) -> str:
    """What becomes of an event that somebody wants to cause; afterwards it has not been."""
    with town.conn.transaction(force_rollback=True):
        try:
            EVENTS.declared[line.partition(" ")[0]](town.desk, town.conn, **about, by=by)
        except Refused as refused:
            field, value = next(iter(about.items()))
            gone = str(refused) == str(missing(field, value))
            if not gone and not isinstance(refused, NotAllowed):
                return "reached"
            untouched = town.value("select pg_current_xact_id_if_assigned() is null")  # neither written nor locked
            if not untouched or refused.field != (field if gone else "by"):
                return "refused too late"
            return "missing" if gone else "refused"
        return "done"


@pytest.mark.rule("STAFF-20.10", "STAFF-20.12")
def test_each_cell_of_the_table_is_allowed_or_refused_and_a_refusal_writes_nothing(town: Town) -> None:
    assert set(ARGUMENTS) == set(MAY), "each line of rules/parts.py needs its arguments in ARGUMENTS, and no other"
    scene = scenes(town)
    ours = scene("Worker").booking
    beside = town.booking(borrower=ours.borrower, lender=ours.lender)  # of the same companies, with another worker
    here, elsewhere = played(town, ours), played(town, town.booking())
    strangers: list[tuple[Part, By]] = [(part, by) for part, by in elsewhere.items() if by not in here.values()]
    strangers += [("Worker", beside.worker_user), ("Borrowing Admin", NOBODY), ("Lending Admin", NOBODY)]
    wrong, done = [], set()

    for line, arguments in ARGUMENTS.items():
        for part, by in here.items():
            found = tried(town, line, by, arguments(scene(part)))
            done |= {line} if found == "done" else set()
            if (found in ("done", "reached")) != (part in MAY[line]) or found == "refused too late":
                wrong.append(f"{line} by {part}: {found}")
        for part, by in strangers:
            about = arguments(scene(part))
            subject = SUBJECTS.get(first := next(iter(about)))
            colleague = by == beside.worker_user and subject == "company" and first != "project_id"
            known = subject is None or colleague  # else what it is about does not exist for them
            if (found := tried(town, line, by, about)) != ("refused" if known else "missing"):
                wrong.append(f"{line} by a {part} of something else: {found}")

    assert wrong == []
    assert set(MAY) - done == set(), "nobody could do it: is a scene missing?"


@pytest.mark.rule("STAFF-20.10")
def test_the_table_in_the_docs_is_printed_from_the_code() -> None:
    found = (ROOT / "docs" / "apps" / "staffing-events.md").read_text()
    assert found == page("staffing"), "run `python -m tools.app_events staffing > docs/apps/staffing-events.md`"
