from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

import psycopg
import pytest
from tests.apps.staffing.quarrels import T, submit
from tests.apps.staffing.town import MONDAY, NEXT_MONDAY, Booking, Town

from mainspring_apps.staffing import shifts, withdrawal
from mainspring_apps.staffing.conflicts import disputes, ending, incidents
from mainspring_apps.staffing.conflicts.disputes import Option
from mainspring_apps.staffing.locking import lock_booking
from mainspring_apps.staffing.payments import escrow
from mainspring_apps.staffing.states import Refused
from mainspring_apps.staffing.store import Conn

Act = Callable[[Conn], object]
BOOKINGS, THREADS, EVENTS = 3, 8, 100


@pytest.mark.rule("STAFF-19.14")
def test_a_hundred_mixed_events_at_once_neither_deadlock_nor_lose_money(town: Town) -> None:
    """Each thread has its own connection; what the rules refuse is refused, and nothing else goes wrong."""
    busy = [prepared(town) for _ in range(BOOKINGS)]
    chance = random.Random(7)
    acts = [act for booking in busy for act in events(town, booking)]
    chance.shuffle(acts)
    connections: SimpleQueue[psycopg.Connection[Any]] = SimpleQueue()
    for _ in range(THREADS):
        connections.put(psycopg.connect(town.mainspring.dsn, autocommit=True, options="-c lock_timeout=20s"))

    def go(act: Act) -> str:
        conn = connections.get()
        try:
            with conn.transaction():
                act(conn)
            return "done"
        except Refused:
            return "refused"
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        finally:
            connections.put(conn)

    with ThreadPoolExecutor(THREADS) as pool:
        ended = Counter(pool.map(go, acts))
    for _ in range(THREADS):
        connections.get().close()

    assert len(acts) >= EVENTS
    assert set(ended) == {"done", "refused"}, ended
    assert ended["done"] >= EVENTS // 4, ended
    for booking in busy:
        assert town.ledger(booking)[0] == 10 * 24000  # and it adds up


def prepared(town: Town) -> Booking:
    """A booking with six submitted timesheets and four shifts ahead, all paid for."""
    booking = town.booking(shifts=[MONDAY] * 6 + [NEXT_MONDAY] * 4)
    town.funded(booking)
    town.mainspring.clock.set(T)
    for shift in booking.shifts[:6]:
        submit(town, booking, shift)
    return booking


def events(town: Town, booking: Booking) -> list[Act]:
    """What people and timers do to it: 39 events, in no order."""

    def file(shift: int, option: Option, by: int) -> Act:
        return lambda conn: disputes.file_dispute(town.desk, conn, shift, option=option, by=by)

    def verify(shift: int) -> Act:
        return lambda conn: shifts.verify_timesheet(town.desk, conn, shift, by=booking.borrowing_admin)

    def start(shift: int) -> Act:
        return lambda conn: shifts.clock_in(town.desk, conn, shift, by=booking.worker_user)

    def call_off(shift: int) -> Act:
        return lambda conn: withdrawal.cancel_shift(town.desk, conn, shift, by=booking.borrowing_admin)

    def release(shift: int) -> Act:
        def act(conn: Conn) -> None:
            lock_booking(conn, booking.id)
            escrow.release(town.desk, conn, shift)

        return act

    operator = town.operator

    def resolve(conn: Conn) -> None:
        """Somebody settles a dispute that is open, half and half."""
        found = conn.execute(
            "select id from staffing.disputes where booking_id = %s and status = 'Open' order by id limit 1",
            [booking.id],
        ).fetchone()
        if found is None:
            raise Refused("dispute: none is open", field="dispute")
        lock_booking(conn, booking.id)
        total = disputes.at_stake(town.desk, conn, found[0])
        half = total // 2
        disputes.resolve_dispute(
            town.desk, conn, found[0], status="Settled", lender_minor=half, borrower_minor=total - half, by=operator
        )

    def time_out(conn: Conn) -> None:
        locked = lock_booking(conn, booking.id)
        found = conn.execute(
            "select id from staffing.disputes where booking_id = %s order by id limit 1", [booking.id]
        ).fetchone()
        now = town.desk.client.now(conn=conn)
        ending.cancel_future(
            town.desk, conn, locked, now, reason="Dispute_Timeout", dispute_id=found[0] if found else None
        )

    def report(option: Option) -> Act:
        return lambda conn: incidents.file_incident(
            town.desk, conn, booking.id, option=option, by=booking.borrowing_admin
        )

    pending, ahead = booking.shifts[:6], booking.shifts[6:]
    return [
        *(file(shift, "A", booking.borrowing_admin) for shift in pending),
        *(file(shift, "A", booking.worker_user) for shift in pending),
        file(pending[5], "B", booking.borrowing_admin),
        *(verify(shift) for shift in pending[:4]),
        *(release(shift) for shift in pending[:4]),
        *(start(shift) for shift in ahead[:2]),
        *(call_off(shift) for shift in ahead),
        lambda conn: withdrawal.cancel_booking(town.desk, conn, booking.id, by=operator),
        *[resolve] * 6,
        *[time_out] * 2,
        report("A"),
        report("A"),
        report("B"),
    ]
