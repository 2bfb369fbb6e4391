"""What the marketplace says to people, word for word where the source gives the words (STAFF-14.13)."""

from __future__ import annotations

from typing import Final

from mainspring.contrib.notify import Template

BOTH: Final = ("sms", "email")
RELEASE_REASON: Final = "Weekly Payment Hard Cutoff - Worker Released"
NOT_CONFIRMED_REASON: Final = "Upfront Payment - Booking Not Confirmed"

DIGEST_TEXT: Final = """{% for part in parts %}{{ part.name }}
{% if part.workers %}{% for worker in part.workers %}- {{ worker.trade }}, {{ worker.zip_code }}: {{ worker.link }}
{% endfor %}{% else %}No new workers match your saved search criteria
{% endif %}
{% endfor %}"""

# Critical: rings in the night (STAFF-14.06). Time-bound: later is useless (14.07). Normal: an SMS waits for the
# morning (14.08).
TEMPLATES: Final = (
    Template(
        "action_required",
        "Action Required",
        "Action Required: the weekly payment of [Amount] for booking [ID] failed. Please pay by hand before the end of "
        "Wednesday, if need be with another payment method.",
        channels=BOTH,
        style="brackets",
    ),
    Template(
        "arrears_failed",
        "Action Required",
        "Action Required: the payment of [Amount] for work that was done on booking [ID] failed. Please pay by hand, "
        "if need be with another payment method.",
        channels=BOTH,
        style="brackets",
    ),
    Template(
        "not_confirmed",
        "Action Required",
        "Action Required: booking [ID] is not confirmed, as its payment of [Amount] did not come. Please book again, "
        "if need be with another payment method.",
        channels=BOTH,
        style="brackets",
    ),
    Template(
        "final_warning",
        "Final warning",
        "Payment required for booking [ID]. Final warning - payment must be completed by end of day Wednesday to avoid "
        "worker release.",
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
    Template(
        "worker_released",
        "Worker Released",
        "Booking [ID] ended due to non-payment. Worker released effective [Sunday date].",
        channels=BOTH,
        style="brackets",
    ),
    Template(
        "insurance_14",
        "Insurance expires in 14 days",
        "The [Policy type] insurance of [Company] expires on [Date]. Please renew it.",
        channels=("email",),
        style="brackets",
    ),
    Template(
        "insurance_7",
        "Insurance expires in 7 days",
        "The [Policy type] insurance of [Company] expires on [Date]. Without renewal, work stops on that day.",
        channels=BOTH,
        style="brackets",
    ),
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
        "URGENT: Clock Out. Your scheduled shift ended 30 minutes ago.",
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
        "Timesheet pending verification for [Worker]. Please verify within 4 hours.",
        class_="time_bound",
        channels=("sms",),
        style="brackets",
    ),
    Template(
        "ladder_3h",
        "Timesheet will auto-approve",
        "URGENT: Timesheet for [Worker] will auto-approve in 1 hour if not verified.",
        class_="time_bound",
        channels=("sms",),
        style="brackets",
    ),
    Template(
        "auto_approved",
        "Timesheet auto-approved",
        "Timesheet auto-approved after 4 hours. Supervisor did not verify within required timeframe.",
        channels=("sms",),
        style="brackets",
    ),
    Template(
        "dispute_timeout",
        "Dispute unresolved",
        "Dispute unresolved after 3 hours. All future shifts cancelled until dispute is resolved.",
        class_="time_bound",
        channels=BOTH,
        style="brackets",
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
        "instant_alert",
        "New worker",
        "A new worker matches your saved search [Search]: [Link]",
        channels=BOTH,
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
