from __future__ import annotations

from datetime import date, datetime, time, timedelta
from itertools import pairwise
from typing import Any

import pytest
from tests.apps.staffing.town import MONDAY, NEXT_WEEK, T00, W10, Booking, Town
from tests.apps.staffing.wednesday import MINUTE, SECOND, at, deliver, tried

from mainspring_apps.staffing import insurance, shifts, store
from mainspring_apps.staffing.conflicts import disputes
from mainspring_apps.staffing.payments import cutoff
from mainspring_apps.staffing.registry import INSURANCE_HARD_STOP, tasks
from mainspring_apps.staffing.rules import insurance as rules
from mainspring_apps.staffing.settings import Settings
from mainspring_apps.staffing.states import Refused
from mainspring_sandbox import Fault

DAY = timedelta(days=1)
JUNE = date(2026, 6, 1)
EXPIRES = date(2026, 6, 15)
STOP = "Insurance Invalid. Work must stop immediately. Please clock out worker."


def night(day: date) -> datetime:
    """The instant of a nightly run."""
    return at(f"{day}T00:00")


def run(town: Town, day: date) -> None:
    """Let a nightly run happen, with everything that follows at once; the days before it are not looked at."""
    town.mainspring.clock.set(max(town.now, night(day) - SECOND))
    town.mainspring.drain()
    town.mainspring.advance(to=night(day) + SECOND)


def expiring(town: Town, expires: date = EXPIRES, *, shifts: Any = 0, **values: Any) -> tuple[Booking, int]:
    """A booking whose lender's only policy ends then."""
    booking = town.booking(insured=False, shifts=shifts, **values)
    town.policy(booking.borrower)
    return booking, town.policy(booking.lender, expires)


def stop(town: Town, policy: int) -> None:
    """Somebody withdraws a policy, and the stop follows at once."""
    with town.conn.transaction():
        insurance.deactivate_insurance(town.desk, town.conn, policy, by=town.admin_of("insurance_policies", policy))
    town.mainspring.drain(queue=INSURANCE_HARD_STOP)


def renew(town: Town, policy: int, until: date = date(2027, 6, 15), by: int | None = None) -> None:
    with town.conn.transaction():
        insurance.renew_insurance(
            town.desk, town.conn, policy, expiration_date=until, by=by or town.admin_of("insurance_policies", policy)
        )


def everybody(booking: Booking) -> set[int | None]:
    return {
        booking.worker_user, booking.supervisor, booking.borrowing_admin, booking.borrowing_manager,
        booking.lending_admin, booking.lending_manager,
    }  # fmt: skip


# -- warnings


@pytest.mark.rule("STAFF-4.02", "STAFF-4.07", "STAFF-4.08")
def test_which_warning_is_due_by_the_days_that_are_left() -> None:
    assert rules.days_left(EXPIRES, JUNE) == 14
    due = {left: rules.warning_due(JUNE + timedelta(days=left), JUNE, (14, 7)) for left in range(-1, 16)}
    assert due == {-1: None, **dict.fromkeys(range(8), 7), **dict.fromkeys(range(8, 15), 14), 15: None}
    assert [rules.expired(EXPIRES, EXPIRES + n * DAY) for n in (-1, 0, 1)] == [False, False, True]


@pytest.mark.rule("STAFF-4.01", "STAFF-4.02", "STAFF-4.03", "STAFF-4.04", "STAFF-4.06")
def test_admins_are_warned_once_by_mail_at_14_days_and_by_both_at_7(town: Town) -> None:
    lender = town.company("Lender")
    admin = town.user(lender, "Admin", quiet_hours_start=time(0), quiet_hours_end=time(0))
    town.user(lender, "Manager")
    policy = town.policy(lender, EXPIRES)
    inactive = town.policy(lender, EXPIRES, is_active=False, policy_type="Old")
    run(town, date(2026, 6, 2))
    day_13 = town.messages()
    assert day_13 == [("insurance_14", admin, "email", "Sent")]

    town.mainspring.run_one(insurance.look_at_policy.job(policy_id=policy, instant=night(date(2026, 6, 2))))
    run(town, date(2026, 6, 3))
    assert town.messages() == day_13

    run(town, date(2026, 6, 8))
    run(town, date(2026, 6, 9))
    week = [("insurance_7", admin, "email", "Sent"), ("insurance_7", admin, "sms", "Sent")]
    assert town.messages() == day_13 + week
    fires = town.rows("select instant from mainspring.fire where schedule = 'insurance-monitoring' and how = 'fired'")
    assert sorted(fires) == [(night(date(2026, 6, day)),) for day in (2, 3, 7, 8, 9)]  # on the 7th late
    assert town.value("select count(*) from mainspring.jobs where payload ->> 'policy_id' = %s", str(inactive)) == 0

    renew(town, policy)
    run(town, date(2027, 6, 1))
    assert town.value("select count(*) from staffing.notification_log where kind = 'insurance_14'") == 2


