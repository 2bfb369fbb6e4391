"""Who has not paid for the coming week, and what the cutoff does about it (STAFF-2 and 3)."""

from __future__ import annotations

from collections.abc import Collection
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from mainspring_apps.frame.setting import weekday
from mainspring_apps.staffing.rules import weeks
from mainspring_apps.staffing.rules.weeks import Period
from mainspring_apps.staffing.settings import Settings

if TYPE_CHECKING:
    from mainspring_apps.staffing.rules.parts import Part

#: Who is warned, and who is told of the release.
CUTOFF_WARNED: Final[tuple[Part, ...]] = ("Borrowing Admin",)
RELEASED: Final[tuple[Part, ...]] = ("Worker", "Borrowing Admin", "Lending Admin")

CutoffStep = Literal["skip", "ask again", "give up", "late charge", "put off", "release"]
WarningStep = Literal["skip", "wait", "warn"]


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How a booking stands before its due week; `payment` is its last attempt to pay for that, if there was one.

    `heard`: the provider has said something of that. `back_at`: it was silent for long about an attempt, until then.
    """

    status: str
    payment_type: str
    funded_period_end: datetime | None
    cutoff_at: datetime | None = None
    payment: str | None = None
    heard: bool = False
    back_at: datetime | None = None


def unpaid(standing: Standing, due: Period) -> bool:
    """Whether a weekly booking goes on without money for the due week; never funded is unpaid (G-14).

    The source says `funded_period_end < now + 7 days`. Funded periods end on a local Monday, so that this is the end of
    the due week on every day but Monday, where a week of 167 hours would make a paid booking an unpaid one.
    """
    if standing.payment_type != "Weekly_Progress" or standing.status != "Active":
        return False
    return standing.funded_period_end is None or standing.funded_period_end < due.end


def unanswered(standing: Standing) -> bool:
    """Whether the provider has never said anything of the attempt that is under way: whoever owes it, nobody asked."""
    return standing.payment == "Pending" and not standing.heard


def warning(standing: Standing, due: Period) -> WarningStep:
    """What a final warning does: who was not asked for money, or by nobody who answers, is not warned (STAFF-20.16)."""
    if not unpaid(standing, due):
        return "skip"
    return "wait" if standing.payment is None or unanswered(standing) else "warn"


def decide(
    standing: Standing, due: Period, instant: datetime, *, grace: timedelta, ask_times: int, asked: int = 0
) -> CutoffStep:
    """What a cutoff at an instant does, after the provider was asked so many times.

    Nobody is released whom we have not even tried to charge (G-04), nor while the provider may still say that the
    money came, and is asked a few times at the most (G-15), nor before it has been back for so long as `grace`
    (STAFF-20.16).
    """
    if not unpaid(standing, due) or (standing.cutoff_at is not None and standing.cutoff_at > instant):
        return "skip"
    if standing.payment is None:
        return "late charge"
    if standing.payment == "Pending" and not asked:
        return "ask again"
    if unanswered(standing) or (standing.back_at is not None and instant < standing.back_at + grace):
        return "put off"
    if standing.payment == "Pending":
        return "ask again" if asked <= ask_times else "give up"
    return "release"


def put_off(standing: Standing, now: datetime, grace: timedelta) -> datetime:
    """Until when a cutoff is put off: for so long after the provider answered again, which may be still to come."""
    return (now if unanswered(standing) or standing.back_at is None else standing.back_at) + grace


def missed(confirmed_at: datetime, due: Period, zone: str, settings: Settings) -> bool:
    """Whether it is our fault that a week was never charged: the booking was there when its Wednesday came.

    >>> from datetime import UTC
    >>> due = weeks.week(date(2026, 6, 8), "UTC")
    >>> [missed(datetime(2026, 6, 3, hour, tzinfo=UTC), due, "UTC", Settings()) for hour in (9, 11)]
    [True, False]
    """
    day = weeks.local_date(due.start, zone) + (weekday(settings.charge_day) - 7) * weeks.DAY
    charged = weeks.instant(day, settings.charge_at, zone)
    return charged is None or confirmed_at <= charged


def last_day(due: Period, zone: str, ends: date) -> date:
    """The Sunday before the week that nobody paid for, or the end of a booking that had ended before (STAFF-3.09)."""
    return min(weeks.local_date(due.start, zone) - weeks.DAY, ends)


def last_day_at_work(paid: Collection[bool], sunday: date, today: date) -> date:
    """From when a worker is told to be released: at once where each shift up to Sunday is unpaid, and nobody works one.

    >>> sunday, thursday = date(2026, 6, 7), date(2026, 6, 4)
    >>> [last_day_at_work(paid, sunday, thursday).day for paid in ([True, False], [False, False], [])]
    [7, 4, 7]
    """
    return min(today, sunday) if paid and not any(paid) else sunday


def stays(start: datetime, due: Period) -> bool:
    """Whether a shift is still worked after a release: it starts by Sunday 23:59:59, however late it ends."""
    return start < due.start


def moved_cutoff(now: datetime, zone: str, settings: Settings) -> datetime:
    """The cutoff of a booking that was first charged after its own: the same time on the next day (STAFF-3.26)."""
    return weeks.moment(weeks.local_date(now, zone) + weeks.DAY, settings.cutoff_at, zone)


def ahead(
    begun_at: datetime, zone: str, settings: Settings, *, moved: datetime | None, back_at: datetime | None
) -> datetime:
    """The cutoff that follows an attempt which began then: until it, what failed may be paid (STAFF-1.36).

    One that was moved since counts (STAFF-3.26), and so does one that is put off when it comes, as the provider is
    `back_at` too late for it (STAFF-20.16): whoever names it before names the same.
    """
    cutoff = moved if moved is not None and moved >= begun_at else weeks.cutoff(begun_at, zone, settings)
    return cutoff if back_at is None else max(cutoff, back_at + settings.answer_grace)


def late_warning(now: datetime, cutoff: datetime, settings: Settings) -> datetime:
    """When a moved cutoff is warned of: ten hours before, or at once, when the late charge has had its chance.

    >>> from datetime import UTC, timedelta
    >>> cutoff = datetime(2026, 6, 5, 4, tzinfo=UTC)
    >>> [f"{late_warning(cutoff - timedelta(hours=n), cutoff, Settings()):%d %H:%M}" for n in (24, 4, 0)]
    ['04 18:00', '05 00:05', '05 04:00']
    """
    soonest = now + settings.late_grace if cutoff - now > settings.late_grace else now
    return max(cutoff - settings.late_warning, soonest)
