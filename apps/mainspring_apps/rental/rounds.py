"""The jobs of a booking: one for each type and round; asked for again, only failed work runs again (RENT-3.06)."""

from __future__ import annotations

from typing import Literal

import mainspring as ms
from mainspring_apps.frame.refusal import Refused
from mainspring_apps.rental import store
from mainspring_apps.rental.desk import Desk, log
from mainspring_apps.rental.store import Conn

JobKind = Literal["issue_invoice", "send_customer_confirmation", "send_internal_confirmation", "send_invoice_ready"]


def same(kind: JobKind) -> ms.dedupe.Dedupe:
    """The key of the jobs of a kind: by booking and round."""
    return ms.dedupe.reset_failed(f"{kind}:{{booking_id}}:{{round}}")


def start(desk: Desk, conn: Conn, booking_id: int, *jobs: ms.NewJob, number: int = 1) -> None:
    """Create jobs of a booking, of one round, with the transaction."""
    for job, enqueued in zip(jobs, desk.enqueue(conn, *jobs), strict=True):
        store.do(conn, "note_round", booking_id=booking_id, type=job.task, round=number, job_id=enqueued.id)


def created(booking_id: int, *jobs: ms.NewJob) -> None:
    """Say that jobs of a booking are created, once that has committed (RENT-8.03)."""
    about = {"bookingId": booking_id, "types": [job.task for job in jobs]}
    log.info("jobs:created", extra={"event": "jobs:created", **about})


def next_round(conn: Conn, booking_id: int, kind: JobKind) -> int:
    """The number of a wanted repeat; work that is not done yet is not repeated beside itself (RENT-20.02)."""
    state = store.value(conn, "round_state", booking_id=booking_id, type=kind)
    if state is not None and state != "succeeded":
        raise Refused(f"booking_id: its {kind} is not done yet", field="booking_id")
    return int(store.value(conn, "latest_round", booking_id=booking_id, type=kind)) + 1