@pytest.mark.rule("STAFF-4.01", "STAFF-4.07", "STAFF-0.08")
def test_a_night_that_nobody_was_there_is_made_up_for_on_the_same_day_or_by_the_next(town: Town) -> None:
    lender = town.company("Lender")
    town.user(lender, "Admin")
    town.policy(lender, EXPIRES)
    town.mainspring.drain()  # the schedule is known, at 04:00Z on the 1st
    town.mainspring.clock.set(at("2026-06-02T21:00"))
    town.mainspring.drain()
    assert town.rows("select scheduled_for from mainspring.jobs where task = 'look_at_policy'") == [
        (night(date(2026, 6, 2)),)
    ]
    assert [kind for kind, *_ in town.messages()] == ["insurance_14"]


@pytest.mark.rule("STAFF-4.05", "STAFF-4.13")
def test_the_other_side_is_warned_where_a_live_booking_depends_on_the_policy(town: Town) -> None:
    live, policy = expiring(town)
    spared, _ = expiring(town)
    town.policy(spared.lender, date(2026, 12, 1))
    over, _ = expiring(town, status="Cancelled")
    assert policy

    run(town, JUNE + DAY)

    told = {who for _, who, _, _ in town.messages("insurance_14")}
    assert told == {live.lending_admin, live.borrowing_admin, spared.lending_admin, over.lending_admin}


# -- expiry and the stop


@pytest.mark.rule("STAFF-4.08", "STAFF-4.09", "STAFF-4.10", "STAFF-4.14", "STAFF-4.15")
def test_an_expired_policy_ends_work_and_tells_everybody_in_the_night(town: Town) -> None:
    booking, policy = expiring(town)
    town.conn.execute("update staffing.users set timezone = 'Atlantic/Azores'")  # 00:00Z is the dead of night there
    run(town, EXPIRES)
    assert town.row("insurance_policies", policy)["is_active"]

    run(town, EXPIRES + DAY)

    assert not town.row("insurance_policies", policy)["is_active"]
    assert town.status(booking) == "Suspended_Insurance"
    assert town.row("bookings", booking.id)["status_before_suspension"] == "Active"
    assert town.audit("booking_suspended") == [("SYSTEM", "booking", booking.id, "Insurance_Hard_Stop", None)]
    assert town.audit("policy_deactivated") == [("SYSTEM", "policy", policy, "expired", None)]
    stopped = town.messages("insurance_stop")
    assert stopped == sorted(
        ("insurance_stop", who, how, "Sent") for who in everybody(booking) for how in ("email", "sms")
    )
    assert len(stopped) == 12
    assert town.texts("insurance_stop") == {STOP}
    alarmed = {who for _, who, _, status in town.messages("insurance_expired") if status == "Sent"}
    managers = {booking.borrowing_manager, booking.lending_manager}
    assert alarmed == {booking.borrowing_admin, booking.lending_admin} | managers
    critical = (
        "select distinct critical from staffing.notification_log where kind in ('insurance_stop', 'insurance_expired')"
    )
    assert town.rows(critical) == [(True,)]


