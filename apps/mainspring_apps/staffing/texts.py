"""What the marketplace says to people, word for word where the source gives the words (STAFF-14.13)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Final

from mainspring.contrib.notify import Template
from mainspring_apps.frame import catalogue
from mainspring_apps.frame.setting import weekday
from mainspring_apps.frame.values import DayOfWeek, Phrase, Value
from mainspring_apps.staffing.languages import SPOKEN
from mainspring_apps.staffing.settings import Settings

BOTH: Final = ("sms", "email")
RELEASE_REASON: Final = "Weekly Payment Hard Cutoff - Worker Released"
NOT_CONFIRMED_REASON: Final = "Upfront Payment - Booking Not Confirmed"

DIGEST_TEXT: Final = """{% for part in parts %}{{ part.name }}
{% if part.workers %}{% for worker in part.workers %}- {{ worker.trade }}, {{ worker.zip_code }}: {{ worker.link }}
{% endfor %}{% else %}No new workers match your saved search criteria
{% endif %}
{% endfor %}{% if opt_out %}Unsubscribe from digests: {{ opt_out }}
{% endif %}"""
ALERT_TEXT: Final = """A new worker matches your saved search {{ Search }}: {{ Link }}{% if opt_out %}
Unsubscribe from these alerts: {{ opt_out }}{% endif %}"""

# What stands in braces are numbers of the settings, in brackets the values of one message. Each text has its line in
# every catalogue of `languages`, where `make texts` puts what is new.
# Critical: rings in the night (STAFF-14.06). Time-bound: later is useless (14.07). Normal: an SMS waits for the
# morning (14.08).
_ENGLISH: Final = (
    Template(
        "action_required",
        "Action Required",
        "Action Required: the weekly payment of [Amount] for booking [ID] failed. Please pay manually before [Cutoff], "
        "with another payment method if necessary.",
        channels=BOTH,
        style="brackets",
    ),
    Template(
        "arrears_failed",
        "Action Required",
        "Action Required: the payment of [Amount] for work already done on booking [ID] failed. Please pay manually, "
        "with another payment method if necessary.",
        channels=BOTH,
        style="brackets",
    ),
    Template(
        "not_confirmed",
        "Action Required",
        "Action Required: booking [ID] was not confirmed because its payment of [Amount] did not go through. Please "
        "book again, with another payment method if necessary.",
        channels=BOTH,
        style="brackets",
    ),
    Template(
        "final_warning",
        "Final warning",
        "Payment required for booking [ID]. Final warning - payment must be completed by {cutoff} to avoid worker "
        "release.",
        class_="time_bound",
        channels=BOTH,
        style="brackets",
    ),
    Template(
        "late_warning",
        "Final warning",
        "Payment required for booking [ID]. Final warning - payment must be completed by [Cutoff] to avoid worker "
        "release.",
        class_="time_bound",
        channels=BOTH,
        style="brackets",
    ),
    Template(
        "refund_made",
        "Refund",
        "[Amount] for booking [ID] is being refunded to the original payment method.",
        channels=("email",),
        style="brackets",
    ),
    Template(
        "transfer_reversed",
        "Payment reversed",
        "A payment of [Amount] for booking [ID] was taken back: [Reason]",
        channels=("email",),
        style="brackets",
    ),
    Template(
        "worker_released",
        "Worker Released",
        "Booking [ID] ended due to non-payment. Worker released effective [Sunday date].",
        channels=BOTH,
        style="brackets",
    ),
    Template(
        "insurance_expired",
        "Insurance expired",
        "The [Policy type] insurance of [Company] has expired: work was allowed until [Date], but not beyond "
        "[End]. Bookings that depend on it are suspended.",
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
        "URGENT: Clock Out. Your scheduled shift ended {reminder} ago.",
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
        "Timesheet pending verification for [Worker]. Please verify within {approval}.",
        class_="time_bound",
        channels=("sms",),
        style="brackets",
    ),
    Template(
        "ladder_3h",
        "Timesheet will auto-approve",
        "URGENT: Timesheet for [Worker] will auto-approve in {left} if not verified.",
        class_="time_bound",
        channels=("sms",),
        style="brackets",
    ),
    Template(
        "auto_approved",
        "Timesheet auto-approved",
        "Timesheet auto-approved after {approval}. Supervisor did not verify within required timeframe.",
        channels=("sms",),
        style="brackets",
    ),
    Template(
        "extra_time",
        "Extra time to confirm",
        "[Worker] worked [Minutes] longer than planned on [Date] (booking [ID]). This time is paid only if you confirm "
        "it: [Link]",
        channels=BOTH,
        style="brackets",
    ),
    Template(
        "extra_time_unpaid",
        "Extra time not confirmed",
        "[Worker] worked [Minutes] longer than planned on [Date] (booking [ID]). This time is not paid unless the "
        "borrower confirms it.",
        channels=BOTH,
        style="brackets",
    ),
    Template(
        "hours_cut",
        "Working time changed",
        "Your working time on [Date] (booking [ID]) was cut: it now ends at [End]. If you do not agree, dispute the "
        "timesheet: [Link]",
        class_="time_bound",
        channels=BOTH,
        style="brackets",
    ),
    Template(
        "dispute_filed",
        "Dispute filed",
        "A dispute has been filed about the shift on [Date] (booking [ID]). The money for it is frozen until the "
        "dispute is resolved.",
        class_="time_bound",
        channels=BOTH,
        style="brackets",
    ),
    Template(
        "unpaid_dispute_filed",
        "Dispute filed",
        "A dispute has been filed about the shift on [Date] (booking [ID]). No money is held for it now; what comes "
        "for it is frozen until the dispute is resolved.",
        class_="time_bound",
        channels=BOTH,
        style="brackets",
    ),
    Template(
        "settlement_proposed",
        "Settlement proposed",
        "[Company] proposes to settle the dispute about the shift on [Date] (booking [ID]): [To lender] to the lender "
        "and [To borrower] back to the borrower. It is settled as soon as both sides propose the same.",
        class_="time_bound",
        channels=BOTH,
        style="brackets",
    ),
    Template(
        "unpaid_settlement_proposed",
        "Settlement proposed",
        "[Company] proposes to settle the dispute about the shift on [Date] (booking [ID]): the lender gets [To "
        "lender], and [To borrower] is not charged, or goes back if it was. It is settled as soon as both sides "
        "propose the same.",
        class_="time_bound",
        channels=BOTH,
        style="brackets",
    ),
    Template(
        "dispute_settled",
        "Dispute settled",
        "The dispute about the shift on [Date] (booking [ID]) is over: [To lender] goes to the lender and [To "
        "borrower] back to the borrower.",
        channels=BOTH,
        style="brackets",
    ),
    Template(
        "unpaid_dispute_settled",
        "Dispute settled",
        "The dispute about the shift on [Date] (booking [ID]) is over: the lender gets [To lender], and [To borrower] "
        "is not charged, or goes back if it was.",
        channels=BOTH,
        style="brackets",
    ),
    Template(
        "dispute_over",
        "Dispute over",
        "The dispute about the shift on [Date] (booking [ID]) is over.",
        channels=BOTH,
        style="brackets",
    ),
    Template(
        "dispute_on_hold",
        "Dispute on legal hold",
        "The dispute about the shift on [Date] (booking [ID]) is on legal hold. The money for it stays frozen until a "
        "decision is made.",
        channels=BOTH,
        style="brackets",
    ),
    Template(
        "dispute_timeout",
        "Dispute unresolved",
        "Dispute unresolved after {dispute}. All future shifts cancelled until dispute is resolved.",
        class_="time_bound",
        channels=BOTH,
        style="brackets",
    ),
    Template(
        "no_show",
        "Shift not worked",
        "Nobody clocked in for the shift on [Date] (booking [ID]). It is not paid, and the money held for it is being "
        "refunded to the borrower.",
        channels=BOTH,
        style="brackets",
    ),
    Template(
        "shift_shortened",
        "Shift shortened",
        "The shift on [Date] (booking [ID]) has been shortened. It now ends at [End].",
        class_="time_bound",
        channels=BOTH,
        style="brackets",
    ),
    Template(
        "shifts_shortened",
        "Shifts shortened",
        "From [Date] on, the shifts of booking [ID] have been shortened. They now end at [Time].",
        class_="time_bound",
        channels=BOTH,
        style="brackets",
    ),
    Template(
        "shift_end_changed",
        "End of a shift changed",
        "The shift on [Date] (booking [ID]) now ends at [End].",
        class_="time_bound",
        channels=BOTH,
        style="brackets",
    ),
    Template(
        "shifts_end_changed",
        "End of shifts changed",
        "From [Date] on, the shifts of booking [ID] now end at [Time].",
        class_="time_bound",
        channels=BOTH,
        style="brackets",
    ),
    Template(
        "shift_cancelled",
        "Shift cancelled",
        "The shift on [Date] (booking [ID]) has been cancelled. It will not take place.",
        class_="time_bound",
        channels=BOTH,
        style="brackets",
    ),
    Template(
        "booking_cancelled",
        "Booking cancelled",
        "Booking [ID] has been cancelled. Shifts that have not started will not take place.",
        class_="time_bound",
        channels=BOTH,
        style="brackets",
    ),
    Template("instant_alert", "New worker", ALERT_TEXT, channels=BOTH),
    Template("digest", "New workers for your saved searches", DIGEST_TEXT, channels=("email",)),
    Template(
        "search_deactivated",
        "Saved search switched off",
        "Your saved search [Search] found no workers for [Days] days and has been switched off.",
        channels=("email",),
        style="brackets",
    ),
)
#: Of a policy that ends; the last one says what follows, and says it by SMS as well.
_WARNING: Final = Template(
    "insurance",
    "Insurance expires in {left}",
    "The [Policy type] insurance of [Company] is about to expire. It covers work until [Date], by the clocks of each "
    "project, but not beyond [End]. Please renew it.",
    channels=("email",),
    style="brackets",
)
_LAST_WARNING: Final = Template(
    "insurance",
    "Insurance expires in {left}",
    "The [Policy type] insurance of [Company] is about to expire. Unless it is renewed, work is allowed until [Date], "
    "by the clocks of each project, and must stop at [End] at the latest.",
    channels=BOTH,
    style="brackets",
)
#: The cutoff, after "by": midnight is the end of the day before.
_END_OF_DAY: Final = "end of day {day}"
_AT_TIME: Final = "{day} {at}"


def templates(s: Settings) -> tuple[Template, ...]:
    """Every message, in every language. Where the settings are those of the source, the words are."""
    numbers: dict[str, Value] = {
        "cutoff": _deadline(s),
        "reminder": s.reminder_b,
        "approval": s.auto_approval,
        "left": s.auto_approval - s.ladder[-1],
        "dispute": s.dispute_timeout,
    }
    return (*SPOKEN.translated(_ENGLISH, numbers), *_insurance_warnings(s))


def texts() -> list[str]:
    """All that is said in English, as translators find it."""
    return catalogue.texts((*_ENGLISH, _WARNING, _LAST_WARNING), (_END_OF_DAY, _AT_TIME))


def insurance_warning(threshold: int) -> str:
    """The kind of the warning that a policy ends in so many days."""
    return f"insurance_{threshold}"


def _insurance_warnings(s: Settings) -> Iterator[Template]:
    for threshold in s.insurance_thresholds:
        warning = _LAST_WARNING if threshold == s.insurance_thresholds[-1] else _WARNING
        named = replace(warning, name=insurance_warning(threshold))
        yield from SPOKEN.translated([named], {"left": timedelta(days=threshold)})


def _deadline(s: Settings) -> Phrase:
    day = weekday(s.cutoff_day)
    if s.cutoff_at == "00:00":
        return Phrase(_END_OF_DAY, {"day": DayOfWeek((day - 1) % 7)})
    return Phrase(_AT_TIME, {"day": DayOfWeek(day), "at": s.cutoff_at})
