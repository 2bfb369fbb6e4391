"""What the marketplace says to people, word for word where the source gives the words (STAFF-14.13)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from mainspring.contrib.notify import Template
from mainspring_apps.staffing.settings import Settings, weekday

BOTH: Final = ("sms", "email")
DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
RELEASE_REASON: Final = "Weekly Payment Hard Cutoff - Worker Released"
NOT_CONFIRMED_REASON: Final = "Upfront Payment - Booking Not Confirmed"

DIGEST_TEXT: Final = """{% for part in parts %}{{ part.name }}
{% if part.workers %}{% for worker in part.workers %}- {{ worker.trade }}, {{ worker.zip_code }}: {{ worker.link }}
{% endfor %}{% else %}No new workers match your saved search criteria
{% endif %}
{% endfor %}{% if opt_out %}No more digests: {{ opt_out }}
{% endif %}"""
ALERT_TEXT: Final = """A new worker matches your saved search {{ Search }}: {{ Link }}{% if opt_out %}
No more of these alerts: {{ opt_out }}{% endif %}"""


def templates(s: Settings) -> tuple[Template, ...]:
    """Every message. Where the settings are those of the source, the words are."""
    before, by = _deadline(s)
    approval, left = words(s.auto_approval), words(s.auto_approval - s.ladder[-1])
    # Critical: rings in the night (STAFF-14.06). Time-bound: later is useless (14.07). Normal: an SMS waits for the
    # morning (14.08).
    return (
        Template(
            "action_required",
            "Action Required",
            f"Action Required: the weekly payment of [Amount] for booking [ID] failed. Please pay by hand before "
            f"{before}, if need be with another payment method.",
            channels=BOTH,
            style="brackets",
        ),
        Template(
            "arrears_failed",
            "Action Required",
            "Action Required: the payment of [Amount] for work that was done on booking [ID] failed. Please pay by "
            "hand, if need be with another payment method.",
            channels=BOTH,
            style="brackets",
        ),
        Template(
            "not_confirmed",
            "Action Required",
            "Action Required: booking [ID] is not confirmed, as its payment of [Amount] did not come. Please book "
            "again, if need be with another payment method.",
            channels=BOTH,
            style="brackets",
        ),
        Template(
            "final_warning",
            "Final warning",
            f"Payment required for booking [ID]. Final warning - payment must be completed by {by} to avoid "
            "worker release.",
            class_="time_bound",
            channels=BOTH,
            style="brackets",
        ),
        Template(
            "worker_released",
            "Worker Released",
            "Booking [ID] ended due to non-payment. Worker released effective [Sunday date].",
            channels=BOTH,
            style="brackets",
        ),
        *_insurance_warnings(s),
        Template(
            "insurance_expired",
            "Insurance expired",
            "The [Policy type] insurance of [Company] expired on [Date]. Bookings that depend on it are suspended.",
            class_="critical",
            channels=BOTH,
            style="brackets",
        ),
        Template(
            "insurance_stop",
            "Insurance Invalid",
            "Insurance Invalid. Work must stop immediately. Please clock out worker.",
            class_="critical",
            channels=BOTH,
            style="brackets",
        ),
        Template(
            "reminder_5m",
            "Are you still working?",
            "Are you still working? Please clock out if your shift has ended.",
            class_="time_bound",
            channels=("sms",),
            style="brackets",
        ),
        Template(
            "reminder_30m",
            "Urgent: Clock Out.",
            f"URGENT: Clock Out. Your scheduled shift ended {words(s.reminder_b)} ago.",
            class_="time_bound",
            channels=("sms",),
            style="brackets",
        ),
        Template(
            "ladder_0",
            "Timesheet to verify",
            "Timesheet of [Worker] is ready to verify: [Link]",
            class_="critical",
            channels=("sms",),
            style="brackets",
        ),
        Template(
            "ladder_60m",
            "Timesheet pending verification",
            f"Timesheet pending verification for [Worker]. Please verify within {approval}.",
            class_="time_bound",
            channels=("sms",),
            style="brackets",
        ),
        Template(
            "ladder_3h",
            "Timesheet will auto-approve",
            f"URGENT: Timesheet for [Worker] will auto-approve in {left} if not verified.",
            class_="time_bound",
            channels=("sms",),
            style="brackets",
        ),
        Template(
            "auto_approved",
            "Timesheet auto-approved",
            f"Timesheet auto-approved after {approval}. Supervisor did not verify within required timeframe.",
            channels=("sms",),
            style="brackets",
        ),
        Template(
            "dispute_timeout",
            "Dispute unresolved",
            f"Dispute unresolved after {words(s.dispute_timeout)}. All future shifts cancelled until dispute is "
            "resolved.",
            class_="time_bound",
            channels=BOTH,
            style="brackets",
        ),
        Template(
            "instant_alert",
            "New worker",
            ALERT_TEXT,
            channels=BOTH,
        ),
        Template(
            "no_show",
            "Shift not begun",
            "Nobody began the shift of [Date] of booking [ID]. It is not paid, and what was held for it goes back.",
            channels=BOTH,
            style="brackets",
        ),
        Template(
            "shift_cancelled",
            "Shift cancelled",
            "The shift of [Date] of booking [ID] was cancelled. It does not take place.",
            class_="time_bound",
            channels=BOTH,
            style="brackets",
        ),
        Template(
            "booking_cancelled",
            "Booking cancelled",
            "Booking [ID] was cancelled. Its shifts that have not begun do not take place.",
            class_="time_bound",
            channels=BOTH,
            style="brackets",
        ),
        Template(
            "refund_made",
            "Refund",
            "[Amount] of booking [ID] is on its way back to the payment method that paid it.",
            channels=("email",),
            style="brackets",
        ),
        Template(
            "transfer_reversed",
            "Payment taken back",
            "A payment of [Amount] for booking [ID] was taken back by the platform: [Reason]",
            channels=("email",),
            style="brackets",
        ),
        Template("digest", "New workers for your saved searches", DIGEST_TEXT, channels=("email",)),
        Template(
            "search_deactivated",
            "Saved search switched off",
            "Your saved search [Search] found nobody for [Days] days and was switched off.",
            channels=("email",),
            style="brackets",
        ),
    )


def insurance_warning(threshold: int) -> str:
    """The kind of the warning that a policy ends in so many days."""
    return f"insurance_{threshold}"


def _insurance_warnings(s: Settings) -> Iterator[Template]:
    """One for each threshold; the last says what follows, and says it by SMS as well."""
    for threshold in s.insurance_thresholds:
        last = threshold == s.insurance_thresholds[-1]
        ask = "Without renewal, work stops on that day." if last else "Please renew it."
        yield Template(
            insurance_warning(threshold),
            f"Insurance expires in {words(timedelta(days=threshold))}",
            f"The [Policy type] insurance of [Company] expires on [Date]. {ask}",
            channels=BOTH if last else ("email",),
            style="brackets",
        )


def words(span: timedelta) -> str:
    """A time span in words.

    >>> words(timedelta(hours=4)), words(timedelta(minutes=90)), words(timedelta(days=14))
    ('4 hours', '1 hour 30 minutes', '14 days')
    """
    seconds, parts = int(span.total_seconds()), []
    for unit, size in (("hour", 3600), ("minute", 60), ("second", 1)) if seconds % 86_400 else (("day", 86_400),):
        number, seconds = divmod(seconds, size)
        parts += [f"{number} {unit}{'s' if number > 1 else ''}"] if number else []
    return " ".join(parts) or "0 seconds"


def _deadline(s: Settings) -> tuple[str, str]:
    """The cutoff in words, after "before" and after "by": midnight is the end of the day before."""
    day = DAYS[weekday(s.cutoff_day) - (s.cutoff_at == "00:00")]
    if s.cutoff_at == "00:00":
        return f"the end of {day}", f"end of day {day}"
    return f"{day} {s.cutoff_at}", f"{day} {s.cutoff_at}"