@pytest.mark.rule("STAFF-4.11", "STAFF-4.12", "STAFF-4.13", "STAFF-4.18", "STAFF-4.31")
def test_the_stop_suspends_whatever_is_still_worked_and_nothing_else_once(town: Town) -> None:
    active, policy = expiring(town, shifts=[date(2026, 6, 6)])
    town.policy(active.lender, date(2026, 12, 1), policy_type="Accident")  # of another type: it covers nothing here
    same: dict[str, Any] = {"lender": active.lender, "worker": active.worker, "insured": False}
    paused = town.booking(**same, status="Payment_Paused_Dispute")
    disputed = town.booking(**same, status="Disputed")
    running = town.booking(**same, status="Completed", shifts=[date(2026, 6, 6)])
    at_work = town.booking(**same, status="Completed")
    town.shift(at_work, date(2026, 5, 6), status="Working")  # who never clocked out
    over = town.booking(**same, status="Completed", shifts=[date(2026, 5, 6)])
    cancelled = town.booking(**same, status="Cancelled")
    town.mainspring.clock.set(W10 - MINUTE)  # a minute before the charge

    stop(town, policy)
    for booking in (active, paused, disputed, running, at_work, over):
        job = insurance.stop_booking.job(booking_id=booking.id, policy_id=policy, instant=town.now)
        town.mainspring.run_one(job)

    stopped = [active, paused, disputed, running, at_work]
    assert [town.status(booking) for booking in stopped] == ["Suspended_Insurance"] * 5
    before = [town.row("bookings", booking.id)["status_before_suspension"] for booking in stopped]
    assert before == ["Active", "Payment_Paused_Dispute", "Disputed", "Completed", "Completed"]
    assert [town.status(booking) for booking in (over, cancelled)] == ["Completed", "Cancelled"]
    assert len(town.messages("insurance_stop")) == 5 * 12

    covered = town.booking()
    second = town.policy(covered.lender, date(2026, 12, 1))
    stop(town, second)
    assert town.status(covered) == "Active"


@pytest.mark.rule("STAFF-4.09", "STAFF-4.13")
@pytest.mark.parametrize(
    ("other", "about", "stops"),
    [
        (MONDAY - DAY, {}, 1),
        (MONDAY, {}, 0),
        (MONDAY + 99 * DAY, {}, 0),
        (MONDAY + 99 * DAY, {"is_active": False}, 1),
        (MONDAY + 99 * DAY, {"policy_type": "Accident"}, 1),
    ],
)
def test_another_policy_of_the_type_covers_only_while_it_is_valid(
    town: Town, other: date, about: dict[str, Any], stops: int
) -> None:
    booking, policy = expiring(town)
    town.policy(booking.lender, other, **about)

    with town.conn.transaction():
        insurance.deactivate_insurance(town.desk, town.conn, policy, by=town.admin_of("insurance_policies", policy))
    assert [key for _, _, key in town.waiting("stop_booking")] == [f"insurance-stop:{booking.id}"] * stops
    town.mainspring.drain(queue=INSURANCE_HARD_STOP)

    assert town.status(booking) == ("Suspended_Insurance" if stops else "Active")


@pytest.mark.rule("STAFF-4.13", "STAFF-4.31")
def test_a_stop_that_finds_the_policy_renewed_stops_nobody(town: Town) -> None:
    booking, policy = expiring(town)
    with town.conn.transaction():
        insurance.deactivate_insurance(town.desk, town.conn, policy, by=town.admin_of("insurance_policies", policy))
    renew(town, policy)

    town.mainspring.drain()

    assert (town.status(booking), town.messages("insurance_stop")) == ("Active", [])


