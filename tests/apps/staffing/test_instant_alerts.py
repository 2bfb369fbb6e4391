from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pytest
from tests.apps.staffing.seekers import NOON, Seekers
from tests.apps.staffing.town import Town

from mainspring_apps.staffing import store
from mainspring_apps.staffing.registry import INSTANT_QUEUE
from mainspring_apps.staffing.rules import quiet
from mainspring_apps.staffing.rules.matching import NOBODY, Asked, asked, fits
from mainspring_apps.staffing.searches import digest, instant, listings, search
from mainspring_apps.staffing.states import Refused

NIGHT = datetime(2026, 6, 3, 3, 30, tzinfo=UTC)  # Tuesday 23:30 in New York
MORNING = datetime(2026, 6, 3, 11, tzinfo=UTC)  # Wednesday 07:00


@pytest.fixture
def seekers(town: Town) -> Seekers:
    return Seekers(town)


@pytest.mark.rule("STAFF-5.01")
@pytest.mark.rule("STAFF-5.02")
@pytest.mark.rule("STAFF-5.12")
def test_a_new_listing_is_news_once_and_no_other_change_is(town: Town, seekers: Seekers) -> None:
    one = seekers.search(seekers.user())
    worker = seekers.worker()

    assert seekers.enlist(worker)
    ((task, due, _),) = town.waiting()
    assert (task, due) == ("announce", NOON)
    assert town.value("select queue from mainspring.jobs where task = 'announce'") == INSTANT_QUEUE
    assert town.messages() == []  # nothing was searched in the caller's transaction

    town.mainspring.drain()
    assert seekers.deliveries() == [(one, "instant", "Sent", None)]
    assert not seekers.enlist(worker)  # is listed
    town.conn.execute("update staffing.workers set zip_code = '10002' where id = %s", [worker])
    assert town.waiting() == []
    town.desk.enqueue(town.conn, instant.announce.job(worker_id=worker, listed_at=NOON))  # delivered again
    again = instant.match.job(worker_id=worker, listed_at=NOON, search_ids=[one], size=1)
    town.desk.enqueue(town.conn, again)
    town.mainspring.drain()
    assert len(seekers.told("instant_alert")) == 2  # by SMS and by mail
    assert seekers.deliveries() == [(one, "instant", "Sent", None)]

    assert listings.unlist_worker(town.desk, town.conn, worker, by=town.admin_of("workers", worker))
    assert not listings.unlist_worker(town.desk, town.conn, worker, by=town.admin_of("workers", worker))
    assert town.waiting() == []
    town.mainspring.clock.advance(minutes=20)
    assert seekers.enlist(worker)  # a new listing is new
    town.mainspring.drain()
    assert len(seekers.told("instant_alert")) == 4


@pytest.mark.rule("STAFF-5.01")
def test_a_listing_that_is_rolled_back_is_no_news(town: Town, seekers: Seekers) -> None:
    worker = seekers.worker()
    with town.conn.transaction(force_rollback=True):
        assert listings.list_worker(town.desk, town.conn, worker, by=town.admin_of("workers", worker))
    assert town.waiting() == []
    with pytest.raises(Refused, match="worker_id: there is no worker 999"):
        listings.list_worker(town.desk, town.conn, 999, by=town.admin_of("workers", worker))


@pytest.mark.rule("STAFF-5.03")
@pytest.mark.rule("STAFF-5.04")
@pytest.mark.rule("STAFF-5.07")
def test_active_searches_that_match_are_told_on_the_channels_of_their_users(town: Town, seekers: Seekers) -> None:
    both, mail, texts, none = (
        seekers.user(alert_channels=channels) for channels in (["sms", "email"], ["email"], ["sms"], [])
    )
    welders = seekers.search(both, {"trade": "welder", "zip_code": "10001"}, name="Welders")
    others = [seekers.search(user, {"trade": "welder"}) for user in (mail, texts)]
    seekers.search(none)
    seekers.search(both, {"trade": "plumber"})
    seekers.search(both, {"trade": "welder", "zip_code": "10002"})
    seekers.search(both, is_active=False)
    seekers.search(both, instant_enabled=False)

    worker = seekers.newcomer()
    town.mainspring.drain()

    text = f"A new worker matches your saved search {{}}: https://app.example.com/workers/{worker}"
    assert seekers.told("instant_alert") == [
        (both, "email", text.format("Welders")),
        (both, "sms", text.format("Welders")),
        (mail, "email", text.format("Saved search")),
        (texts, "sms", text.format("Saved search")),
    ]
    assert [row[0] for row in seekers.deliveries()] == [welders, *others]
    assert len(town.sms()) == 2
    assert {status for *_, status in town.messages("instant_alert")} == {"Sent"}


