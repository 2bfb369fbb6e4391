"""Every number and choice that the source leaves open or that somebody may want to change, in one place (G-66).

`Settings` is what a marketplace works with: its defaults stand here, code may say otherwise, and what the environment
says wins (STAFF-20.21).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import time, timedelta
from itertools import pairwise
from typing import Any, Final, Literal

import mainspring as ms
from mainspring.retry import Retry
from mainspring.text.span import length
from mainspring_apps.frame.setting import Address, TimeOfDay, Weekday, rest_of_day, setting, weekday
from mainspring_apps.frame.settings import Choices

TransferTiming = Literal["on_verification", "on_webhook"]

_SECOND: Final = timedelta(seconds=1)
_MINUTE: Final = timedelta(minutes=1)
_DAY: Final = timedelta(days=1)
_LADDER: Final = (timedelta(0), timedelta(minutes=60), timedelta(hours=3))


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Choices):
    """What one marketplace chooses; a choice that makes no sense is refused at once, by its name and its variable's."""

    PREFIX = "STAFFING_"
    OTHERS = frozenset({"STAFFING_TOKEN", "STAFFING_LINK_SECRET"})  # secrets of the web

    # -- weekly payments, by the project's clocks
    charge_day: Weekday = setting("wed", "day of the week on which the coming week is charged")
    charge_at: TimeOfDay = setting("10:00", "time of that day")
    warn_day: Weekday = setting("wed", "day of the final warning; must come after the charge")
    warn_at: TimeOfDay = setting("14:00", "time of that day")
    cutoff_day: Weekday = setting("thu", "day on which an unpaid worker is released; must come after the warning")
    cutoff_at: TimeOfDay = setting("00:00", "time of that day")
    late_warning: timedelta = setting(length("10h"), "how long before a postponed cutoff it is announced (STAFF-3.26)")
    late_grace: timedelta = setting(length("5m"), "time that a late charge has to succeed before that warning")
    unfunded_notice: timedelta = setting(length("1d"), "how long before an unpaid shift the alert opens (STAFF-1.42)")
    platform_fee_bps: int = setting(0, "platform fee on top of each price, in basis points", most=10_000)
    transfer_timing: TransferTiming = setting("on_verification", "when lenders are paid, or `on_webhook` (G-13)")

    # -- what the provider has not answered
    ask_again: timedelta = setting(length("15m"), "how often Stripe is asked at the cutoff (STAFF-3.08)", least=_SECOND)
    ask_times: int = setting(4, "how many times, before the payment is given up")
    stale_after: timedelta = setting(length("15m"), "age at which the sweep asks about a pending payment (STAFF-19.08)")
    reconcile_after: timedelta = setting(length("16m"), "age at which the payment's own timer asks")
    reconcile_every: timedelta = setting(length("1h"), "how often that sweep runs", least=_MINUTE)
    longest_pause: timedelta = setting(
        length("10m"), "longest pause between tries while Stripe is away (STAFF-20.15)", least=_SECOND
    )
    silence: timedelta = setting(length("30m"), "silence after which Stripe counts as away (STAFF-20.16)")
    answer_grace: timedelta = setting(length("4h"), "time after its return without any release (STAFF-20.16)")
    upfront_wait: timedelta = setting(length("1h"), "how long an upfront booking waits for its money (STAFF-20.27)")
    unknown_payment_after: timedelta = setting(
        length("1h"), "how long a webhook may wait for the payment it is about; then it is a dead letter", least=_SECOND
    )
    account_wait: timedelta = setting(length("1h"), "how often a lender's account is looked for", least=_SECOND)

    # -- cancellation penalties: formula P
    short_term_notice: timedelta = setting(length("1d"), "notice from which cancelling an upfront shift is free")
    short_term_penalty_bps: int = setting(5000, "penalty with less notice, in basis points of its price", most=10_000)
    long_term_notice: timedelta = setting(length("1d"), "notice from which cancelling a weekly-paid shift is free")
    long_term_penalty_bps: int = setting(10_000, "penalty with less notice, in basis points of its price", most=10_000)

    # -- bookings
    highest_rate: int = setting(1_000_000, "highest hourly rate, in minor units such as cents", least=1)
    open_shift: timedelta = setting(length("8h"), "planned length of a shift without an end time", least=_MINUTE)
    longest_booking: timedelta = setting(length("366d"), "longest booking", least=_DAY)
    earliest_booking: timedelta = setting(length("366d"), "how far ahead a booking may start", least=_DAY)

    # -- the clock-in gate
    clock_in_early: timedelta = setting(length("1h"), "how long before its start a worker can clock in (STAFF-20.05)")
    clock_in_open: timedelta = setting(length("1d"), "how long after the start, if there is no end (STAFF-20.05)")
    no_show_after: timedelta = setting(length("1d"), "time until an unstarted shift is refunded (STAFF-20.07)")

    # -- timesheets
    reminder_a: timedelta = setting(length("5m"), "time after the planned end of the first reminder to clock out")
    reminder_b: timedelta = setting(length("30m"), "time after the planned end of the urgent reminder")
    auto_approval: timedelta = setting(length("4h"), "time from submission to automatic approval", least=_MINUTE)
    ladder: tuple[timedelta, ...] = setting(_LADDER, "when, after submission, the three messages go out")
    late_edit: timedelta = setting(length("1h"), "a supervisor's edit with less than this left adds as much")
    max_edit_extensions: int = setting(4, "how many times such an edit adds time")
    release_delay: timedelta = setting(_SECOND, "delay between an approval and the release of its money (G-36)")

    # -- disputes
    dispute_timeout: timedelta = setting(length("3h"), "when an open dispute cancels future shifts", least=_MINUTE)

    # -- insurance, by the clocks of UTC
    insurance_at: TimeOfDay = setting("00:00", "when policies are checked, every day")
    insurance_thresholds: tuple[int, ...] = setting((14, 7), "days before a policy expires to warn of it", least=1)
    unconfirmed_stop_every: timedelta = setting(length("5m"), "how often a stop looks for its booking", least=_SECOND)
    clock_in_needs_no_dispute_after_renewal: bool = setting(
        True, "whether a dispute that is open at a renewal keeps workers from clocking in until it is resolved (G-23)"
    )

    # -- saved searches
    digest_at: TimeOfDay = setting("05:00", "when the digest is sent, by its user's clock")
    search_batch: int = setting(50, "saved searches in one batch", least=1)
    instant_alerts_per_user_per_hour: int = setting(10, "instant alerts per user and hour; the digest has the rest")
    zero_result_limit: int = setting(30, "days without a match, before a search is switched off (STAFF-7.14)", least=1)
    deactivate_empty_searches: bool = setting(False, "whether such searches are switched off")
    query_retries: int = setting(3, "how many times a search is retried after its query failed")
    failover_window: timedelta = setting(length("30m"), "how long a search is retried while the database is away")
    extension_window: timedelta = setting(length("1h"), "how long a digest is retried while an extension is missing")
    query_first_pause: timedelta = setting(length("30s"), "first pause between a search's tries", least=_SECOND)
    query_longest_pause: timedelta = setting(length("5m"), "longest pause between a search's tries", least=_SECOND)

    # -- people
    quiet_hours_start: time = setting(time(22), "start of quiet hours for new users")
    quiet_hours_end: time = setting(time(7), "end of quiet hours for new users")
    app_url: Address = setting("https://app.example.com", "base address of the links in messages")

    # -- magic links, by the clocks of UTC
    cleanup_at: TimeOfDay = setting("02:00", "when magic links are cleaned up, every day")
    magic_link_unused: timedelta = setting(length("1d"), "age at which an unused one is removed, expired or not")
    magic_link_delete_batch: int = setting(1000, "how many are removed in one transaction", least=1)

    # -- jobs
    retries: int = setting(5, "how many times a failed job is retried (STAFF-16.01)", most=999)
    few_retries: int = setting(3, "retries of payments after a resolution, and of searches", most=999)
    retry_base: timedelta = setting(length("30s"), "first pause between retries; it doubles")
    retry_cap: timedelta = setting(length("1h"), "longest pause between retries")
    task_timeout: timedelta = setting(length("5m"), "time limit of one try (STAFF-17.11)", least=_SECOND)
    sweep_every: timedelta = setting(length("1h"), "how often sweeps look for missing timers", least=_MINUTE)
    enqueueing_page: int = setting(100, "bookings enqueued in one page (STAFF-17.08)", least=1, most=1000)
    scan_rows: int = setting(1000, "rows in one page of nightly runs and sweeps (STAFF-17.10)", least=1, most=1000)

    # -- how fast queues run whose jobs call somebody outside (STAFF-0.03)
    charges_per_second: int = setting(50, "charges per second; also final warnings, and cutoffs", least=1)
    charges_at_once: int = setting(20, "charges at the same time; also final warnings, and cutoffs", least=1)
    retries_per_second: int = setting(10, "payments after a resolution, per second (STAFF-11.06)", least=1)
    retries_at_once: int = setting(10, "payments after a resolution, at the same time", least=1)
    movements_per_second: int = setting(50, "transfers per second; also refunds", least=1)
    movements_at_once: int = setting(20, "transfers at the same time; also refunds", least=1)
    questions_per_second: int = setting(10, "questions to Stripe per second", least=1)
    questions_at_once: int = setting(5, "questions to Stripe at the same time", least=1)
    messages_per_second: int = setting(50, "messages per second", least=1)
    messages_at_once: int = setting(20, "messages at the same time", least=1)

    # -- what operations are told
    watch_every: timedelta = setting(length("5m"), "how often alert conditions are checked", least=_SECOND, most=_DAY)
    slow_watch_every: timedelta = setting(length("1h"), "how often slow ones are checked", least=_SECOND, most=_DAY)
    alert_min_sample: int = setting(20, "smallest number of jobs for which a share counts (G-55)", least=1)
    failed_payments_percent: int = setting(5, "percentage of a run's payments that may fail (STAFF-15.06)", most=100)
    failed_payments_within: timedelta = setting(length("1d"), "how far back payments count for it", least=_SECOND)
    failed_payments_least: int = setting(5, "smallest number of payments for that percentage (STAFF-20.19)", least=1)
    retried_jobs_percent: int = setting(20, "percentage of an hour's jobs that may be retried (STAFF-15.11)", most=100)
    dead_letters: int = setting(100, "dead letters that may be open (STAFF-15.09)")
    late_start: timedelta = setting(length("5m"), "how late a due job may start (STAFF-15.10)")
    standstill_after: timedelta = setting(length("1d"), "how long money may stand still before the alert opens")
    conflict_open_after: timedelta = setting(
        length("7d"), "how long a dispute or an incident may be open before the alert opens"
    )
    extra_time_after: timedelta = setting(length("2d"), "how long unconfirmed extra time waits for its alert (20.04)")
    looked_back: timedelta = setting(length("7d"), "how far back alerts and metrics look", least=_SECOND)
    retries_within: timedelta = setting(length("1d"), "how far back the success rate of retries looks", least=_SECOND)
    skipped_within: timedelta = setting(length("1h"), "how far back skipped searches are counted", least=_SECOND)
    night_is_over: timedelta = setting(length("1h"), "how long a nightly run may take (STAFF-15.07)")

    def together(self) -> Iterator[tuple[str, str]]:
        """What does not fit to something else."""
        if not self._charged < self._warned:
            yield "warn_at", "the warning does not come after the charge, in the week from Monday on"
        if not self._warned < self._cut_off:
            yield "cutoff_at", "the cutoff does not come after the warning, in the week from Monday on"
        if not self.insurance_thresholds or not _falling(self.insurance_thresholds):
            yield "insurance_thresholds", "are not descending numbers of days"
        if len(self.ladder) != len(_LADDER) or not _falling(self.ladder[::-1]):
            yield "ladder", "are not three ascending time spans"
        if self.ladder[-1] >= self.auto_approval:
            yield "ladder", "the last message does not come before the timesheet approves itself"
        for lower, higher in (
            ("reminder_a", "reminder_b"), ("stale_after", "reconcile_after"), ("retry_base", "retry_cap"),
            ("retry_base", "longest_pause"), ("query_first_pause", "query_longest_pause"),
            ("late_edit", "auto_approval"), ("reconcile_after", "silence"),
        ):  # fmt: skip
            if getattr(self, lower) > getattr(self, higher):
                yield lower, f"is more than {higher}"

    @property
    def retry(self) -> Retry:
        """How a job is tried again."""
        return self._tries(self.retries)

    @property
    def few_tries(self) -> Retry:
        """The same, for what is useless later."""
        return self._tries(self.few_retries)

    def _tries(self, retries: int) -> Retry:
        return ms.exponential(
            base=self.retry_base, factor=2, cap=self.retry_cap, jitter="spread", attempts=retries + 1
        )  # fmt: skip

    @property
    def charge_within(self) -> timedelta:
        """An outage may last until the cutoff; a later charge is the cutoff's matter (G-04)."""
        return self._cut_off - self._charged

    @property
    def warning_within(self) -> timedelta:
        """Then the cutoff comes, and a warning is too late."""
        return self._cut_off - self._warned

    @property
    def cutoff_within(self) -> timedelta:
        """Up to the week that it is about."""
        return 7 * _DAY - self._cut_off

    @property
    def _charged(self) -> timedelta:
        return _since_monday(self.charge_day, self.charge_at)

    @property
    def _warned(self) -> timedelta:
        return _since_monday(self.warn_day, self.warn_at)

    @property
    def _cut_off(self) -> timedelta:
        return _since_monday(self.cutoff_day, self.cutoff_at)


def _since_monday(day: Weekday, at: TimeOfDay) -> timedelta:
    return (weekday(day) + 1) * _DAY - rest_of_day(at)


def _falling(values: Sequence[Any]) -> bool:
    return all(one > following for one, following in pairwise(values))
