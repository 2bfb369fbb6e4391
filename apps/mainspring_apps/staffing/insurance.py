"""Insurance: warnings, expiry, the hard stop, and renewal.

Policies are locked before bookings. So a stop and a renewal see each other: whichever is second finds what the first
has done, and no booking stays suspended whose policies are valid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal

import msgspec

import mainspring as ms
from mainspring_apps.frame.setting import rest_of_day
from mainspring_apps.staffing import store, timers, unresolved
from mainspring_apps.staffing.desk import Desk, log
from mainspring_apps.staffing.events import event
from mainspring_apps.staffing.languages import moment
from mainspring_apps.staffing.locking import LockedBooking
from mainspring_apps.staffing.payments import weekly
from mainspring_apps.staffing.people import By, of_company, people
from mainspring_apps.staffing.registry import INSURANCE_HARD_STOP, INSURANCE_MONITORING, tasks
from mainspring_apps.staffing.rules import insurance as rules
from mainspring_apps.staffing.rules import weeks
from mainspring_apps.staffing.rules.insurance import Policy
from mainspring_apps.staffing.states import Refused
from mainspring_apps.staffing.store import Conn
from mainspring_apps.staffing.texts import insurance_warning


@tasks.task(queue=INSURANCE_MONITORING, subject="policy_id")
def look_at_policy(desk: Desk, ctx: ms.SyncContext, *, policy_id: int, instant: datetime) -> None:
    """Warn of a policy's end, once for each threshold, or deactivate what has expired."""
    today = instant.astimezone(UTC).date()
    with ctx.complete() as conn:
        policy = store.needed(conn, Policy, "lock_policy", policy_id=policy_id)
        if not policy.is_active:
            return
        if rules.expired(policy.expiration_date, today):
            _deactivate(desk, conn, policy, instant, reason="expired")
            _tell(desk, conn, policy, "insurance_expired", rules.ALARMED, instant)
        elif threshold := rules.warning_due(policy.expiration_date, today, desk.settings.insurance_thresholds):
            about = {"policy_id": policy.id, "expiration_date": policy.expiration_date, "threshold": threshold}
            if store.do(conn, "record_warning", **about):
                _tell(desk, conn, policy, insurance_warning(threshold), rules.EXPIRY_WARNED, instant)


def ending_policies(
    desk: Desk, conn: Conn, zone: str, after: int | None, limit: int, *, instant: datetime
) -> list[tuple[int, Mapping[str, Any]]]:
    """One page of what may be warned of, or has expired; the job decides."""
    until = instant.astimezone(UTC).date() + timedelta(days=max(desk.settings.insurance_thresholds))
    found = store.column(conn, "ending_policies", until=until, after=after, limit=limit)
    return [(policy_id, {"policy_id": policy_id}) for policy_id in found]


tasks.schedule(
    "insurance-monitoring",
    lambda desk: ms.daily(desk.settings.insurance_at),
    look_at_policy,
    entities=ending_policies,
    page=lambda desk: desk.settings.scan_rows,
    within=lambda desk: rest_of_day(desk.settings.insurance_at),  # the same UTC day (STAFF-0.08)
)


