"""Settings: each is read from code or the environment, makes sense, and is followed by whatever depends on it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields
from datetime import date, timedelta
from pathlib import Path

import pytest
from tests.apps.staffing.quarrels import filed
from tests.apps.staffing.sheets import at as clock
from tests.apps.staffing.town import MONDAY, T00, W14, Town
from tests.apps.staffing.wednesday import SECOND, deliver, tried
from tests.docs.pages import ROOT
from tools.app_settings import page

import mainspring as ms
from mainspring.cli import main
from mainspring.errors import ConfigurationError
from mainspring.testing import DatabaseServer, Harness
from mainspring_apps.frame.setting import kind_of
from mainspring_apps.frame.settings import from_env, shown, types_of
from mainspring_apps.staffing import shifts, show
from mainspring_apps.staffing.market import Market
from mainspring_apps.staffing.payments import weekly
from mainspring_apps.staffing.settings import Settings
from mainspring_apps.staffing.states import Refused
from mainspring_sandbox import Sandbox

HOUR = timedelta(hours=1)
#: Another value of those that are no numbers, spans or switches.
OTHER = {
    "charge_day": "tue", "warn_day": "tue", "cutoff_day": "fri", "transfer_timing": "on_webhook",
    "charge_at": "09:30", "warn_at": "12:00", "cutoff_at": "01:00", "insurance_at": "01:30", "digest_at": "06:15",
    "cleanup_at": "23:59", "insurance_thresholds": "21,10,1", "ladder": "1m,1h30m,2h", "app_url": "http://here.example",
    "quiet_hours_start": "20:30", "quiet_hours_end": "06:00",
}  # fmt: skip
Open = Callable[[Mapping[str, str]], AbstractContextManager[Town]]


@pytest.fixture
def opened(mainspring_server: DatabaseServer, mainspring_sandbox_server: Sandbox, mainspring_sandbox: Sandbox) -> Open:
    """A marketplace as an environment says."""

    @contextmanager
    def opened(env: Mapping[str, str]) -> Iterator[Town]:
        import os

        with mainspring_sandbox_server.standing_in():
            market = Market({**os.environ, **env}, maintenance=False, watches=())
        with mainspring_server.fresh(prepare=market.migrations) as database:
            market.at(database.dsn)
            with Harness(database.dsn, market) as harness:
                town = Town(harness, mainspring_sandbox, market.desk)
                yield town
                town.close()

    return opened


@pytest.mark.rule("STAFF-20.21")
def test_the_page_names_every_setting_with_its_default_and_what_it_is() -> None:
    wanted = (ROOT / "docs" / "apps" / "staffing-settings.md").read_text()
    assert wanted == page("staffing"), "run `python -m tools.app_settings staffing > docs/apps/staffing-settings.md`"
    assert [f"`{one.variable}`" for one in shown(Settings(), {})] == [
        line.split(" | ")[0].removeprefix("| ") for line in wanted.splitlines() if line.startswith("| `")
    ]
    assert all(one.metadata.get("about") for one in fields(Settings)), "say by `setting(default, …)` what it is"


@pytest.mark.rule("STAFF-20.21")
def test_each_setting_is_read_from_the_environment_as_it_is_shown() -> None:
    for one in fields(Settings):
        kind, usual, name = kind_of(types_of(Settings)[one.name]), one.default, f"STAFFING_{one.name.upper()}"
        if isinstance(usual, bool):
            other = kind.show(not usual)
        elif isinstance(usual, int):
            other = str(usual - 1 if usual == one.metadata["most"] else usual + 1)
        else:
            other = kind.show(usual + SECOND) if isinstance(usual, timedelta) else OTHER[one.name]
        env = {name: other} | ({"STAFFING_CHARGE_DAY": "mon"} if one.name == "warn_day" else {})
        found = from_env(Settings(), env)
        assert getattr(found, one.name) != usual == kind.read(kind.show(usual)), one.name
        for said, source in ((env, name), ({}, "code")):
            (line,) = [line for line in shown(found, said) if line.name == one.name]
            assert (line.value, line.default, line.source) == (other, kind.show(usual), source)


@pytest.mark.rule("STAFF-20.21")
@pytest.mark.parametrize(
    ("env", "why"),
    [
        ({"AUTO_APPROVAL": "4 hours"}, "auto_approval: is not a time span, such as 90s, 5m, 4h or 1d"),
        ({"AUTO_APPROVAL": "0s"}, "auto_approval: is less than 1m"),
        ({"RETRIES": "-1"}, "retries: is less than 0"),
        ({"SCAN_ROWS": "1001"}, "scan_rows: is more than 1000"),
        ({"CHARGE_DAY": "wednesday"}, "charge_day: is not one of mon, tue, wed, thu, fri, sat, sun"),
        ({"CUTOFF_AT": "24:00"}, "cutoff_at: is not a time of day, such as 10:00"),
        ({"DEACTIVATE_EMPTY_SEARCHES": "perhaps"}, "deactivate_empty_searches: is not on or off"),
        ({"APP_URL": "here.example"}, r"app_url: is not an http\(s\) address"),
        ({"WARN_AT": "09:59"}, "warn_at: the warning does not come after the charge"),
        ({"WARN_DAY": "thu", "WARN_AT": "00:00"}, "cutoff_at: the cutoff does not come after the warning"),
        ({"INSURANCE_THRESHOLDS": "7,14"}, "insurance_thresholds: are not descending numbers of days"),
        ({"LADDER": "0s,1h"}, "ladder: are not three ascending time spans"),
        ({"AUTO_APPROVAL": "3h"}, "ladder: the last message does not come before the timesheet approves itself"),
        ({"REMINDER_A": "31m"}, "reminder_a: is more than reminder_b"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_name_and_its_variable(env: dict[str, str], why: str) -> None:
    name = why.partition(":")[0]
    with pytest.raises(ConfigurationError, match=rf"^{why}.* \(STAFFING_{name.upper()}\)$"):
        from_env(Settings(), {f"STAFFING_{name}": value for name, value in env.items()})
    with pytest.raises(ConfigurationError, match=r"^app_url: .* \(STAFFING_APP_URL\)$"):
        Settings(app_url="")


@pytest.mark.rule("STAFF-20.21")
def test_what_is_almost_a_setting_is_refused_and_anything_else_is_not_ours() -> None:
    with pytest.raises(
        ConfigurationError, match=r"^STAFFING_AUTOAPPROVAL: is no setting \(did you mean 'auto_approval'\?\)$"
    ):
        from_env(Settings(), {"STAFFING_AUTOAPPROVAL": "4h"})
    assert (
        from_env(Settings(), {"STAFFING_TOKEN": "x", "STAFFING_CRASHES": "all", "STAFFING_DB_HOST": "x"}) == Settings()
    )
    both = from_env(Settings(auto_approval=5 * HOUR, late_start=HOUR), {"STAFFING_AUTO_APPROVAL": "6h"})
    assert (both.auto_approval, both.late_start) == (6 * HOUR, HOUR), "the environment wins, and code over the default"


@pytest.mark.rule("STAFF-20.21")
def test_no_statement_has_an_hour_or_a_day_of_its_own() -> None:
    files = (ROOT / "apps" / "mainspring_apps" / "staffing" / "sql").glob("*.sql")
    found = {(file.name, span) for file in files for span in re.findall(r"'(\d+ (?:hour|day)s?)'", file.read_text())}
    # A week is one, and Mondays of all zones lie within so many hours of that of UTC.
    assert found == {("cutoff.sql", "7 days"), ("watching.sql", "14 hours")}


@pytest.mark.rule("STAFF-20.21")
def test_the_command_shows_what_holds_and_what_has_set_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "ours.py").write_text(
        "from datetime import timedelta\n"
        "from mainspring_apps.staffing.market import Market\n"
        "from mainspring_apps.staffing.settings import Settings\n"
        "app = Market(settings=Settings(dispute_timeout=timedelta(hours=2)))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STAFFING_CUTOFF_AT", "01:00")
    assert main(["staffing", "settings", "--app", "ours:app", "--json"]) == 0
    said = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert list(said) == [one.name for one in fields(Settings)]
    assert said["cutoff_at"] == {
        "name": "cutoff_at", "variable": "STAFFING_CUTOFF_AT", "value": "01:00", "default": "00:00",
        "source": "STAFFING_CUTOFF_AT", "about": "time of that day",
    }  # fmt: skip
    assert [said[name]["source"] for name in ("dispute_timeout", "auto_approval")] == ["code", "default"]
    assert main(["staffing", "settings"]) == 0
    head, first, *_ = capsys.readouterr().out.splitlines()
    assert head.split() == ["NAME", "VALUE", "DEFAULT", "FROM", "WHAT", "IT", "IS"]
    assert first.split()[:4] == ["charge_day", "wed", "wed", "default"]


@pytest.mark.rule("STAFF-20.21")
def test_a_cutoff_at_one_in_the_night_moves_its_timers_its_texts_and_itself(opened: Open) -> None:
    with opened({"STAFFING_CUTOFF_AT": "01:00"}) as town:
        found = {one.name: one for one in town.desk.app.registry.schedules()}
        assert found["weekly-hard-cutoff"].rule == ms.weekly("thu", "01:00")
        assert [found[f"weekly-{name}"].within for name in ("payments", "final-warning", "hard-cutoff")] == [
            15 * HOUR, 11 * HOUR, 95 * HOUR,
        ]  # fmt: skip
        booking, late = town.booking(shifts=1), town.booking(shifts=1)
        town.only("weekly-final-warning", "weekly-hard-cutoff", at=W14 - SECOND)
        coming = {moment.what: moment.utc for moment in show.story(town.desk, town.conn, booking.id).next}
        assert coming["hard cutoff, if unpaid"] == T00 + HOUR
        tried(town, booking)
        town.mainspring.advance(to=W14)
        deliver(town)
        assert {text.partition("must be ")[2] for text in town.texts("final_warning")} == {
            "completed by Thursday 01:00 to avoid worker release."
        }

        town.mainspring.advance(to=T00 + HOUR - SECOND)
        with town.conn.transaction(force_rollback=True):
            weekly.pay_by_hand(town.desk, town.conn, booking.id, by=booking.borrowing_admin)
        assert town.status(booking) == "Active"
        town.mainspring.advance(to=T00 + HOUR)
        assert town.status(booking) == "Completed"
        assert town.row("bookings", late.id)["cutoff_at"] == T00 + 25 * HOUR  # never tried: a full day more
        with pytest.raises(Refused, match="and no week of it can be paid"):
            weekly.pay_by_hand(town.desk, town.conn, booking.id, by=booking.borrowing_admin)


@pytest.mark.rule("STAFF-20.21")
def test_hours_days_thresholds_and_retries_of_the_environment_are_those_of_timers_texts_and_sql(opened: Open) -> None:
    env = {"AUTO_APPROVAL": "5h", "LADDER": "0s,2h,4h30m", "REMINDER_B": "45m", "DISPUTE_TIMEOUT": "2h", "RETRIES": "2"}
    env |= {"INSURANCE_THRESHOLDS": "21,7", "CHARGES_PER_SECOND": "7"}
    with opened({f"STAFFING_{name}": value for name, value in env.items()}) as town:
        booking = town.booking(shifts=[MONDAY])
        (shift,) = booking.shifts
        town.policy(booking.lender, date(2026, 6, 23), policy_type="Tools")
        town.only("insurance-monitoring", at=clock("09:00"))
        shifts.clock_in(town.desk, town.conn, shift, by=booking.worker_user)
        end = clock("17:00")
        assert [due for _, due, _ in town.waiting()] == [end + timedelta(minutes=5), end + timedelta(minutes=45)]
        town.mainspring.clock.set(end)
        shifts.submit_timesheet(town.desk, town.conn, shift, by=booking.worker_user)
        sheet = [(task, due - end) for task, due, _ in town.waiting() if "insurance" not in task]
        assert [after for task, after in sheet if task.startswith(("ladder", "auto"))] == [
            timedelta(0), 2 * HOUR, 4.5 * HOUR, 5 * HOUR,
        ]  # fmt: skip
        town.mainspring.advance(to=end + 2 * HOUR)
        assert {text.partition(". ")[2] for text in town.texts("ladder_60m")} == {"Please verify within 5 hours."}

        dispute = filed(town, shift, by=booking.supervisor or 0)
        town.mainspring.advance(to=end + 4 * HOUR)
        assert town.row("disputes", dispute)["timed_out_at"] == end + 4 * HOUR
        assert {text.partition(". ")[0] for text in town.texts("dispute_timeout")} == {
            "Dispute unresolved after 2 hours"
        }

        town.mainspring.advance(to=clock("20:00", date(2026, 6, 1)) + 8 * HOUR)  # a midnight of UTC, 21 days before
        assert town.value("select array_agg(threshold) from staffing.insurance_warnings") == [21]
        assert town.messages("insurance_21")
        assert ("21", 1) in town.measured("staffing_policies_near_expiry")
        ours = dict(town.rows("select task, max_attempts from mainspring.jobs where task <> 'notify.deliver'"))
        assert {"remind_5m", "auto_approve", "dispute_timeout", "look_at_policy"} <= ours.keys()
        assert {attempts for task, attempts in ours.items() if not task.startswith("mainspring.")} == {3}, ours
        assert ms.rate("weekly-payments", 7, per="1s") in town.desk.app.limits
