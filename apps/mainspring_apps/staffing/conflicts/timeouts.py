"""The resolution timer: a dispute that nobody settled in three hours cancels what is to come (STAFF-10.11 to 10.31)."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

import mainspring as ms
from mainspring_apps.staffing import registry, store, timers
from mainspring_apps.staffing.conflicts import ending
from mainspring_apps.staffing.desk import Desk, log
from mainspring_apps.staffing.locking import lock_booking
from mainspring_apps.staffing.people import people
from mainspring_apps.staffing.registry import tasks
from mainspring_apps.staffing.rules import dispute as rules
from mainspring_apps.staffing.settings import DISPUTE_TIMEOUT, RETRY, SCAN_ROWS, TASK_TIMEOUT
from mainspring_apps.staffing.store import Conn


class _FiledDispute(msgspec.Struct, frozen=True, kw_only=True):
    dispute_option: str
    status: str
    dispute_filed_at: datetime
    timed_out_at: datetime | None


@tasks.task(queue=registry.DISPUTE_TIMEOUT_QUEUE, retry=RETRY, timeout=TASK_TIMEOUT, subject="dispute_id")
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
        ):  # fmt: skip
            return
        store.do(conn, "time_out_dispute", dispute_id=dispute_id, at=now)
        cancelled = ending.cancel_future(desk, conn, booking, now, reason=rules.TIMEOUT_REASON, dispute_id=dispute_id)
        desk.record(
            conn, "dispute_timeout", "dispute", dispute_id, booking_id=booking_id, dispute_id=dispute_id,
            reason=rules.TIMEOUT_REASON, after={"cancelled": len(cancelled)},
        )  # fmt: skip
        _tell(desk, conn, dispute_id, booking_id, rules.expires(dispute.dispute_filed_at))


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


def timeout_of(dispute_id: int, booking_id: int, filed_at: datetime) -> ms.NewJob:
    """The job that times a dispute out, at its instant, under its key."""
    job = dispute_timeout.job(
        dispute_id=dispute_id,
        booking_id=booking_id,
        dispute_filed_at=filed_at,
        timeout_expiration_time=rules.expires(filed_at),
    )
    return job.at(rules.expires(filed_at)).with_key(timers.key(timers.DISPUTE_TIMEOUT_TIMER, dispute_id))


def watch_over(desk: Desk, conn: Conn, dispute_id: int, booking_id: int, filed_at: datetime) -> None:
    """Set the timer of a new dispute; where that fails the dispute stands, and the sweep finds it (STAFF-10.30)."""
    desk.client.timers.try_set(timeout_of(dispute_id, booking_id, filed_at), conn=conn)


# `keep`: a timeout that became a dead letter waits for a person, not for the next sweep.
tasks.sweep(
    "overdue-disputes",
    every=timedelta(hours=1),
    query=store.sql["overdue_disputes"],
    params={"timeout": DISPUTE_TIMEOUT},
    job=lambda row: timeout_of(row.id, row.booking_id, row.dispute_filed_at).with_key(
        timers.key(timers.DISPUTE_TIMEOUT_TIMER, row.id), "keep"
    ),
    limit=SCAN_ROWS,
    retry=RETRY,
    timeout=TASK_TIMEOUT,
)