@tasks.task(queue=INSURANCE_HARD_STOP, subject="booking_id")
def stop_booking(desk: Desk, ctx: ms.SyncContext, *, booking_id: int, policy_id: int, instant: datetime) -> None:
    """Suspend a booking whose insurance is gone, and tell everybody on it to stop, whatever the hour."""
    with ctx.complete() as conn:
        store.do(conn, "lock_policies_of_booking", booking_id=booking_id)
        booking = store.needed(conn, _InsuredBooking, "lock_insured_booking", booking_id=booking_id)
        policies = store.many(conn, Policy, "policies_of_booking", booking_id=booking_id)  # and what came meanwhile
        missing = rules.uncovered(policies, _today(desk, conn))
        if missing is not None and booking.status == rules.UNCONFIRMED:
            raise ms.Snooze(desk.settings.unconfirmed_stop_every)  # it stops once it is confirmed, if it is
        if missing is None or not rules.stops(booking.status, to_be_worked=booking.to_be_worked):
            return
        if not store.do(conn, "suspend_booking", booking_id=booking_id, status=booking.status):
            return
        after = {"status": "Suspended_Insurance", "policy_id": missing.id}
        before = {"status": booking.status}
        desk.record(
            conn, "booking_suspended", "booking", booking_id, reason=rules.HARD_STOP, before=before, after=after
        )
        # Two stops within a quarter of an hour are two messages.
        about = {"booking_id": booking_id, "policy_id": policy_id, "stopped_at": instant.isoformat()}
        everybody = people(conn, booking_id, *rules.STOPPED)
        desk.tell(conn, "insurance_stop", everybody, about, occurrence=instant)


def uncovered(conn: Conn, booking_id: int, on: date) -> str | None:
    """Why nobody may work on a booking on this local date of its project: the policy that is missing; None: covered.

    A company that has no policy at all on record is not asked for one: see `rules.insurance.uncovered`.
    """
    missing = rules.uncovered(store.many(conn, Policy, "policies_of_booking", booking_id=booking_id), on)
    if missing is None:
        return None
    return f"no {missing.policy_type} insurance of company {missing.company_id} is valid on {on}"


def lender_covered(desk: Desk, conn: Conn, booking: LockedBooking) -> bool:
    """Whether the lender of a booking may let anybody work today: one who may not is owed no penalty."""
    policies = store.many(conn, Policy, "policies_of_booking", booking_id=booking.id)
    theirs = [policy for policy in policies if policy.company_id == booking.lender_company_id]
    return rules.uncovered(theirs, weeks.local_date(desk.now(conn), booking.zone)) is None


@event
def renew_insurance(desk: Desk, conn: Conn, policy_id: int, *, expiration_date: date, by: By) -> None:
    """Renew a policy; bookings that were suspended only for it go on."""
    store.do(conn, "lock_policies_beside", policy_id=policy_id)
    policy = store.needed(conn, Policy, "lock_policy", policy_id=policy_id)
    check_valid(desk, conn, expiration_date)
    store.do(conn, "renew_policy", policy_id=policy_id, expiration_date=expiration_date)
    _record(desk, conn, "policy_renewed", policy, active=True, expires=expiration_date)
    lift_stops(desk, conn, policy.company_id)


def check_valid(desk: Desk, conn: Conn, expiration_date: date) -> None:
    """Refuse a date on which a policy has expired already."""
    if rules.expired(expiration_date, _today(desk, conn)):
        raise Refused(f"expiration_date: {expiration_date} has passed", field="expiration_date")


def lift_stops(desk: Desk, conn: Conn, company_id: int) -> None:
    """Let those suspended bookings of a company go on that are covered now; its policies are held meanwhile."""
    store.do(conn, "lock_policies_of_company", company_id=company_id)
    for bookings in _pages(desk, conn, "suspended_bookings", company_id=company_id):
        for booking_id in bookings:
            _resume(desk, conn, booking_id)


@event
def deactivate_insurance(desk: Desk, conn: Conn, policy_id: int, *, by: By) -> None:
    """Withdraw a policy by hand; its bookings are stopped at once, as when it expires."""
    policy = store.needed(conn, Policy, "lock_policy", policy_id=policy_id)
    if policy.is_active:
        _deactivate(desk, conn, policy, desk.now(conn), reason="by hand")


def _deactivate(desk: Desk, conn: Conn, policy: Policy, instant: datetime, *, reason: str) -> None:
    store.do(conn, "deactivate_policy", policy_id=policy.id)
    _record(desk, conn, "policy_deactivated", policy, active=False, expires=policy.expiration_date, reason=reason)
    for bookings in _affected(desk, conn, policy):
        desk.enqueue(conn, *(_stop(booking_id, policy.id, instant) for booking_id in bookings))


