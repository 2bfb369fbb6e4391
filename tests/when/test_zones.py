"""Names of zones, and where their data comes from."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import pytest

import mainspring as ms
from mainspring.when import zones
from mainspring.when.rule import Rule

BAD: list[tuple[Any, str]] = [
    (None, "is missing"),
    (5, "is not a text"),
    (b"UTC", "is not a text"),
    ("", "is empty"),
    (" ", "is empty"),
    ("Mars/Phobos", "is not a time zone"),
    ("utc", "did you mean 'UTC'?"),
    ("EUROPE/LONDON", "did you mean 'Europe/London'?"),
    ("America/New York", "did you mean 'America/New_York'?"),
    ("Europe/Londn", "did you mean 'Europe/London'?"),
    ("../../etc/passwd", "is not a time zone"),
    ("/etc/localtime", "is not a time zone"),
    ("/usr/share/zoneinfo/UTC", "is not a time zone"),
    ("Europe/../UTC", "is not a time zone"),
    ("UTC\0", "control character"),
    ("UTC\n", "control character"),
    ("+25:00", "is not a time zone"),
    ("+02:00", "is not a time zone"),
    ("localtime", "is not a time zone"),  # whatever the machine is set to
    ("posixrules", "is not a time zone"),
    ("right/UTC", "is not a time zone"),  # counts leap seconds
    ("Europe", "is not a time zone"),
    ("tzdata.zi", "is not a time zone"),
    ("zone.tab", "is not a time zone"),
    ("A" * 10_000, "longer than 200"),
]


@pytest.mark.parametrize(("name", "problem"), BAD, ids=[repr(name)[:30] for name, _ in BAD])
@pytest.mark.parametrize("make", [ms.daily, lambda time, zone: ms.daily(time).in_zone(zone)], ids=["made", "moved"])
def test_a_wrong_zone_is_refused_in_one_sentence(make: Any, name: Any, problem: str) -> None:
    with pytest.raises(ms.ValidationError, match=r"^zone: ") as refused:
        make("05:00", zone=name)

    assert refused.value.field == "zone"
    assert problem in str(refused.value)


@pytest.mark.parametrize("name", ["UTC", "US/Pacific", "EST5EDT", "Etc/GMT-14", "Asia/Calcutta", "GMT+0"])
def test_links_and_old_names_are_zones(name: str) -> None:
    assert ms.daily("05:00", zone=name).zone == name


def test_a_link_ticks_with_its_zone() -> None:
    after = datetime(2026, 6, 1, tzinfo=UTC)
    old, new = (ms.daily("05:00", zone=zone).next(after) for zone in ("US/Pacific", "America/Los_Angeles"))
    assert old is not None
    assert new is not None

    assert old.at == new.at


def test_every_zone_that_python_knows_is_accepted() -> None:
    for name in available_timezones() - {"localtime"}:
        zones.check_zone(name)


def test_zones_come_from_the_package_where_the_system_has_none(tmp_path: Path) -> None:
    script = (
        "import zoneinfo, mainspring as ms; from mainspring.when import zones; from datetime import datetime, UTC;"
        "assert zoneinfo.TZPATH == ();"
        "print(zones.version(), ms.daily('05:00', zone='Asia/Kathmandu').next(datetime(2026, 6, 1, tzinfo=UTC)).at)"
    )
    environment = os.environ | {"PYTHONTZPATH": "", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    version, at = done.stdout.split(maxsplit=1)

    assert version[:2] == "20"
    assert at.strip() == "2026-06-01 23:15:00+00:00"


def test_the_version_of_the_zone_data_is_known() -> None:
    assert zones.version()[:2] == "20"
    assert len(zones.version()) <= 10


def test_a_changed_zone_file_moves_the_next_tick(tmp_path: Path) -> None:
    script = """
import shutil, sys, zoneinfo
from datetime import UTC, datetime
import mainspring as ms
from mainspring.when import zones

folder, other = sys.argv[1:]
rule = ms.weekly("wed", "10:00", zone="America/New_York")
after = datetime(2026, 6, 1, tzinfo=UTC)
print(rule.next(after).at)
shutil.copy(other, f"{folder}/America/New_York")
print(rule.next(after).at)
zones.forget()
print(rule.next(after).at)
"""
    source = Path(str(files("tzdata") / "zoneinfo"))
    (tmp_path / "America").mkdir()
    (tmp_path / "America" / "New_York").write_bytes((source / "America" / "New_York").read_bytes())
    environment = os.environ | {"PYTHONTZPATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", script, str(tmp_path), str(source / "America" / "Chicago")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)

    assert done.stdout.splitlines() == [
        "2026-06-03 14:00:00+00:00",
        "2026-06-03 14:00:00+00:00",
        "2026-06-03 15:00:00+00:00",
    ]


class Without(ZoneInfo):
    """The zones of a version that has no US/Pacific."""

    def __new__(cls, key: str) -> ZoneInfo:  # type: ignore[misc]  # the real ones, as before
        if key == "US/Pacific":
            raise ZoneInfoNotFoundError(key)
        return ZoneInfo(key)


def test_a_zone_that_a_new_version_drops_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = ms.daily("05:00", zone="US/Pacific").to_json()
    zones.forget()
    monkeypatch.setattr("mainspring.when.zones.ZoneInfo", Without)
    try:
        with pytest.raises(ms.ValidationError, match=r"^zone: is not a time zone"):
            Rule.from_json(stored)
    finally:
        monkeypatch.undo()
        zones.forget()


@pytest.mark.parametrize(
    ("file", "text", "version"),
    [
        ("tzdata.zi", "# version 2031c\n# This zic input file\n", "2031c"),
        ("+VERSION", "2031d\n", "2031d"),
        ("UTC", "", "unknown"),
    ],
)
def test_the_version_is_that_of_the_data_in_use(
    file: str, text: str, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / file).write_text(text)
    monkeypatch.setattr("mainspring.when.zones.TZPATH", (str(tmp_path / "none"), str(tmp_path)))

    assert zones.version() == version
