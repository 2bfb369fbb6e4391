from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.apps.staffing.seekers import Seekers
from tests.apps.staffing.town import Town

from mainspring_apps.staffing.registry import DIGEST_QUEUE
from mainspring_apps.staffing.rules import digests
from mainspring_apps.staffing.searches import digest
from mainspring_apps.staffing.settings import Settings

NY, KOLKATA, KATHMANDU, APIA = "America/New_York", "Asia/Kolkata", "Asia/Kathmandu", "Pacific/Apia"
SLOT = datetime(2026, 6, 3, 9, tzinfo=UTC)  # Wednesday 05:00 in New York
DAY, SECOND = timedelta(days=1), timedelta(seconds=1)
NOBODY = "No new workers match your saved search criteria"


@pytest.fixture
def seekers(town: Town) -> Seekers:
    return Seekers(town)


def come(town: Town, slot: datetime, *, raise_errors: bool = True) -> None:
    """Just before the slot, and on to it: what is on the way is no matter here."""
    town.mainspring.clock.set(slot - SECOND)
    town.mainspring.drain()
    town.mainspring.advance(seconds=1, raise_errors=raise_errors)


def fires(town: Town) -> list[tuple[str, datetime]]:
    query = "select zone, instant from mainspring.fire where schedule = %s and how = 'fired' order by instant"
    return [(zone, at) for zone, at in town.rows(query, digest.SCHEDULE)]


def parts(names: Iterable[str], *found: list[int]) -> str:
    """A digest, word for word."""
    text = ""
    for name, workers in zip(names, found, strict=True):
        lines = "".join(f"- welder, 10001: https://app.example.com/workers/{worker}\n" for worker in workers)
        text += f"{name}\n{lines or NOBODY + chr(10)}\n"
    return text


@pytest.mark.rule("STAFF-6.01")
@pytest.mark.rule("STAFF-6.02")
@pytest.mark.rule("STAFF-6.05")
@pytest.mark.rule("STAFF-6.10")
def test_each_zone_has_its_digest_at_its_own_five_o_clock(town: Town, seekers: Seekers) -> None:
    at = {
        KATHMANDU: datetime(2026, 6, 2, 23, 15, tzinfo=UTC),
        KOLKATA: datetime(2026, 6, 2, 23, 30, tzinfo=UTC),
        NY: SLOT,
    }
    users = {zone: seekers.user(timezone=zone) for zone in at}
    for user in users.values():
        seekers.search(user)
        seekers.search(user, is_active=False)
        seekers.search(user, digest_enabled=False)
    seekers.search(seekers.user(timezone="Europe/Oslo"), digest_enabled=False)
    town.mainspring.drain()
    for zone, slot in at.items():
        come(town, slot - SECOND)
        assert users[zone] not in {user for user, *_ in seekers.told("digest")}
        come(town, slot)
        assert users[zone] in {user for user, *_ in seekers.told("digest")}
    assert fires(town) == list(at.items())
    # One mail each, no SMS, and logged as everything is.
    assert town.messages() == [("digest", user, "email", "Sent") for user in users.values()]
    assert [row[1:] for row in seekers.deliveries()] == [("digest", "Sent", None)] * 3
    assert (
        town.value("select distinct queue from mainspring.jobs where task like '%%digest' or task = 'put_together'")
        == DIGEST_QUEUE
    )


@pytest.mark.rule("STAFF-6.03")
def test_a_day_of_25_hours_loses_nobody_and_tells_nobody_twice(town: Town, seekers: Seekers) -> None:
    seekers.search(seekers.user(), name="Welders", instant_enabled=False)
    first = datetime(2026, 10, 31, 9, tzinfo=UTC)  # 05:00 EDT
    before = seekers.worker(listed=first - SECOND)
    early = seekers.worker(listed=first)
    half = seekers.worker(listed=datetime(2026, 10, 31, 9, 30, tzinfo=UTC))  # 05:30 on the 31st
    last = seekers.worker(listed=datetime(2026, 11, 1, 9, 59, tzinfo=UTC))  # 04:59 EST on the 1st
    after = seekers.worker(listed=datetime(2026, 11, 1, 10, tzinfo=UTC))
    for slot in (first, datetime(2026, 11, 1, 10, tzinfo=UTC), datetime(2026, 11, 2, 10, tzinfo=UTC)):
        come(town, slot)
    said = [text for _, _, text in seekers.told("digest")]
    assert said == [parts(["Welders"], found) for found in ([before], [last, half, early], [after])]
    spring = digests.window(datetime(2026, 3, 8, 9, tzinfo=UTC), NY, "05:00")
    assert spring.end - spring.start == timedelta(hours=23)