def _stop(booking_id: int, policy_id: int, instant: datetime) -> ms.NewJob:
    job = stop_booking.job(booking_id=booking_id, policy_id=policy_id, instant=instant)
    return job.with_key(timers.key("insurance-stop", booking_id), unless_live=True)


def _resume(desk: Desk, conn: Conn, booking_id: int) -> None:
    booking = store.needed(conn, _InsuredBooking, "lock_insured_booking", booking_id=booking_id)
    if booking.status_before_suspension is None or uncovered(conn, booking_id, _today(desk, conn)) is not None:
        return
    option_a = unresolved.of_booking(conn, booking_id).option_a
    status = rules.restored(booking.status_before_suspension, option_a=option_a)
    store.do(conn, "lift_suspension", booking_id=booking_id, status=status, in_dispute=option_a)
    before, after = {"status": booking.status}, {"status": status}
    desk.record(conn, "booking_resumed", "booking", booking_id, reason="renewed", before=before, after=after)
    if status == "Active" and booking.payment_type == "Weekly_Progress":
        weekly.enqueue_due(desk, conn, booking_id, source="renewal")


def _affected(desk: Desk, conn: Conn, policy: Policy) -> Iterator[list[int]]:
    """The bookings, by page, that lose their cover with a policy: none where its company has another of its type."""
    about = {"policy_id": policy.id, "company_id": policy.company_id, "policy_type": policy.policy_type}
    if store.value(conn, "other_valid_policy", **about, today=_today(desk, conn)) is None:
        statuses = sorted(rules.STOPPABLE | {rules.UNCONFIRMED})
        yield from _pages(desk, conn, "stoppable_bookings", company_id=policy.company_id, statuses=statuses)


def _tell(
    desk: Desk, conn: Conn, policy: Policy, kind: str, roles: tuple[Literal["Admin", "Manager"], ...], instant: datetime
) -> None:
    """Tell the policy's company, and the other side of affected bookings; what is wrong here undoes nothing (4.29)."""
    try:
        with conn.transaction():
            companies = {policy.company_id}
            for bookings in _affected(desk, conn, policy):
                companies.update(store.column(conn, "companies_of_bookings", ids=bookings))
            told = [user for company in sorted(companies) for user in of_company(conn, company, *roles)]
            about = {
                "Policy type": policy.policy_type,
                "Company": store.value(conn, "company_name", company_id=policy.company_id),
                "Date": policy.expiration_date.isoformat(),
                "End": moment(rules.ends_at(policy.expiration_date), "UTC"),
                "policy_id": policy.id,
            }
            desk.tell(conn, kind, told, about, occurrence=instant)
    except Exception as error:
        log.error("nobody was told of policy %s: %s", policy.id, type(error).__name__, exc_info=error)


def _record(
    desk: Desk, conn: Conn, action: str, policy: Policy, *, active: bool, expires: date, reason: str | None = None
) -> None:
    before = {"is_active": policy.is_active, "expiration_date": policy.expiration_date.isoformat()}
    after = {"is_active": active, "expiration_date": expires.isoformat()}
    desk.record(conn, action, "policy", policy.id, reason=reason, before=before, after=after)


def _pages(desk: Desk, conn: Conn, name: str, **params: object) -> Iterator[list[int]]:
    """The ids that a statement answers, in order, by page (STAFF-17.10)."""
    after = 0
    while ids := store.column(conn, name, **params, after=after, limit=desk.settings.scan_rows):
        yield ids
        after = ids[-1]


def _today(desk: Desk, conn: Conn) -> date:
    return desk.now(conn).astimezone(UTC).date()


class _InsuredBooking(msgspec.Struct, frozen=True, kw_only=True):
    status: str
    status_before_suspension: str | None
    payment_type: str
    to_be_worked: bool
