from __future__ import annotations

import os
from uuid import RFC_4122

from mainspring.uuid7 import drawn_from, uuid7


def test_ids_are_version_seven() -> None:
    for _ in range(1000):
        made = uuid7()
        assert (made.version, made.variant) == (7, RFC_4122)


def test_ids_do_not_repeat() -> None:
    assert len({uuid7() for _ in range(10_000)}) == 10_000


def test_ids_of_later_milliseconds_sort_later() -> None:
    made = []
    for millis in (0, 1, 1_767_225_600_000, 2**48 - 1):
        with drawn_from(lambda millis=millis: millis * 1_000_000, os.urandom):  # type: ignore[misc]  # bound at once
            made.append(uuid7())
        assert made[-1].int >> 80 == millis

    assert made == sorted(made)
    assert [str(one) for one in made] == sorted(str(one) for one in made)
