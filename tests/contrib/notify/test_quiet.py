"""Quiet hours in every zone, over nights of 23, 24 and 25 hours."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mainspring.contrib.notify.quiet import quiet_until

FIRST = datetime(2024, 1, 1, tzinfo=UTC)
NIGHT = time(22), time(7)
ZONES = ["UTC", "Europe/Lisbon", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "Africa/Cairo",
         "America/Santiago", "Pacific/Apia"]  # fmt: skip


def is_quiet(at: datetime, zone: str, start: time, end: time) -> bool:
    """By the clock on the wall."""
    shown = at.astimezone(ZoneInfo(zone)).time()
    return start <= shown < end if start <= end else shown >= start or shown < end


@pytest.mark.parametrize(
    ("at", "zone", "until"),
    [
        ("2026-07-01T21:59:59", "UTC", "2026-07-01T21:59:59"),
        ("2026-07-01T22:00:00", "UTC", "2026-07-02T07:00:00"),
        ("2026-07-02T06:59:59", "UTC", "2026-07-02T07:00:00"),
        ("2026-07-02T07:00:00", "UTC", "2026-07-02T07:00:00"),
        ("2026-07-01T23:00:00", "Asia/Kathmandu", "2026-07-02T01:15:00"),  # an offset with minutes
        ("2026-03-29T00:30:00", "Europe/Lisbon", "2026-03-29T06:00:00"),  # the night has an hour less
        ("2026-10-24T23:30:00", "Europe/Lisbon", "2026-10-25T07:00:00"),  # and an hour more
        ("2026-03-08T05:00:00", "America/New_York", "2026-03-08T11:00:00"),
        ("2026-11-01T03:30:00", "America/New_York", "2026-11-01T12:00:00"),
    ],
)
@pytest.mark.rule("STAFF-14.08")
def test_a_night_ends_when_the_clock_on_the_wall_shows_its_end(at: str, zone: str, until: str) -> None:
    found = quiet_until(datetime.fromisoformat(at).replace(tzinfo=UTC), zone, *NIGHT)

    assert found == datetime.fromisoformat(until).replace(tzinfo=UTC)


def test_an_end_that_is_jumped_over_is_the_jump() -> None:
    at = datetime(2026, 3, 8, 6, tzinfo=UTC)  # 01:00 in New York, where 02:30 does not exist that night

    found = quiet_until(at, "America/New_York", time(22), time(2, 30))

    assert found == datetime(2026, 3, 8, 7, tzinfo=UTC)


def test_without_a_span_there_are_no_quiet_hours() -> None:
    at = datetime(2026, 1, 1, 3, tzinfo=UTC)

    assert quiet_until(at, "UTC", time(0), time(0)) == at


times = st.builds(time, st.integers(0, 23), st.sampled_from([0, 15, 30, 59]))


@example(datetime(2026, 3, 29, 0, 59, 59, 5, tzinfo=UTC), "Europe/Lisbon", time(22), time(7))
@example(datetime(2026, 4, 4, 14, 45, tzinfo=UTC), "Australia/Lord_Howe", time(1, 30), time(1, 59))
@given(
    st.integers(0, 4 * 365 * 86_400 * 1000).map(lambda ms: FIRST + timedelta(milliseconds=ms)),
    st.sampled_from(ZONES),
    times,
    times,
)
def test_the_first_instant_that_is_not_quiet_is_found_whatever_clocks_do(
    at: datetime, zone: str, start: time, end: time
) -> None:
    found = quiet_until(at, zone, start, end)

    if start == end:
        assert found == at
        return
    assert not is_quiet(found, zone, start, end)
    assert timedelta(0) <= found - at <= timedelta(hours=25)
    if found > at:
        assert is_quiet(at, zone, start, end)
        assert is_quiet(found - timedelta(seconds=1), zone, start, end) or found - at < timedelta(seconds=1)
        step = at
        while step < found:  # nothing earlier would have done
            assert is_quiet(step, zone, start, end)
            step += timedelta(minutes=15)
