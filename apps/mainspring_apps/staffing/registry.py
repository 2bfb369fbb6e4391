"""The marketplace's tasks as they are declared, and its queues."""

from __future__ import annotations

from typing import Final

import mainspring as ms
from mainspring.limit import Limit
from mainspring.retry import Retry
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.settings import Settings
from mainspring_apps.tasks import Tasks

tasks = Tasks[Desk](
    "staffing", retry=lambda desk: desk.settings.retry, timeout=lambda desk: desk.settings.task_timeout
)  # fmt: skip

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


def few_tries(desk: Desk) -> Retry:
    """How a task is tried again whose result is useless later."""
    return desk.settings.few_tries


def limits(settings: Settings) -> list[Limit]:
    """Every queue whose jobs call somebody outside has a rate and a limit of jobs at once (STAFF-0.03)."""
    return [
        limit
        for queues, rate, at_once in (
            ((WEEKLY_PAYMENTS, FINAL_WARNING, HARD_CUTOFF), settings.charges_per_second, settings.charges_at_once),
            ((PAYMENT_RETRY,), settings.retries_per_second, settings.retries_at_once),
            ((LENDER_TRANSFERS, REFUNDS), settings.movements_per_second, settings.movements_at_once),
            ((RECONCILIATION_QUEUE,), settings.questions_per_second, settings.questions_at_once),
            ((NOTIFICATIONS,), settings.messages_per_second, settings.messages_at_once),
        )
        for queue in queues
        for limit in (ms.rate(queue, rate, per="1s"), ms.concurrency(queue, at_once))
    ]