@pytest.mark.rule("STAFF-4.16", "STAFF-4.19", "STAFF-4.20", "STAFF-4.27")
def test_withdrawn_at_noon_work_stops_at_noon_and_nothing_else_changes(town: Town) -> None:
    booking, policy = expiring(town, shifts=[MONDAY, MONDAY + DAY])
    working, later = booking.shifts
    town.funded(booking, later)
    town.mainspring.clock.set(at("2026-06-01T13:00"))
    with town.conn.transaction():
        shifts.clock_in(town.desk, town.conn, working, by=booking.worker_user)
    timers = [row for row in town.waiting() if str(row[2]).endswith(f":{working}")]
    town.mainspring.clock.set(at("2026-06-01T16:00"))

    with town.conn.transaction():
        insurance.deactivate_insurance(town.desk, town.conn, policy, by=booking.lending_admin)
    town.mainspring.drain()

    assert town.status(booking) == "Suspended_Insurance"
    when = "select created_at from staffing.audit_log where action = 'booking_suspended'"
    assert town.rows(when) == [(at("2026-06-01T16:00"),)]
    assert town.audit("policy_deactivated") == [(str(booking.lending_admin), "policy", policy, "by hand", None)]
    assert [town.shift_status(shift) for shift in (working, later)] == ["Working", "Scheduled"]
    assert town.ledger(booking) == (24000, 24000, 0, 0, 0)
    assert len(timers) == 2
    assert [row for row in town.waiting() if str(row[2]).endswith(f":{working}")] == timers
    with pytest.raises(Refused, match="Suspended_Insurance"), town.conn.transaction():
        shifts.clock_in(town.desk, town.conn, later, by=booking.worker_user)


@pytest.mark.rule("STAFF-4.12", "STAFF-4.23")
def test_a_released_booking_that_runs_to_sunday_is_stopped_too_and_runs_on_after_renewal(town: Town) -> None:
    booking, policy = expiring(town, date(2026, 6, 4), shifts=[date(2026, 6, 6)])
    town.mainspring.clock.set(T00)
    tried(town, booking)
    town.mainspring.run_one(cutoff.cut_off.job(booking_id=booking.id, instant=T00))
    assert town.status(booking) == "Completed"

    run(town, date(2026, 6, 5))
    assert town.status(booking) == "Suspended_Insurance"

    renew(town, policy)
    assert town.status(booking) == "Completed"
    assert town.waiting("charge_week") == []


@pytest.mark.rule("STAFF-4.17")
def test_nobody_begins_uncovered_between_local_expiry_and_the_nightly_run(town: Town) -> None:
    booking, policy = expiring(town, zone="Pacific/Auckland", shifts=[EXPIRES, EXPIRES + DAY], start=time(8))
    on_the_day, after = booking.shifts
    town.mainspring.clock.set(at("2026-06-14T20:00"))  # 08:00 on the 15th
    with town.conn.transaction():
        shifts.clock_in(town.desk, town.conn, on_the_day, by=booking.worker_user)
    town.mainspring.clock.set(at("2026-06-15T20:00"))  # 08:00 on the 16th
    with pytest.raises(Refused, match="Liability insurance"), town.conn.transaction():
        shifts.clock_in(town.desk, town.conn, after, by=booking.worker_user)
    assert (town.status(booking), town.row("insurance_policies", policy)["is_active"]) == ("Active", True)


@pytest.mark.rule("STAFF-4.13", "STAFF-4.17")
def test_a_type_is_covered_by_any_valid_policy_of_it_and_only_what_is_on_record_binds() -> None:
    def policy(
        id_: int, company: int = 1, type_: str = "Liability", active: bool = True, left: int = 0
    ) -> rules.Policy:
        return rules.Policy(
            id=id_, company_id=company, policy_type=type_, is_active=active, expiration_date=JUNE + left * DAY
        )

    def missing(*policies: rules.Policy) -> int | None:
        found = rules.uncovered(policies, JUNE)
        return found.id if found else None

    assert missing() is None
    assert missing(policy(1)) is None
    assert missing(policy(1, left=-1)) == 1
    assert missing(policy(1, active=False, left=9)) == 1
    assert missing(policy(1, left=-1), policy(2, left=9)) is None
    assert missing(policy(1, left=-1), policy(2, company=2)) == 1
    assert missing(policy(1, left=-1), policy(2, type_="Accident")) == 1


# -- renewal


@pytest.mark.rule("STAFF-4.21", "STAFF-4.22", "STAFF-4.24")
def test_a_dispute_lives_on_while_suspended_and_renewal_only_pauses_payment(town: Town) -> None:
    booking, policy = expiring(town, shifts=[MONDAY, MONDAY + DAY])
    shift, later = booking.shifts
    town.funded(booking)
    dispute = _disputed(town, booking, shift)
    filed = town.now
    stop(town, policy)
    assert town.status(booking) == "Suspended_Insurance"
    assert town.row("disputes", dispute)["status"] == "Open"
    assert [due for _, due, key in town.waiting() if key == f"dispute-timeout:{dispute}"] == [
        filed + timedelta(hours=3)
    ]

    renew(town, policy)
    assert town.status(booking) == "Payment_Paused_Dispute"
    town.mainspring.clock.set(at("2026-06-02T13:00"))
    with pytest.raises(Refused, match="a dispute was open when the insurance was renewed"):
        shifts.clock_in(town.desk, town.conn, later, by=booking.worker_user)
    assert town.shift_status(later) == "Scheduled"


