"""Disputes and incidents of the demo: filed by one side, settled by both or by an operator, sooner or later."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import mainspring as ms
from mainspring_apps.staffing import people as team
from mainspring_apps.staffing import store
from mainspring_apps.staffing.conflicts import disputes, incidents
from mainspring_apps.staffing.demo.acts import QUEUE, DemoShift, act, later, minutes, one_in, part_of, people
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.payments import escrow
from mainspring_apps.staffing.rules.dispute import Option


@people.task(queue=QUEUE)
def dispute(desk: Desk, ctx: ms.SyncContext, *, booking_id: int, time_log_id: int, option: Option) -> None:
    """A supervisor, or the worker, disputes a timesheet; most are settled within a day, a few go to court."""
    filed: list[int] = []
    with ctx.complete() as conn:
        shift = store.needed(conn, DemoShift, "demo_shift", time_log_id=time_log_id)
        who = shift.worker if option == "A" and one_in(4) else shift.supervisor
        act(conn, lambda: filed.append(disputes.file_dispute(desk, conn, time_log_id, option=option, by=who)))
        for id_ in filed:
            at = desk.now(conn) + minutes(30, 20 * 60)
            later(desk, conn, court.job(dispute_id=id_) if one_in(6) else resolve.job(dispute_id=id_), at)


@people.task(queue=QUEUE)
def court(desk: Desk, ctx: ms.SyncContext, *, dispute_id: int) -> None:
    """Lawyers take over; days later it is settled all the same."""
    with ctx.complete() as conn:
        operator = store.value(conn, "demo_operator")
        act(conn, lambda: disputes.resolve_dispute(desk, conn, dispute_id, status="Legal_Hold", by=operator))
        later(desk, conn, resolve.job(dispute_id=dispute_id), desk.now(conn) + timedelta(days=2) + minutes(0, 3000))


@people.task(queue=QUEUE)
def resolve(desk: Desk, ctx: ms.SyncContext, *, dispute_id: int) -> None:
    """Both sides agree on who gets how much of what is frozen or unpaid."""
    with ctx.complete() as conn:
        booking = store.needed(conn, disputes.Dispute, "dispute", dispute_id=dispute_id).booking_id
        division = _divided(disputes.at_stake(desk, conn, dispute_id))
        for by in team.people(conn, booking, "Borrowing Admin", "Lending Admin"):
            act(conn, partial(disputes.propose_settlement, desk, conn, dispute_id, **division, by=by))


@people.task(queue=QUEUE)
def report(desk: Desk, ctx: ms.SyncContext, *, booking_id: int, option: Option) -> None:
    """Something happened on site; it is looked into, and closed."""
    filed: list[int] = []
    with ctx.complete() as conn:
        admin = team.people(conn, booking_id, "Borrowing Admin")[0]
        act(conn, lambda: filed.append(incidents.file_incident(desk, conn, booking_id, option=option, by=admin)))
        for id_ in filed:
            later(desk, conn, close.job(incident_id=id_), desk.now(conn) + minutes(6 * 60, 48 * 60))


@people.task(queue=QUEUE)
def close(desk: Desk, ctx: ms.SyncContext, *, incident_id: int) -> None:
    """An incident is closed, and what it froze divided."""
    with ctx.complete() as conn:
        division = _divided(escrow.total_of(escrow.frozen(conn, incident_id=incident_id)))
        operator = store.value(conn, "demo_operator")
        act(conn, lambda: incidents.resolve_incident(desk, conn, incident_id, **division, by=operator))


def _divided(total: int) -> dict[str, int]:
    lender = part_of(total)
    return {"lender_minor": lender, "borrower_minor": total - lender}
