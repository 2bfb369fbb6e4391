"""The marketplace's tasks as they are declared, and its queues."""

from __future__ import annotations

from typing import Final

import mainspring as ms
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.settings import CHARGES_PER_SECOND, RETRIES_PER_SECOND
from mainspring_apps.tasks import Tasks

tasks = Tasks[Desk]("staffing")

# Named by the source.
WEEKLY_PAYMENTS: Final = "weekly-payments"
TIMESHEET_NOTIFICATIONS: Final = "timesheet-notifications"
TIMESHEET_AUTO_APPROVAL: Final = "timesheet-auto-approval"
DISPUTE_TIMEOUT_QUEUE: Final = "dispute-timeout"
PAYMENT_RETRY: Final = "dispute-resolution-payment-retry"
# Named by us.
FINAL_WARNING: Final = "weekly-final-warning"
HARD_CUTOFF: Final = "weekly-hard-cutoff"
INSURANCE_MONITORING: Final = "insurance-monitoring"
INSURANCE_HARD_STOP: Final = "insurance-hard-stop"
INSTANT_QUEUE: Final = "saved-search-instant"
DIGEST_QUEUE: Final = "saved-search-digest"
REMINDERS_QUEUE: Final = "clock-out-reminders"
MAGIC_LINKS: Final = "magic-link-cleanup"
LENDER_TRANSFERS: Final = "lender-transfers"
REFUNDS: Final = "refunds"
NO_SHOWS: Final = "no-shows"
COMPLETION: Final = "booking-completion"
RECONCILIATION_QUEUE: Final = "payment-reconciliation"
NOTIFICATIONS: Final = "q:notifications"  # the engine's, where every message is delivered
PAYMENT_EVENTS_QUEUE: Final = "payment-events"  # what the provider tells: it calls nobody, and waits behind no limit

#: Every queue whose jobs call somebody outside has a rate and a limit of jobs at once (STAFF-0.03).
LIMITS: Final = (
    ms.rate(WEEKLY_PAYMENTS, CHARGES_PER_SECOND, per="1s"),
    ms.concurrency(WEEKLY_PAYMENTS, 20),
    ms.rate(PAYMENT_RETRY, RETRIES_PER_SECOND, per="1s"),
    ms.concurrency(PAYMENT_RETRY, 10),
    ms.rate(FINAL_WARNING, CHARGES_PER_SECOND, per="1s"),
    ms.concurrency(FINAL_WARNING, 20),
    ms.rate(HARD_CUTOFF, CHARGES_PER_SECOND, per="1s"),
    ms.concurrency(HARD_CUTOFF, 20),
    ms.rate(LENDER_TRANSFERS, 50, per="1s"),
    ms.concurrency(LENDER_TRANSFERS, 20),
    ms.rate(REFUNDS, 50, per="1s"),
    ms.concurrency(REFUNDS, 20),
    ms.rate(RECONCILIATION_QUEUE, 10, per="1s"),
    ms.concurrency(RECONCILIATION_QUEUE, 5),
    ms.rate(NOTIFICATIONS, 50, per="1s"),
    ms.concurrency(NOTIFICATIONS, 20),
)