@pytest.mark.rule("STAFF-4.21")
def test_the_timeout_of_a_dispute_comes_though_the_booking_is_suspended(town: Town) -> None:
    booking, policy = expiring(town, shifts=[MONDAY])
    town.funded(booking)
    dispute = _disputed(town, booking, booking.shifts[0])
    filed = town.now
    stop(town, policy)
    town.mainspring.clock.set(filed + timedelta(hours=3))
    town.mainspring.drain()
    assert town.row("disputes", dispute)["timed_out_at"] == filed + timedelta(hours=3)
    assert town.status(booking) == "Suspended_Insurance"


@pytest.mark.rule("STAFF-4.23", "STAFF-4.25")
def test_disputes_that_end_while_suspended_leave_it_so_and_renewal_makes_it_active(town: Town) -> None:
    booking, policy = expiring(town, shifts=[MONDAY])
    town.funded(booking)
    dispute = _disputed(town, booking, booking.shifts[0])
    stop(town, policy)
    with town.conn.transaction():
        disputes.resolve_dispute(
            town.desk, town.conn, dispute, status="Settled", lender_minor=24000, borrower_minor=0, by=town.operator
        )
    town.mainspring.drain()
    assert town.status(booking) == "Suspended_Insurance"

    renew(town, policy, by=booking.lending_admin)

    assert town.status(booking) == "Active"
    assert town.row("bookings", booking.id)["status_before_suspension"] is None
    assert town.audit("booking_resumed") == [(str(booking.lending_admin), "booking", booking.id, "renewed", None)]


@pytest.mark.rule("STAFF-4.22", "STAFF-4.23")
@pytest.mark.parametrize(
    ("before", "option_a", "after"),
    [
        ("Active", False, "Active"),
        ("Active", True, "Payment_Paused_Dispute"),
        ("Payment_Paused_Dispute", False, "Active"),
        ("Disputed", False, "Active"),
        ("Completed", False, "Completed"),
        ("Completed", True, "Completed"),
    ],
)
def test_where_a_suspended_booking_goes_on(before: str, option_a: bool, after: str) -> None:
    assert rules.restored(before, option_a=option_a) == after


@pytest.mark.rule("STAFF-4.26")
def test_renewal_charges_the_week_that_went_unpaid_meanwhile_once(town: Town) -> None:
    booking, policy = expiring(town, shifts=1)
    other = town.policy(booking.borrower, date(2026, 12, 1), policy_type="Accident")
    stop(town, policy)
    stop(town, other)
    town.mainspring.clock.set(W10 - SECOND)
    town.mainspring.drain()
    town.mainspring.advance(to=W10)
    town.mainspring.clock.set(T00 + timedelta(hours=9))

    with pytest.raises(Refused, match="expiration_date: 2026-06-03 has passed"):
        renew(town, policy, date(2026, 6, 3))
    renew(town, policy)
    assert town.status(booking) == "Suspended_Insurance"  # the other one is still missing
    renew(town, other)
    renew(town, other)
    town.mainspring.advance(seconds=10)

    assert town.status(booking) == "Active"
    found = town.rows("select source, status, period_start from staffing.pending_payments")
    assert found == [("renewal", "Succeeded", NEXT_WEEK[0])]


# -- when things fail


