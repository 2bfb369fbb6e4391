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
    charge_day: Weekday = setting("wed", "day on which the next week is charged")
    charge_at: TimeOfDay = setting("10:00", "time of that day")
    warn_day: Weekday = setting("wed", "day of the final warning, after the charge")
    warn_at: TimeOfDay = setting("14:00", "time of that day")
    cutoff_day: Weekday = setting("thu", "day on which an unpaid worker is released, after the warning")
    cutoff_at: TimeOfDay = setting("00:00", "time of that day")
    late_warning: timedelta = setting(length("10h"), "how long before a moved cutoff it is warned of (STAFF-3.26)")
    late_grace: timedelta = setting(length("5m"), "how long a late charge has to succeed before that warning")
    unfunded_notice: timedelta = setting(length("1d"), "how long before an unpaid shift operations hear (STAFF-1.42)")
    platform_fee_bps: int = setting(0, "fee on top of a price, in 1/100 of a percent", most=10_000)
    transfer_timing: TransferTiming = setting("on_verification", "when lenders are paid (G-13)")

    # -- what the provider has not answered
    ask_again: timedelta = setting(length("15m"), "how often it is asked at the cutoff (STAFF-3.08)", least=_SECOND)
    ask_times: int = setting(4, "how many times it is asked there")
    stale_after: timedelta = setting(length("15m"), "when a sweep asks for what is under way (STAFF-19.08)")
    reconcile_after: timedelta = setting(length("16m"), "when a timer asks for it, not before a sweep would")
    reconcile_every: timedelta = setting(length("1h"), "how often that sweep runs", least=_MINUTE)
    longest_pause: timedelta = setting(
        length("10m"), "longest pause between tries while it is away (STAFF-20.15)", least=_SECOND
    )
    silence: timedelta = setting(length("30m"), "who is asked and silent for longer is away (STAFF-20.16)")
    answer_grace: timedelta = setting(length("4h"), "how long nobody is released after it is back (STAFF-20.16)")
    upfront_wait: timedelta = setting(length("1h"), "how long a booking waits for its money (STAFF-20.27)")
    unknown_payment_after: timedelta = setting(
        length("1h"), "when an event of no payment is a dead letter", least=_SECOND
    )
    account_wait: timedelta = setting(length("1h"), "how often a lender without account is looked at", least=_SECOND)

    # -- cancellation penalties: formula P
    short_term_notice: timedelta = setting(length("1d"), "notice with which a short-term shift costs nothing")
    short_term_penalty_bps: int = setting(5000, "penalty with less notice, in 1/100 of a percent", most=10_000)
    long_term_notice: timedelta = setting(length("1d"), "notice with which a long-term shift costs nothing")
    long_term_penalty_bps: int = setting(10_000, "penalty with less notice, in 1/100 of a percent", most=10_000)

    # -- bookings
    highest_rate: int = setting(1_000_000, "highest rate an hour, in minor units", least=1)
    open_shift: timedelta = setting(length("8h"), "how long a shift is planned whose end nobody knows", least=_MINUTE)
    longest_booking: timedelta = setting(length("366d"), "how long a booking may last", least=_DAY)
    earliest_booking: timedelta = setting(length("366d"), "how long ahead a booking may begin", least=_DAY)

    # -- the clock-in gate
    clock_in_early: timedelta = setting(length("1h"), "how long before its start a shift can be begun (STAFF-20.05)")
    clock_in_open: timedelta = setting(length("1d"), "how long after it, where nobody knows the end (STAFF-20.05)")
    no_show_after: timedelta = setting(length("1d"), "when a shift that nobody began is refunded (STAFF-20.07)")

    # -- timesheets
    reminder_a: timedelta = setting(length("5m"), "when somebody is asked to clock out, after the planned end")
    reminder_b: timedelta = setting(length("30m"), "when they are told urgently, after the planned end")
    auto_approval: timedelta = setting(length("4h"), "when a submitted timesheet approves itself", least=_MINUTE)
    ladder: tuple[timedelta, ...] = setting(_LADDER, "when its three messages go out, after it was submitted")
    late_edit: timedelta = setting(length("1h"), "with less left than this, a supervisor's edit adds as much")
    max_edit_extensions: int = setting(4, "how often a supervisor's edit adds that")
    release_delay: timedelta = setting(_SECOND, "when money is released, after an approval (G-36)")

    # -- disputes
    dispute_timeout: timedelta = setting(length("3h"), "when an open dispute cancels what is to come", least=_MINUTE)

    # -- insurance, by the clocks of UTC
    insurance_at: TimeOfDay = setting("00:00", "when policies are looked at every day")
    insurance_thresholds: tuple[int, ...] = setting((14, 7), "days before a policy's end at which is warned", least=1)
    unconfirmed_stop_every: timedelta = setting(length("5m"), "how often a stop looks for its booking", least=_SECOND)
    clock_in_needs_no_dispute_after_renewal: bool = setting(
        True, "whether nobody clocks in, after a renewal with an open dispute, until that is resolved (G-23)"
    )

    # -- saved searches
    digest_at: TimeOfDay = setting("05:00", "when the digest comes, by its user's clocks")
    search_batch: int = setting(50, "searches that are asked together", least=1)
    instant_alerts_per_user_per_hour: int = setting(10, "instant alerts of a user in an hour; the digest has the rest")
    zero_result_limit: int = setting(30, "days after which an empty search may be switched off (STAFF-7.14)", least=1)
    deactivate_empty_searches: bool = setting(False, "whether it is switched off")
    query_retries: int = setting(3, "how often a search whose query fails is tried again")
    failover_window: timedelta = setting(length("30m"), "how long it is, while the database is away")
    extension_window: timedelta = setting(length("1h"), "how long a digest is, while an extension is missing")
    query_first_pause: timedelta = setting(length("30s"), "first pause within these windows; it doubles", least=_SECOND)
    query_longest_pause: timedelta = setting(length("5m"), "longest pause within these windows", least=_SECOND)

    # -- people
    quiet_hours_start: time = setting(time(22), "from when new users are not woken")
    quiet_hours_end: time = setting(time(7), "until when new users are not woken")
    app_url: Address = setting("https://app.example.com", "where links in messages lead")

    # -- magic links, by the clocks of UTC
    cleanup_at: TimeOfDay = setting("02:00", "when magic links are removed every day")
    magic_link_unused: timedelta = setting(length("1d"), "age at which an unused one is removed, as expired ones are")
    magic_link_delete_batch: int = setting(1000, "how many are removed in one transaction", least=1)

    # -- jobs
    retries: int = setting(5, "how often a failed job is tried again (STAFF-16.01)", most=999)
    few_retries: int = setting(3, "how often payments after a resolution and searches are", most=999)
    retry_base: timedelta = setting(length("30s"), "first pause between tries; it doubles")
    retry_cap: timedelta = setting(length("1h"), "longest pause between tries")
    task_timeout: timedelta = setting(length("5m"), "how long one try may take (STAFF-17.11)", least=_SECOND)
    sweep_every: timedelta = setting(length("1h"), "how often is looked for what has no timer", least=_MINUTE)
    enqueueing_page: int = setting(100, "bookings of one page of enqueueing (STAFF-17.08)", least=1, most=1000)
    scan_rows: int = setting(1000, "rows of one page of nightly runs and sweeps (STAFF-17.10)", least=1, most=1000)

    # -- how fast queues run whose jobs call somebody outside (STAFF-0.03)
    charges_per_second: int = setting(50, "charges in a second; warnings, and cutoffs, as well", least=1)
    charges_at_once: int = setting(20, "charges at once; warnings, and cutoffs, as well", least=1)
    retries_per_second: int = setting(10, "payments after a resolution in a second (STAFF-11.06)", least=1)
    retries_at_once: int = setting(10, "payments after a resolution at once", least=1)
    movements_per_second: int = setting(50, "transfers in a second; refunds as well", least=1)
    movements_at_once: int = setting(20, "transfers at once; refunds as well", least=1)
    questions_per_second: int = setting(10, "questions to the provider in a second", least=1)
    questions_at_once: int = setting(5, "questions to the provider at once", least=1)
    messages_per_second: int = setting(50, "messages in a second", least=1)
    messages_at_once: int = setting(20, "messages at once", least=1)

    # -- what operations are told
    watch_every: timedelta = setting(length("5m"), "how often conditions are looked at", least=_SECOND, most=_DAY)
    slow_watch_every: timedelta = setting(length("1h"), "how often slow ones are", least=_SECOND, most=_DAY)
    alert_min_sample: int = setting(20, "sample that is large enough for a share (G-55)", least=1)
    failed_payments_percent: int = setting(5, "share of a run's payments that may fail (STAFF-15.06)", most=100)
    failed_payments_within: timedelta = setting(length("1d"), "of how long its payments count", least=_SECOND)
    failed_payments_least: int = setting(5, "payments that are enough for that share (STAFF-20.19)", least=1)
    retried_jobs_percent: int = setting(20, "share of an hour's jobs that may be tried again (STAFF-15.11)", most=100)
    dead_letters: int = setting(100, "dead letters that may wait for somebody (STAFF-15.09)")
    late_start: timedelta = setting(length("5m"), "how late a due job may start (STAFF-15.10)")
    standstill_after: timedelta = setting(length("1d"), "how long money may wait for what should have happened")
    looked_back: timedelta = setting(length("7d"), "how far back watches and measures look", least=_SECOND)
    retries_within: timedelta = setting(
        length("1d"), "how far back the rate of retries that succeed looks", least=_SECOND
    )
    skipped_within: timedelta = setting(
        length("1h"), "how far back searches that were left out are told", least=_SECOND
    )
    night_is_over: timedelta = setting(length("1h"), "when a nightly run has done all it was to do (STAFF-15.07)")

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
