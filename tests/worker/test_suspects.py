"""How many jobs that may have crashed a worker a crew takes at once."""

from __future__ import annotations

from mainspring.worker.suspects import Suspects


def trusted() -> Suspects:
    """Three have ended well, so that four may run, and four do."""
    suspects = Suspects()
    for many in (1, 2):
        assert suspects.ask() == many
        suspects.answered(many, many)
        for _ in range(many):
            suspects.ended(well=True)
    assert suspects.ask() == 4
    suspects.answered(4, 4)
    return suspects


def test_after_one_whose_lease_was_lost_the_next_comes_alone_again() -> None:
    suspects = trusted()
    suspects.ended(well=False)
    assert suspects.ask() == 0
    for _ in range(3):
        suspects.ended(well=False)

    assert suspects.ask() == 1


def test_once_no_more_of_them_wait_the_next_comes_alone_again() -> None:
    suspects = trusted()
    for _ in range(4):
        suspects.ended(well=True)
    asked = suspects.ask()
    assert asked == 8
    suspects.answered(asked, 0)

    assert suspects.ask() == 1


def test_those_that_were_asked_for_count_until_the_answer_is_here() -> None:
    suspects = Suspects()
    assert [suspects.ask(), suspects.ask()] == [1, 0]
    suspects.answered(1, 0)

    assert suspects.ask() == 1
