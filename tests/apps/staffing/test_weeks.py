"""Local times as exact instants, and weeks of them: the tables of section 19."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from mainspring_apps.staffing.rules import pay, weeks
from mainspring_apps.staffing.settings import Settings

NY = "America/New_York"

INSTANTS = [
    ("Asia/Kolkata", "2026-06-03 10:00", "2026-06-03T04:30"),
    ("Asia/Kolkata", "2026-06-04 00:00", "2026-06-03T18:30"),
    ("Asia/Kathmandu", "2026-06-03 14:00", "2026-06-03T08:15"),
    ("Asia/Kathmandu", "2026-06-04 00:00", "2026-06-03T18:15"),
    ("Pacific/Chatham", "2026-01-08 00:00", "2026-01-07T10:15"),
    ("Pacific/Chatham", "2026-06-04 00:00", "2026-06-03T11:15"),
    ("America/New_York", "2026-03-04 10:00", "2026-03-04T15:00"),
    ("America/New_York", "2026-03-11 10:00", "2026-03-11T14:00"),
    ("America/New_York", "2026-03-08 02:30", "2026-03-08T07:00"),
    ("America/New_York", "2026-10-28 10:00", "2026-10-28T14:00"),
    ("America/New_York", "2026-11-04 10:00", "2026-11-04T15:00"),
    ("America/New_York", "2026-11-01 01:30", "2026-11-01T05:30"),
    ("Asia/Tehran", "2018-03-22 00:00", "2018-03-21T20:30"),
    ("Asia/Tehran", "2021-03-22 00:00", "2021-03-21T20:30"),
    ("Antarctica/Casey", "2023-03-09 00:00", "2023-03-08T13:00"),
    ("America/Havana", "2026-03-08 00:00", "2026-03-08T05:00"),
    ("America/Havana", "2026-11-01 00:00", "2026-11-01T04:00"),
    ("Africa/Cairo", "2026-04-24 00:00", "2026-04-23T22:00"),
    ("Africa/Cairo", "2026-10-29 23:00", "2026-10-29T20:00"),
    ("Africa/Cairo", "2026-10-30 00:00", "2026-10-29T22:00"),
    ("Asia/Beirut", "2026-03-29 00:00", "2026-03-28T22:00"),
    ("America/Santiago", "2026-09-06 00:00", "2026-09-06T04:00"),
    ("Australia/Lord_Howe", "2026-09-30 10:00", "2026-09-29T23:30"),
    ("Australia/Lord_Howe", "2026-10-07 10:00", "2026-10-06T23:00"),
    ("Australia/Lord_Howe", "2026-10-04 02:15", "2026-10-03T15:30"),
    ("Australia/Lord_Howe", "2026-04-05 01:45", "2026-04-04T14:45"),
    ("Pacific/Apia", "2011-12-29 00:00", "2011-12-29T10:00"),
    ("Pacific/Apia", "2011-12-30 05:00", None),
    ("Pacific/Apia", "2011-12-31 05:00", "2011-12-30T15:00"),
    ("Pacific/Kiritimati", "2026-06-03 10:00", "2026-06-02T20:00"),
    ("Pacific/Pago_Pago", "2026-06-03 10:00", "2026-06-03T21:00"),
]


@pytest.mark.rule("STAFF-0.07")
@pytest.mark.parametrize(("zone", "local", "expected"), INSTANTS)
def test_a_local_time_is_one_exact_instant(zone: str, local: str, expected: str | None) -> None:
    day, _, at = local.partition(" ")
    found = weeks.instant(date.fromisoformat(day), at, zone)
    assert found == (None if expected is None else datetime.fromisoformat(expected).replace(tzinfo=UTC))


@pytest.mark.rule("STAFF-0.07", "STAFF-1.14")
@pytest.mark.parametrize(
    ("zone", "monday", "hours"),
    [
        ("America/New_York", "2026-06-01", 168),
        ("America/New_York", "2026-03-02", 167),
        ("America/New_York", "2026-10-26", 169),
        ("Australia/Lord_Howe", "2026-09-28", 167.5),
        ("Australia/Lord_Howe", "2026-03-30", 168.5),
        ("Asia/Tehran", "2021-03-22", 167),
        ("Pacific/Apia", "2011-12-26", 144),
    ],
)
def test_a_local_week_runs_from_monday_to_monday_whatever_its_length(zone: str, monday: str, hours: float) -> None:
    period = weeks.week(date.fromisoformat(monday), zone)
    assert period.end - period.start == timedelta(hours=hours)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.rule("STAFF-1.13", "STAFF-1.14")
@pytest.mark.parametrize(
    ("at", "zone", "start", "end"),
    [
        ("2026-06-03T14:00", NY, "2026-06-08T04:00", "2026-06-15T04:00"),
        ("2026-10-21T14:00", NY, "2026-10-26T04:00", "2026-11-02T05:00"),
        ("2026-02-25T15:00", NY, "2026-03-02T05:00", "2026-03-09T04:00"),
        ("2026-06-02T20:00", "Pacific/Kiritimati", "2026-06-07T10:00", "2026-06-14T10:00"),
        ("2021-03-17T06:30", "Asia/Tehran", "2021-03-21T20:30", "2021-03-28T19:30"),
    ],
)
def test_wednesday_pays_for_the_week_that_follows(at: str, zone: str, start: str, end: str) -> None:
    expected = weeks.Period(utc(start), utc(end))
    assert weeks.next_week(utc(at), zone) == expected
    assert weeks.due_week(utc(at), zone, Settings()) == expected
    assert expected.start in expected
    assert expected.end not in expected


@pytest.mark.rule("STAFF-11.10")
@pytest.mark.parametrize(
    ("at", "monday"),
    [
        (
            "2026-06-03T13:59:59",
            "2026-06-01",
        ),  # a second before Wednesday 10:00: what last Wednesday should have funded
        ("2026-06-03T14:00:00", "2026-06-08"),
        ("2026-06-04T19:00:00", "2026-06-08"),  # Thursday
        ("2026-06-08T03:59:59", "2026-06-08"),  # Sunday, to the end
        ("2026-06-09T19:00:00", "2026-06-08"),  # Tuesday: the week that runs
    ],
)
def test_the_due_week_is_the_one_after_the_latest_wednesday_at_ten(at: str, monday: str) -> None:
    assert weeks.due_week(utc(at), NY, Settings()) == weeks.week(date.fromisoformat(monday), NY)


@pytest.mark.rule("STAFF-1.36")
@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ("2026-06-03T14:00:00", "2026-06-04T04:00"),
        ("2026-06-04T03:59:59", "2026-06-04T04:00"),
        ("2026-06-04T04:00:00", "2026-06-11T04:00"),
    ],
)
def test_the_cutoff_is_the_next_end_of_a_wednesday(at: str, expected: str) -> None:
    assert weeks.cutoff(utc(at), NY, Settings()) == utc(expected)


@pytest.mark.rule("STAFF-1.25")
@pytest.mark.parametrize(
    ("minutes", "rate", "price"), [(480, 3000, 24000), (1, 3000, 50), (50, 1001, 834), (1, 30, 1), (1, 29, 0)]
)
def test_a_shift_costs_its_planned_minutes_with_halves_up(minutes: int, rate: int, price: int) -> None:
    assert pay.shift_pay(minutes, rate, 0) == price


@pytest.mark.rule("STAFF-0.07")
def test_a_date_that_does_not_exist_begins_with_the_next_one() -> None:
    """The day before it ends when the clocks jump over it, so that no hour of work falls between two dates."""
    began = datetime(2011, 12, 30, 10, tzinfo=UTC)
    assert (
        weeks.midnight(date(2011, 12, 30), "Pacific/Apia")
        == began
        == weeks.midnight(date(2011, 12, 31), "Pacific/Apia")
    )
    assert weeks.midnight(date(2011, 12, 29), "Pacific/Apia") == began - timedelta(days=1)
