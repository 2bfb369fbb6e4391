"""Random walks through the marketplace; `make walk` takes longer ones."""

from __future__ import annotations

import logging

import pytest
from tests.apps.staffing.invariants import RULES, Violation, broken
from tests.apps.staffing.town import Town
from tests.apps.staffing.walk import Walk

from mainspring.testing import Harness
from mainspring_apps.staffing.market import Market
from mainspring_sandbox import Sandbox


@pytest.mark.rule("STAFF-19.16", "STAFF-19.09", "STAFF-19.15")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_money_messages_and_timers_stay_right_whatever_happens(
    mainspring: Harness,
    mainspring_sandbox: Sandbox,
    mainspring_app: Market,
    caplog: pytest.LogCaptureFixture,
    seed: int,
) -> None:
    caplog.set_level(logging.CRITICAL)  # failures are the point

    walk = Walk(mainspring, mainspring_sandbox, mainspring_app.desk, seed)
    walk.go(15, attempts=30)

    assert walk.counts["attempts"] >= 30
    walk.close()


@pytest.mark.rule("STAFF-19.16")
def test_a_walk_that_fails_says_its_seed_and_what_happened_last(
    mainspring: Harness, mainspring_sandbox: Sandbox, mainspring_app: Market
) -> None:
    walk = Walk(mainspring, mainspring_sandbox, mainspring_app.desk, 5)
    walk.step()
    policy = walk.town.insert("insurance_policies", company_id=1, expiration_date="2026-01-01", is_active=False)
    walk.town.conn.execute("update staffing.insurance_policies set is_active = false, expiration_date = '2026-01-01'")
    assert policy

    with pytest.raises(Violation, match=r"seed 5, step 1, .*: a booking that goes on is insured") as failed:
        walk._check(settled=False)

    assert "what happened last:\n    1 2026-10-19" in str(failed.value)
    walk.close()


def test_nothing_is_broken_in_an_empty_town(town: Town) -> None:
    assert list(broken(town)) == []
    assert len(RULES) > 15
