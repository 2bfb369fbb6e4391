"""The resolution timer: a dispute that nobody settled in time cancels what is to come (STAFF-10.11 to 10.31)."""

from __future__ import annotations

from datetime import datetime

import msgspec

import mainspring as ms
from mainspring_apps.staffing import registry, store, timers
from mainspring_apps.staffing.conflicts import ending
from mainspring_apps.staffing.desk import Desk, log
from mainspring_apps.staffing.locking import lock_booking
from mainspring_apps.staffing.people import people
from mainspring_apps.staffing.registry import tasks
from mainspring_apps.staffing.rules import dispute as rules
from mainspring_apps.staffing.store import Conn


class _FiledDispute(msgspec.Struct, frozen=True, kw_only=True):
    dispute_option: str
    status: str
    dispute_filed_at: datetime
    timed_out_at: datetime | None


@tasks.task(queue=registry.DISPUTE_TIMEOUT_QUEUE, subject="dispute_id")
def dispute_timeout(
    desk: Desk,
    ctx: ms.SyncContext,
    *,
    dispute_id: int,
    booking_id: int,
    dispute_filed_at: datetime,
    timeout_expiration_time: datetime,
) -> None:
    """Cancel the future shifts of a booking whose dispute is unresolved: penalties frozen, the rest refunded."""
    with ctx.complete() as conn:
        booking = lock_booking(conn, booking_id)
        dispute = store.needed(conn, _FiledDispute, "dispute", dispute_id=dispute_id)
        now = desk.now(conn)
        if not rules.times_out(
            option=dispute.dispute_option, status=dispute.status, booking=booking.status,
            filed_at=dispute.dispute_filed_at, timed_out_at=dispute.timed_out_at, now=now,
            timeout=desk.settings.dispute_timeout,
        ):  # fmt: skip
            return
        store.do(conn, "time_out_dispute", dispute_id=dispute_id, at=now)
        cancelled = ending.cancel_future(desk, conn, booking, now, reason=rules.TIMEOUT_REASON, dispute_id=dispute_id)
        desk.record(
            conn, "dispute_timeout", "dispute", dispute_id, booking_id=booking_id, dispute_id=dispute_id,
            reason=rules.TIMEOUT_REASON, after={"cancelled": len(cancelled)},
        )  # fmt: skip
        _tell(desk, conn, dispute_id, booking_id, dispute.dispute_filed_at + desk.settings.dispute_timeout)


def _tell(desk: Desk, conn: Conn, dispute_id: int, booking_id: int, expired_at: datetime) -> None:
    """Tell both companies and the worker; what fails here does not stand in the way (STAFF-10.29)."""
    try:
        with conn.transaction():
            about = {"dispute_id": dispute_id, "booking_id": booking_id}
            desk.tell(
                conn, "dispute_timeout", people(conn, booking_id, *rules.TIMEOUT_TOLD), about, occurrence=expired_at
            )
    except Exception as error:
        log.warning("nobody was told of dispute %s: %s", dispute_id, type(error).__name__, exc_info=error)


def timeout_of(desk: Desk, dispute_id: int, booking_id: int, filed_at: datetime) -> ms.NewJob:
    """The job that times a dispute out, at its instant."""
    expires = filed_at + desk.settings.dispute_timeout
    job = dispute_timeout.job(
        dispute_id=dispute_id,
        booking_id=booking_id,
        dispute_filed_at=filed_at,
        timeout_expiration_time=expires,
    )
    return job.at(expires)


def watch_over(desk: Desk, conn: Conn, dispute_id: int, booking_id: int, filed_at: datetime) -> None:
    """Set the timer of a new dispute; where that fails the dispute stands, and the sweep finds it (STAFF-10.30)."""
    job = timeout_of(desk, dispute_id, booking_id, filed_at)
    timers.try_start(desk, conn, timers.DISPUTE_TIMEOUT_TIMER, dispute_id, job)


# `keep`: a timeout that became a dead letter waits for a person, not for the next sweep.
tasks.sweep(
    "overdue-disputes",
    every=lambda desk: desk.settings.sweep_every,
    query=store.sql["overdue_disputes"],
    params=lambda desk: {"timeout": desk.settings.dispute_timeout},
    job=lambda desk, row: timeout_of(desk, row.id, row.booking_id, row.dispute_filed_at).with_key(
        timers.key(timers.DISPUTE_TIMEOUT_TIMER, row.id), "keep"
    ),
    limit=lambda desk: desk.settings.scan_rows,
)