@pytest.mark.rule("STAFF-5.04")
@pytest.mark.rule("STAFF-5.05")
@pytest.mark.rule("STAFF-5.06")
def test_a_sleeper_is_told_in_the_morning_of_who_is_still_there(town: Town, seekers: Seekers) -> None:
    town.mainspring.clock.set(NIGHT)
    sleeper, tokyo = seekers.user(), seekers.user(timezone="Asia/Tokyo")  # where it is noon
    early = seekers.user(quiet_hours_start=time(21), quiet_hours_end=time(5, 30))
    for user in (sleeper, tokyo, early):
        seekers.search(user, digest_enabled=False)
    off = [seekers.search(seekers.user(), digest_enabled=False) for _ in range(2)]
    taken, stays, again = (seekers.newcomer() for _ in range(3))
    town.mainspring.drain()
    assert {user for user, *_ in seekers.told("instant_alert")} == {tokyo}

    town.mainspring.clock.advance(hours=2, minutes=30)  # 02:00
    town.conn.execute("update staffing.saved_searches set instant_enabled = false where id = %s", [off[0]])
    town.conn.execute("update staffing.saved_searches set is_active = false where id = %s", [off[1]])
    listings.unlist_worker(town.desk, town.conn, taken, by=town.admin_of("workers", taken))
    listings.unlist_worker(town.desk, town.conn, again, by=town.admin_of("workers", again))
    seekers.enlist(again)  # a listing of its own
    town.mainspring.drain()
    town.mainspring.clock.set(MORNING - timedelta(seconds=1))
    town.mainspring.drain()
    assert {user for user, *_ in seekers.told("instant_alert")} == {tokyo, early}
    town.mainspring.advance(seconds=1)

    def links(user: int) -> list[str]:
        texts = (text for who, channel, text in seekers.told("instant_alert") if (who, channel) == (user, "sms"))
        return sorted(text.rpartition("/")[2] for text in texts)

    assert {user for user, *_ in seekers.told("instant_alert")} == {tokyo, early, sleeper}  # nobody who wants none
    assert links(sleeper) == sorted(str(worker) for worker in (stays, again))
    assert links(early) == links(sleeper)
    sent = town.rows("select distinct sent_at from staffing.notification_log where recipient_id = %s", sleeper)
    assert sent == [(MORNING,)]


@pytest.mark.rule("STAFF-5.08")
@pytest.mark.rule("STAFF-7.17")
def test_a_worker_who_is_booked_for_the_dates_is_left_out(
    town: Town, seekers: Seekers, caplog: pytest.LogCaptureFixture
) -> None:
    busy = seekers.worker()
    town.booking(lender=seekers.lender, worker=busy, borrower=seekers.borrower, shifts=[date(2026, 6, 9)])
    user = seekers.user()
    during = {"trade": "welder", "from": "2026-06-08", "to": "2026-06-09"}
    after = {"trade": "welder", "from": "2026-06-10", "to": "2026-06-10"}
    seekers.search(user, during)
    free = seekers.search(user, after)
    seekers.enlist(busy)
    town.mainspring.drain()
    assert seekers.deliveries() == [(free, "instant", "Sent", None)]
    assert not [line for line in caplog.records if line.levelname in ("ERROR", "WARNING")]
    # The main search is the same function, and says the same.
    assert vars(instant)["find"] is vars(digest)["find"] is search.find
    found = search.find(town.conn, asked(during, "America/New_York"), asked(after, "America/New_York"))
    assert [[worker.id for worker in one] for one in found] == [[], [busy]]
    town.conn.execute("update staffing.time_log set status = 'Cancelled', cancelled_at = mainspring.now()")
    ((worker,),) = search.find(town.conn, asked(during, "America/New_York"))  # at once: nothing is remembered
    assert worker.id == busy


@pytest.mark.rule("STAFF-5.09")
@pytest.mark.rule("STAFF-17.09")
def test_searches_are_matched_fifty_at_a_time(town: Town, seekers: Seekers) -> None:
    wanted = seekers.crowd(120)
    seekers.crowd(10, trades=["plumber"])
    seekers.newcomer()
    town.mainspring.run_one(instant.announce)
    jobs = town.rows(
        "select payload from mainspring.jobs where task = 'match' order by (payload -> 'search_ids' ->> 0)::int"
    )
    sizes = [len(payload["search_ids"]) for (payload,) in jobs]
    assert sizes == [50, 50, 20]
    assert [id_ for (payload,) in jobs for id_ in payload["search_ids"]] == wanted


