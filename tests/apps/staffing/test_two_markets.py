"""Two marketplaces in one process: each has its own database, settings and providers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.apps.staffing.town import MONDAY, Town

from mainspring.testing import DatabaseServer, Harness
from mainspring_apps.staffing import shifts
from mainspring_apps.staffing.market import Market
from mainspring_apps.staffing.settings import Settings
from mainspring_sandbox import Sandbox

THERE = "https://there.example.com"


@pytest.fixture
def elsewhere(mainspring_server: DatabaseServer, mainspring_sandbox_server: Sandbox) -> Iterator[Town]:
    """A second marketplace, opened after the first."""
    with mainspring_sandbox_server.standing_in():
        market = Market(settings=Settings(app_url=THERE), maintenance=False, watches=())
    with mainspring_server.fresh(prepare=market.migrations) as database:
        market.at(database.dsn)
        with Harness(database.dsn, market) as harness:
            town = Town(harness, mainspring_sandbox_server, market.desk)
            yield town
            town.close()


def submit(town: Town) -> None:
    """A worker submits a timesheet; its supervisor is to be told, by a job."""
    booking = town.booking(shifts=[MONDAY])
    (shift,) = booking.shifts
    town.mainspring.clock.set(town.row("time_log", shift)["scheduled_start_time"])
    shifts.clock_in(town.desk, town.conn, shift, by=booking.worker_user)
    shifts.submit_timesheet(town.desk, town.conn, shift, by=booking.worker_user)


def test_two_marketplaces_in_one_process_share_neither_settings_nor_database(town: Town, elsewhere: Town) -> None:
    for place in (town, elsewhere):
        submit(place)
    for place in (elsewhere, town):  # and in whatever order they work
        place.mainspring.drain()
    here, there = town.desk.settings.app_url, elsewhere.desk.settings.app_url
    assert (town.texts("ladder_0"), elsewhere.texts("ladder_0")) == (
        {f"Timesheet of Person {worker(town)} is ready to verify: {here}/timesheets/1/verify"},
        {f"Timesheet of Person {worker(elsewhere)} is ready to verify: {there}/timesheets/1/verify"},
    )
    assert here != there == THERE


def worker(town: Town) -> str:
    name: str = town.value("select u.name from staffing.users u join staffing.workers w on w.user_id = u.id")
    return name.removeprefix("Person ")


def test_a_declaration_that_is_bound_to_no_marketplace_runs_nothing(town: Town) -> None:
    from mainspring_apps.staffing.tokens import clean_tokens

    with pytest.raises(Exception, match=r"^task clean_tokens: runs in an application"):
        clean_tokens(None)
    assert {task.name for task in town.desk.app.registry} >= {"clean_tokens", "charge_week", "approval-sweep"}