@pytest.mark.rule("STAFF-6.04")
@pytest.mark.rule("STAFF-7.12")
@pytest.mark.rule("STAFF-7.13")
def test_a_user_gets_one_mail_with_a_part_for_each_search(town: Town, seekers: Seekers) -> None:
    user = seekers.user()
    workers = [seekers.worker(listed=SLOT - timedelta(hours=n + 1)) for n in range(5)]
    near = seekers.worker(listed=SLOT - timedelta(hours=9), zip_code="20002", trade="plumber")
    names = ["All", "Deleted place", "No trade", "Broken"]
    seekers.search(user, name="All")
    seekers.search(user, {"trade": "welder", "zip_code": "00000"}, name="Deleted place")
    seekers.search(user, {"trade": "alchemist"}, name="No trade")
    seekers.search(user, {"trade": ["welder"]}, name="Broken")
    empty = seekers.user()
    seekers.search(empty, {"trade": "alchemist"}, name="Nothing")
    town.conn.execute("update staffing.saved_searches set instant_enabled = false")
    come(town, SLOT)
    assert seekers.told("digest") == [
        (user, "email", parts(names, workers, [], [], [])),
        (empty, "email", f"Nothing\n{NOBODY}\n\n"),
    ]
    assert f"/workers/{near}" not in parts(names, workers, [], [], [])
    assert town.value("select count(*) from staffing.digest_parts") == 0
    assert {state for (state,) in town.rows("select distinct state from mainspring.jobs")} == {"succeeded"}


@pytest.mark.rule("STAFF-6.06")
@pytest.mark.rule("STAFF-17.09")
def test_a_zone_is_asked_fifty_searches_at_a_time(town: Town, seekers: Seekers) -> None:
    user = seekers.user()
    for n in range(120):
        seekers.search(user, {"trade": "welder"}, name=f"Search {n}", instant_enabled=False)
    come(town, SLOT)
    jobs = town.rows(
        "select jsonb_array_length(payload -> 'search_ids') from mainspring.jobs where task = 'put_together'"
    )
    assert sorted(size for (size,) in jobs) == [20, 50, 50]
    ((_, _, text),) = seekers.told("digest")  # and still one mail
    assert text.count(NOBODY) == 120


@pytest.mark.rule("STAFF-6.08")
def test_a_zone_that_is_none_is_read_as_utc_and_said(
    town: Town, seekers: Seekers, caplog: pytest.LogCaptureFixture
) -> None:
    lost, missing = seekers.user(timezone="Mars/Base"), seekers.user(timezone="")
    utc = seekers.user(timezone="UTC")
    for user in (lost, missing, utc):
        seekers.search(user)
    come(town, datetime(2026, 6, 3, 5, tzinfo=UTC))
    assert town.messages() == [("digest", user, "email", "Sent") for user in (lost, missing, utc)]
    assert fires(town) == [("UTC", datetime(2026, 6, 3, 5, tzinfo=UTC))]
    lines = [(line.levelname, vars(line).get("user_id")) for line in caplog.records if "time zone" in line.getMessage()]
    assert lines == [("ERROR", lost), ("ERROR", missing)]
    seekers.newcomer()  # at 05:00 UTC they sleep, by the same reading
    town.mainspring.drain()
    assert seekers.told("instant_alert") == []
    town.mainspring.clock.set(datetime(2026, 6, 3, 7, tzinfo=UTC))
    town.mainspring.drain()
    assert {user for user, *_ in seekers.told("instant_alert")} == {lost, missing, utc}


@pytest.mark.rule("STAFF-6.09")
def test_a_date_that_does_not_exist_has_no_digest(town: Town) -> None:
    seekers = Seekers(town, datetime(2011, 12, 29, tzinfo=UTC))
    seekers.search(seekers.user(timezone=APIA), name="Welders", instant_enabled=False)
    worker = seekers.worker(listed=datetime(2011, 12, 30, 9, tzinfo=UTC))
    slots = [datetime(2011, 12, day, 15, tzinfo=UTC) for day in (29, 30)]  # the 29th and the 31st there
    for slot in slots:
        come(town, slot)
    assert fires(town) == [(APIA, slot) for slot in slots]
    assert [text for _, _, text in seekers.told("digest")] == [parts(["Welders"], []), parts(["Welders"], [worker])]
    assert digests.window(slots[1], APIA, "05:00").start == slots[0]