@pytest.mark.rule("STAFF-4.29", "STAFF-4.30", "STAFF-15.07")
def test_no_message_needs_to_arrive_for_the_stop_and_operations_hear_what_did_not(town: Town) -> None:
    booking, policy = expiring(town)
    warned = town.policy(booking.borrower, EXPIRES + 2 * DAY, policy_type="Accident")
    for provider in ("twilio", "smtp"):
        town.sandbox.faults.set(Fault(provider=provider, kind="error"))
    night_of = night(EXPIRES + DAY)
    town.mainspring.clock.set(night_of - SECOND)
    assert town.measured("staffing_policies_near_expiry") == [("7", 2)]
    assert [town.wrong(name) for name in ("expired_policy_active", "insurance_warning_unsent")] == [[], []]

    town.mainspring.advance(to=night_of, raise_errors=False)
    assert not town.row("insurance_policies", policy)["is_active"]
    assert town.status(booking) == "Suspended_Insurance"
    assert town.value("select threshold from staffing.insurance_warnings where policy_id = %s", warned) == 7

    town.mainspring.clock.set(night_of + timedelta(hours=1) - SECOND)
    assert town.wrong("insurance_warning_unsent") == []
    town.mainspring.clock.set(night_of + timedelta(hours=1))
    admins = {booking.borrowing_admin, booking.lending_admin}
    assert {text for _, text in town.wrong("insurance_warning_unsent")} == {
        f"insurance_7 to user {who} by {how} is not sent" for who in admins for how in ("email", "sms")
    }


