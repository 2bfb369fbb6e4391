"""Every number and choice that the source leaves open or that somebody may want to change, in one place (G-66)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal

import mainspring as ms

# -- weekly payments
PLATFORM_FEE_BPS: Final = 0
ENQUEUEING_PAGE: Final = 100  # bookings of one page of enqueueing (STAFF-17.08)
CHARGES_PER_SECOND: Final = 50
RETRIES_PER_SECOND: Final = 10  # of payments after a resolution (STAFF-11.06)
STALE_AFTER: Final = timedelta(minutes=15)  # what is under way for longer is asked for at the provider (STAFF-19.08)
RECONCILE_AFTER: Final = timedelta(minutes=16)  # by a timer of its own,
RECONCILE_EVERY: Final = timedelta(hours=1)  # or, where that is missing, by a sweep
ASK_AGAIN: Final = timedelta(minutes=15)  # at the cutoff, while the provider says processing (STAFF-3.08)
ASK_TIMES: Final = 4
UNFUNDED_NOTICE: Final = timedelta(hours=24)  # STAFF-1.42
LATE_WARNING: Final = timedelta(hours=10)  # before a cutoff that was moved (STAFF-3.26)
LATE_GRACE: Final = timedelta(minutes=5)  # a late charge has so long to succeed before anybody is warned

# -- cancellation penalties: formula P
NOTICE_HOURS: Final = 24
SHORT_TERM_PENALTY_BPS: Final = 5000
LONG_TERM_NOTICE_HOURS: Final = 24
LONG_TERM_PENALTY_BPS: Final = 10000

# -- bookings
HIGHEST_RATE: Final = 1_000_000  # minor units an hour: what more would cost a week, no card pays at once
OPEN_SHIFT: Final = timedelta(hours=8)  # how long a shift is planned whose end nobody knows
LONGEST_BOOKING: Final = timedelta(days=366)
EARLIEST_BOOKING: Final = timedelta(days=366)  # so long ahead a booking may begin

# -- timesheets
REMINDER_A: Final = timedelta(minutes=5)
REMINDER_B: Final = timedelta(minutes=30)
AUTO_APPROVAL: Final = timedelta(hours=4)
LADDER: Final = (timedelta(0), timedelta(minutes=60), timedelta(hours=3))
LATE_EDIT: Final = timedelta(hours=1)  # with less left than this a supervisor's edit adds as much
MAX_EDIT_EXTENSIONS: Final = 4
#: The release comes this much after an approval: a dispute filed at the same instant is then known (G-36).
RELEASE_DELAY: Final = timedelta(seconds=1)

# -- disputes
DISPUTE_TIMEOUT: Final = timedelta(hours=3)

# -- insurance
INSURANCE_THRESHOLDS: Final = (14, 7)
CLOCK_IN_NEEDS_NO_DISPUTE_AFTER_RENEWAL: Final = False  # G-23
SCAN_ROWS: Final = 1000  # rows of one statement of nightly runs and sweeps (STAFF-17.10)

# -- saved searches
SEARCH_BATCH: Final = 50
INSTANT_ALERTS_PER_USER_PER_HOUR: Final = 10
ZERO_RESULT_LIMIT: Final = 30
QUERY_RETRIES: Final = 3
FAILOVER_WINDOW: Final = timedelta(minutes=30)
EXTENSION_WINDOW: Final = timedelta(hours=1)

# -- magic links
MAGIC_LINK_DELETE_BATCH: Final = 1000
MAGIC_LINK_UNUSED: Final = timedelta(hours=24)

# -- all jobs
ALERT_MIN_SAMPLE: Final = 20  # fewer say nothing about a share (G-55)
FAILED_PAYMENTS_PERCENT: Final = 5  # of a run's payments; more is an alert (STAFF-15.06)
RETRIED_JOBS_PERCENT: Final = 20  # of the jobs of an hour (STAFF-15.11)
DEAD_LETTERS: Final = 100  # STAFF-15.09
LATE_START: Final = timedelta(minutes=5)  # STAFF-15.10
STANDSTILL_AFTER: Final = timedelta(days=1)  # money that waits longer than this for what should have happened is told
NIGHT_IS_OVER: Final = timedelta(hours=1)  # after its instant, what a nightly run was to do is done (STAFF-15.07)
TASK_TIMEOUT: Final = timedelta(minutes=5)  # STAFF-17.11
RETRY: Final = ms.exponential(base=30, factor=2, cap=3600, jitter="spread", attempts=6)  # STAFF-16.01: 5 retries
RETRY_THREE: Final = ms.exponential(base=30, factor=2, cap=3600, jitter="spread", attempts=4)

TransferTiming = Literal["on_verification", "on_webhook"]


@dataclass(frozen=True, slots=True)
class Settings:
    """What one marketplace may choose; see the constants of this module for what all share."""

    transfer_timing: TransferTiming = "on_verification"  # G-13
    deactivate_empty_searches: bool = False  # STAFF-7.14: built, off by default
    upfront_wait: timedelta = timedelta(hours=1)  # so long a worker waits for money to confirm a booking (STAFF-20.27)
    app_url: str = "https://app.example.com"  # where links in messages lead
    clock_in_early: timedelta = timedelta(minutes=60)  # before its planned start a shift can be begun (STAFF-20.05)
    clock_in_open: timedelta = timedelta(hours=24)  # after the start, where nobody knows the end (STAFF-20.05)
    longest_pause: timedelta = timedelta(minutes=10)  # STAFF-20.15: between two tries while the provider is away
    silence: timedelta = timedelta(minutes=30)  # STAFF-20.16: who is asked and silent for longer is away,
    answer_grace: timedelta = timedelta(hours=4)  # and nobody is released so soon after the provider is back