@pytest.mark.rule("STAFF-5.10")
def test_the_eleventh_alert_of_an_hour_goes_to_the_digest(town: Town, seekers: Seekers) -> None:
    user, other = seekers.user(alert_channels=["email"]), seekers.user(alert_channels=["email"])
    mine = seekers.search(user)
    workers = [seekers.newcomer() for _ in range(15)]
    town.mainspring.drain()
    seekers.search(other)
    assert len(seekers.told("instant_alert")) == 10
    assert [row[2:] for row in seekers.deliveries()] == [("Sent", None)] * 10 + [("Skipped", "limit")] * 5

    assert town.wrong("saved_searches_skipped") == []  # nothing is broken

    town.mainspring.clock.advance(hours=1, seconds=-1)
    workers += [seekers.newcomer() for _ in range(10)]
    town.mainspring.drain()
    assert len([row for row in seekers.told("instant_alert") if row[0] == user]) == 10
    assert len([row for row in seekers.told("instant_alert") if row[0] == other]) == 10
    town.mainspring.advance(seconds=1)
    workers.append(seekers.newcomer())
    town.mainspring.drain()
    assert len([row for row in seekers.told("instant_alert") if row[0] == user]) == 11

    town.mainspring.clock.set(datetime(2026, 6, 3, 9, tzinfo=UTC))
    town.mainspring.drain()
    ((_, _, text),) = [row for row in seekers.told("digest") if row[0] == user]
    assert all(f"/workers/{worker}\n" in text for worker in workers)
    assert (mine, "digest", "Sent", None) in seekers.deliveries()


@pytest.mark.rule("STAFF-5.11")
def test_the_profile_is_read_once_and_who_is_free_each_time(
    town: Town, seekers: Seekers, monkeypatch: pytest.MonkeyPatch
) -> None:
    seekers.crowd(51)
    worker = seekers.newcomer()
    read: list[str] = []
    many = store.many

    def seen(conn: Any, type_: Any, name: str, /, **params: Any) -> Any:
        read.append(name)
        return many(conn, type_, name, **params)

    monkeypatch.setattr(store, "many", seen)
    monkeypatch.setattr(store, "one", lambda *args, **params: next(iter(seen(*args, **params)), None))
    town.mainspring.run_one(instant.announce)
    town.mainspring.run_one(instant.match)
    town.conn.execute("update staffing.workers set state = 'Unlisted' where id = %s", [worker])
    town.mainspring.run_one(instant.match)
    assert read.count("worker_profile") == 1
    assert read.count("search_workers") == 2
    assert len(seekers.deliveries()) == 50  # the last one was asked after the worker had gone


@pytest.mark.rule("STAFF-7.16")
def test_only_the_primary_is_asked(town: Town, seekers: Seekers) -> None:
    seekers.worker(listed=NOON)
    (found,) = search.find(town.conn, Asked("welder"))
    assert len(found) == 1
    # What a replica would answer, for this connection alone.
    town.conn.execute("create function staffing.pg_is_in_recovery() returns boolean language sql as 'select true'")
    town.conn.execute("set search_path to staffing, pg_catalog")
    with pytest.raises(search.Unanswered, match="the database is a replica"):
        search.find(town.conn, Asked("welder"))


@pytest.mark.rule("STAFF-7.12")
@pytest.mark.parametrize(
    ("criteria", "want"),
    [
        ({}, Asked()),
        ({"trade": "welder", "zip_code": "10001"}, Asked("welder", "10001")),
        ({"trade": 7}, NOBODY),
        ({"colour": "red"}, NOBODY),
        ({"from": "soon"}, NOBODY),
        ({"from": "2026-06-09", "to": "2026-06-08"}, NOBODY),
        (
            {"from": "2026-06-08", "to": "2026-06-08"},
            Asked(None, None, datetime(2026, 6, 8, 4, tzinfo=UTC), datetime(2026, 6, 9, 4, tzinfo=UTC)),
        ),
    ],
)
def test_criteria_ask_for_exact_values_or_for_nobody(criteria: dict[str, Any], want: Asked) -> None:
    assert asked(criteria, "America/New_York") == want


@pytest.mark.parametrize(
    "dates", [{"to": "9999-12-31"}, {"from": "0001-01-01"}, {"from": "0001-01-01", "to": "9999-12-31"}]
)
def test_dates_far_away_are_no_trouble(dates: dict[str, Any]) -> None:
    want = asked(dates, "Pacific/Apia")
    assert want.starts is not None
    assert want.ends is not None
    assert want.starts < want.ends


@pytest.mark.rule("STAFF-5.05")
def test_quiet_hours_and_profiles_by_themselves() -> None:
    begin, end = time(22), time(7)
    assert quiet.waits_until(NIGHT, "America/New_York", begin, end) == MORNING
    assert quiet.waits_until(MORNING, "America/New_York", begin, end) is None
    assert quiet.waits_until(NOON, "Mars/Base", begin, end) is None  # read as UTC
    assert not fits(NOBODY, "welder", "10001")
    assert fits(Asked(), "welder", "10001")