@pytest.mark.rule("STAFF-0.08")
def test_a_missed_digest_is_caught_up_on_the_same_local_day_only(town: Town, seekers: Seekers) -> None:
    user = seekers.user()
    seekers.search(user, instant_enabled=False)
    town.mainspring.drain()
    town.mainspring.clock.set(datetime(2026, 6, 4, 3, 59, tzinfo=UTC))  # Wednesday 23:59 in New York
    town.mainspring.drain()
    assert [row[0] for row in seekers.told("digest")] == [user]
    assert fires(town) == [(NY, SLOT)]
    town.mainspring.drain()
    town.mainspring.clock.set(SLOT + DAY + timedelta(hours=19))  # Friday 00:00
    town.mainspring.drain()
    assert len(seekers.told("digest")) == 1
    come(town, SLOT + 2 * DAY)
    assert len(seekers.told("digest")) == 2


@pytest.mark.rule("STAFF-7.18")
def test_a_slot_is_told_once_however_often_it_is_begun(town: Town, seekers: Seekers) -> None:
    one = seekers.search(seekers.user(), instant_enabled=False)
    town.mainspring.drain()
    town.mainspring.clock.set(SLOT + timedelta(minutes=10))  # late: the slot is not when somebody works on it
    town.mainspring.drain()
    town.mainspring.clock.advance(minutes=10)
    for _ in range(2):
        town.mainspring.run_one(digest.begin_digest.job(instant=SLOT, zone=NY))
        town.mainspring.run_one(digest.put_together.job(slot=SLOT, zone=NY, search_ids=[one], size=1))
    town.mainspring.drain()
    assert len(seekers.told("digest")) == 1
    assert town.rows("select saved_search_id, slot from staffing.alert_deliveries") == [(one, SLOT.isoformat())]


@pytest.mark.rule("STAFF-7.14")
def test_a_search_that_finds_nobody_for_a_month_is_switched_off_where_that_is_wanted(
    town: Town, seekers: Seekers, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = seekers.user()
    about: Any = {"instant_enabled": False, "zero_result_streak": 28}
    alchemy = {"trade": "alchemist"}
    lost = seekers.search(user, alchemy, name="Alchemists", **about)
    lucky = seekers.search(user, name="Welders", **about)
    kept = seekers.search(
        seekers.user(timezone=KOLKATA), {"trade": "alchemist"}, instant_enabled=False, zero_result_streak=40
    )

    def streaks() -> list[tuple[int, bool]]:
        return [
            (row["zero_result_streak"], row["is_active"])
            for row in (town.row("saved_searches", s) for s in (lost, lucky))
        ]

    come(town, SLOT - timedelta(hours=9, minutes=30))
    assert town.row("saved_searches", kept)["is_active"]  # off unless somebody asks for it
    town.conn.execute("delete from staffing.alert_deliveries")
    town.conn.execute("delete from staffing.saved_searches where id = %s", [kept])
    monkeypatch.setitem(vars(town.desk), "settings", Settings(deactivate_empty_searches=True))
    seekers.worker(listed=SLOT + timedelta(hours=1))
    come(town, SLOT)
    assert streaks() == [(29, True), (29, True)]
    come(town, SLOT + DAY)
    assert streaks() == [(30, False), (0, True)]
    ((who, channel, text),) = seekers.told("search_deactivated")
    assert (who, channel) == (user, "email")
    assert text == "Your saved search Alchemists found no workers for 30 days and has been switched off."
    come(town, SLOT + 2 * DAY)
    assert len(seekers.told("search_deactivated")) == 1
    assert streaks() == [(30, False), (1, True)]
    assert town.audit("search_deactivated") == [("SYSTEM", "search", lost, "Zero_Results", None)]


def test_who_was_taken_while_a_part_waited_is_not_told(town: Town, seekers: Seekers) -> None:
    user = seekers.user()
    seekers.search(user, name="Welders", instant_enabled=False)
    seekers.search(user, {"trade": "plumber"}, name="Plumbers", instant_enabled=False)
    gone, stays = (seekers.worker(listed=SLOT - timedelta(hours=n)) for n in (1, 2))
    seekers.breaks("if trade = 'plumber' then raise 'slow' using errcode = '57014'; end if;")
    come(town, SLOT, raise_errors=False)
    assert seekers.told("digest") == []  # one mail: it waits for its other part
    town.conn.execute("update staffing.workers set state = 'Unlisted' where id = %s", [gone])
    seekers.breaks("")
    town.mainspring.advance(minutes=1)
    assert [text for _, _, text in seekers.told("digest")] == [parts(["Welders", "Plumbers"], [stays], [])]
