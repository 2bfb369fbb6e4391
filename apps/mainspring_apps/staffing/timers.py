"""The timers of a marketplace, by the rows that they belong to."""

from __future__ import annotations

from typing import Final

from mainspring_apps.frame.timers import cancel as cancel
from mainspring_apps.frame.timers import key as key
from mainspring_apps.frame.timers import start as start
from mainspring_apps.frame.timers import try_start as try_start

REMINDER_TIMERS: Final = ("reminder-5m", "reminder-30m")
LADDER_TIMERS: Final = ("ladder-0", "ladder-60m", "ladder-3h")
AUTO_APPROVAL_TIMER: Final = "auto-approve"
NO_SHOW_TIMER: Final = "no-show"
OF_SHIFT: Final = (*REMINDER_TIMERS, *LADDER_TIMERS, AUTO_APPROVAL_TIMER, NO_SHOW_TIMER)
DISPUTE_TIMEOUT_TIMER: Final = "dispute-timeout"
UPFRONT_TIMER: Final = "upfront"
RECONCILIATION_TIMER: Final = "reconcile_payment"  # the key of its task, so that a sweep leaves alone what has a timer
