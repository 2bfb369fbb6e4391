from __future__ import annotations

import pytest
from tests.apps.staffing.town import Town

from mainspring_apps.staffing import states, store


def test_the_town_has_money_that_adds_up(town: Town) -> None:
    booking = town.booking(shifts=2)
    town.funded(booking)
    assert town.ledger(booking) == (48000, 48000, 0, 0, 0)


def test_every_statement_is_understood_by_the_database(town: Town) -> None:
    for name in store.sql.names():
        text, number = store.sql[name], 0
        while "%(" in text:
            head, _, tail = text.partition("%(")
            number += 1
            text = f"{head}${number}{tail.partition(')s')[2]}"
        try:
            town.conn.execute(f"prepare p_{name} as {text}".encode())
        except Exception as error:  # says which
            pytest.fail(f"{name}: {error}")


@pytest.mark.rule("STAFF-19.10")
def test_the_database_and_the_code_allow_the_same_transitions(town: Town) -> None:
    known = set(town.rows("select entity, before, after from staffing.transitions"))
    assert known == {
        (entity, before, after)
        for entity, table in states.TRANSITIONS.items()
        for before, afters in table.items()
        for after in afters
    }
