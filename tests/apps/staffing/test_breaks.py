"""That the list of planted breaks is not out of date; `make breaks` shows that each turns a marked test red."""

from __future__ import annotations

from tests.apps.staffing.breaks import BREAKS, problem


def test_each_of_at_least_thirty_breaks_fits_the_code() -> None:
    assert len({one.name for one in BREAKS}) >= 30
    assert [text for one in BREAKS if (text := problem(one))] == []