@pytest.mark.rule("STAFF-4.29")
def test_what_goes_wrong_while_messages_are_asked_for_undoes_no_deactivation(
    town: Town, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    booking, policy = expiring(town)

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("no template is called so")

    with monkeypatch.context() as patch:
        patch.setattr(type(town.desk), "tell", fails)
        town.mainspring.run_one(insurance.look_at_policy.job(policy_id=policy, instant=night(EXPIRES + DAY)))

    assert not town.row("insurance_policies", policy)["is_active"]
    assert [key for _, _, key in town.waiting("stop_booking")] == [f"insurance-stop:{booking.id}"]
    assert f"nobody was told of policy {policy}: RuntimeError" in caplog.messages


@pytest.mark.rule("STAFF-4.30")
def test_the_gauge_of_policies_near_expiry_counts_each_by_the_warning_that_it_is_due(town: Town) -> None:
    lender = town.company("Lender")
    for left in (-1, 0, 7, 8, 14, 15):
        town.policy(lender, JUNE + left * DAY, policy_type=f"T{left}")
    town.policy(lender, JUNE, policy_type="withdrawn", is_active=False)
    assert town.measured("staffing_policies_near_expiry") == [("14", 2), ("7", 2)]


@pytest.mark.rule("STAFF-4.28")
def test_a_warning_that_cannot_be_delivered_is_tried_ever_later_then_a_person_is_asked(town: Town) -> None:
    lender = town.company("Lender")
    admin = town.user(lender, "Admin", quiet_hours_start=time(0), quiet_hours_end=time(0))
    policy = town.policy(lender, JUNE + 7 * DAY)
    town.sandbox.faults.set(Fault(provider="twilio", kind="error"))
    town.mainspring.run_one(insurance.look_at_policy.job(policy_id=policy, instant=night(JUNE)))
    tries = deliver(town)

    gaps = [later - sooner for sooner, later in pairwise(tries)]
    assert len(tries) == 6
    assert gaps == sorted(gaps)
    assert town.messages() == [("insurance_7", admin, "email", "Sent"), ("insurance_7", admin, "sms", "Failed")]
    assert [text for _, text in town.wrong("insurance_delivery")] == [f"insurance_7 to user {admin} by sms"]


@pytest.mark.rule("STAFF-4.30", "STAFF-15.07")
def test_policies_that_the_night_has_not_dealt_with_are_seen_an_hour_later(town: Town) -> None:
    lender = town.company("Lender")
    policy = town.policy(lender, EXPIRES)
    night_of = night(EXPIRES + DAY)
    town.mainspring.clock.set(night_of - SECOND)
    assert town.measured("staffing_policies_near_expiry") == [("7", 1)]
    town.mainspring.client.enqueue(insurance.look_at_policy.job(policy_id=policy, instant=night_of))
    town.mainspring.clock.set(night_of + timedelta(hours=1) - MINUTE)
    assert [town.wrong(name) for name in ("expired_policy_active", "insurance_warning_unsent")] == [[], []]

    town.mainspring.clock.set(night_of + timedelta(hours=1))

    expired = [(f"policy {policy}", f"expired on {EXPIRES} and is still active")]
    assert town.wrong("expired_policy_active") == expired
    assert town.wrong("insurance_warning_unsent") == [(f"policy {policy}", "the nightly run has not looked at it")]


@pytest.mark.rule("STAFF-17.10", "STAFF-17.02")
def test_the_nightly_run_reads_no_more_than_a_thousand_policies_at_a_time(town: Town) -> None:
    lender = town.company("Lender")
    town.conn.execute(
        "insert into staffing.insurance_policies (company_id, expiration_date, policy_type)"
        " select %s, '2026-06-10', 'T' || n from generate_series(1, 10000) n", [lender],
    )  # fmt: skip
    (schedule,) = [one for one in tasks.bound(town.desk).schedules() if one.name == "insurance-monitoring"]
    assert (schedule.page, schedule.within) == (1000, DAY)
    pages, after = [], None
    about: dict[str, Any] = {"limit": schedule.page, "until": JUNE + timedelta(days=14)}
    while page := store.column(town.conn, "ending_policies", after=after, **about):
        pages.append(len(page))
        after = page[-1]
    assert pages == [1000] * 10
    indexes = {row[0] for row in town.rows("select indexdef from pg_indexes where tablename = 'insurance_policies'")}
    assert any("(company_id, is_active, expiration_date)" in one for one in indexes)
    assert any("(expiration_date, id) WHERE is_active" in one for one in indexes)


@pytest.mark.rule("STAFF-17.10")
def test_a_company_with_many_bookings_is_stopped_page_by_page(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    assert town.desk.settings.scan_rows == 1000
    monkeypatch.setitem(vars(town.desk), "settings", Settings(scan_rows=2))
    first, policy = expiring(town)
    same: dict[str, Any] = {
        "borrower": first.borrower,
        "lender": first.lender,
        "worker": first.worker,
        "insured": False,
    }
    rest = [town.booking(**same) for _ in range(4)]
    with town.conn.transaction():
        insurance.deactivate_insurance(town.desk, town.conn, policy, by=town.admin_of("insurance_policies", policy))
    keys = [key for _, _, key in town.waiting("stop_booking")]
    assert sorted(keys, key=str) == [f"insurance-stop:{booking.id}" for booking in (first, *rest)]


@pytest.mark.rule("STAFF-17.12", "STAFF-17.13")
def test_a_policy_that_cannot_be_dealt_with_stands_alone_and_the_others_are_done(town: Town) -> None:
    lender = town.company("Lender")
    town.user(lender, "Admin")
    policies = [town.policy(lender, EXPIRES, policy_type=f"T{n}") for n in range(4)]
    town.conn.execute(
        "create function public.fail() returns trigger language plpgsql as $$ begin"
        f" if new.policy_id = {policies[1]:d} then raise exception 'a bad row'; end if; return new; end $$".encode()
    )
    town.conn.execute(
        "create trigger fail before insert on staffing.insurance_warnings for each row execute function public.fail()"
    )
    town.mainspring.clock.set(night(date(2026, 6, 2)) - SECOND)

    town.mainspring.advance(seconds=2, raise_errors=False)

    done = [row[0] for row in town.rows("select policy_id from staffing.insurance_warnings order by 1")]
    assert done == [policies[0], *policies[2:]]
    assert town.rows("select payload -> 'policy_id' from mainspring.jobs where task = 'look_at_policy'"
                     " and state = 'retrying'") == [(policies[1],)]  # fmt: skip


def _disputed(town: Town, booking: Booking, shift: int) -> int:
    """The shift was worked, and its timesheet is disputed, option A."""
    town.mainspring.clock.set(at("2026-06-01T13:00"))
    with town.conn.transaction():
        shifts.clock_in(town.desk, town.conn, shift, by=booking.worker_user)
    town.mainspring.clock.set(at("2026-06-01T21:00"))
    assert booking.supervisor is not None
    with town.conn.transaction():
        shifts.submit_timesheet(town.desk, town.conn, shift, by=booking.worker_user)
        return disputes.file_dispute(town.desk, town.conn, shift, option="A", by=booking.supervisor)
