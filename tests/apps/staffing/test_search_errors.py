from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from tests.apps.staffing.seekers import Seekers, measured
from tests.apps.staffing.test_digest import come, parts
from tests.apps.staffing.town import Town

from mainspring_apps.staffing.registry import DIGEST_QUEUE, INSTANT_QUEUE
from mainspring_apps.staffing.rules import failures
from mainspring_apps.staffing.rules.failures import Again, Failure, Halve, SearchKind, Skip
from mainspring_apps.staffing.settings import Settings

SLOT = datetime(2026, 6, 3, 9, tzinfo=UTC)  # Wednesday 05:00 in New York
DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)
ORDINARY = "raise 'no memory' using errcode = '53200';"
LOST = "perform pg_terminate_backend(pg_backend_pid());"
#: A function of an extension that is gone, called before the first row, or after ten.
EXTENSION = "perform similarity('a', 'b');"
MID_QUERY = "return query select w.* from staffing.workers w limit 10; perform similarity('a', 'b');"
BACK = "create function similarity(text, text) returns real language sql as 'select 1.0::real'"


QUEUES = {"announce": INSTANT_QUEUE, "match": INSTANT_QUEUE, "begin_digest": DIGEST_QUEUE, "put_together": DIGEST_QUEUE}


@pytest.fixture
def seekers(town: Town) -> Seekers:
    return Seekers(town)


def until(moment: datetime, statement: str) -> str:
    return f"if mainspring.now() < '{moment.isoformat()}' then {statement} end if;"


def go(town: Town, **units: float) -> None:
    """Let time pass for searches alone: each is tried at its exact instant, and nobody else works."""
    target = town.now + timedelta(**units)
    due = [wait for wait in town.waiting() if wait[0] in QUEUES and wait[1] <= target]
    while due:
        task, at, _ = due[0]
        town.mainspring.clock.set(max(at, town.now))
        town.mainspring.drain(queue=QUEUES[task], raise_errors=False)
        due = [wait for wait in town.waiting() if wait[0] in QUEUES and wait[1] <= target]
    town.mainspring.clock.set(target)


@pytest.mark.rule("STAFF-7.01")
@pytest.mark.rule("STAFF-7.02")
@pytest.mark.rule("STAFF-7.03")
@pytest.mark.rule("STAFF-7.04")
def test_a_query_that_always_fails_is_tried_four_times_and_left_out(
    town: Town, seekers: Seekers, caplog: pytest.LogCaptureFixture
) -> None:
    one = seekers.search(seekers.user())
    seekers.breaks(ORDINARY)
    seekers.newcomer()
    go(town, minutes=10)
    tries = seekers.ran("match")
    assert len(tries) == 4
    for number, (before, after) in enumerate(pairwise(tries), 1):
        assert 0.75 < (after - before) / Settings().few_tries.delay(number, lambda: 0.5) < 1.25
    assert seekers.deliveries() == [(one, "instant", "Skipped", "ordinary")]
    lines = [vars(line) for line in caplog.records if line.levelname == "ERROR"]
    assert [(line["saved_search_id"], line["sqlstate"]) for line in lines] == [(one, "53200")] * 4
    assert all("no memory" in line["message"] for line in lines)
    assert town.messages() == []
    assert town.rows("select state from mainspring.jobs where task = 'match'") == [("succeeded",)]  # no dead letter
    seekers.breaks("")
    seekers.newcomer()  # the next event runs as ever
    town.mainspring.drain()
    assert seekers.deliveries()[1:] == [(one, "instant", "Sent", None)]


@pytest.mark.rule("STAFF-7.03")
@pytest.mark.rule("STAFF-7.04")
@pytest.mark.rule("STAFF-7.20")
def test_a_digest_that_is_left_out_today_comes_tomorrow(town: Town, seekers: Seekers) -> None:
    user = seekers.user()
    bad = seekers.search(user, {"trade": "plumber"}, name="Plumbers")
    good = seekers.search(user, name="Welders")
    seekers.breaks(until(SLOT + DAY, f"if trade = 'plumber' then {ORDINARY} end if;"))
    come(town, SLOT, raise_errors=False)
    go(town, minutes=10)
    town.mainspring.drain()
    # The mail came, without the part that failed, and nobody was told of that.
    assert [text for _, _, text in seekers.told("digest")] == [parts(["Welders"], [])]
    assert seekers.deliveries() == [(bad, "digest", "Skipped", "ordinary"), (good, "digest", "Sent", None)]
    assert measured(town, "staffing_search_retry_success_rate") == {("digest",): 0.0}
    come(town, SLOT + DAY)
    assert [text for _, _, text in seekers.told("digest")][1:] == [parts(["Plumbers", "Welders"], [], [])]


@pytest.mark.rule("STAFF-7.05")
@pytest.mark.rule("STAFF-7.06")
@pytest.mark.rule("STAFF-7.18")
@pytest.mark.parametrize(("minutes", "status"), [(20, "Sent"), (31, "Skipped")])
def test_a_lost_connection_is_waited_for_thirty_minutes(
    town: Town, seekers: Seekers, minutes: int, status: str
) -> None:
    ids = [seekers.search(seekers.user(), digest_enabled=False) for _ in range(2)]
    began = town.now
    seekers.breaks(until(began + minutes * MINUTE, LOST))
    worker = seekers.newcomer()
    go(town, minutes=29, seconds=59)
    assert [row[2] for row in seekers.deliveries()] == (["Sent"] * 2 if status == "Sent" else [])
    go(town, minutes=5)
    assert [row[:3] for row in seekers.deliveries()] == [(id_, "instant", status) for id_ in ids]
    assert {row[0] for row in town.rows("select slot from staffing.alert_deliveries")} == {
        f"{worker}:{began.isoformat()}"
    }
    assert len(seekers.told("instant_alert")) == (4 if status == "Sent" else 0)
    assert town.value("select count(*) from mainspring.jobs where task = 'match'") == 1  # the batch waits as a whole
    if status == "Skipped":
        assert seekers.ran("match")[-1] == began + 30 * MINUTE
        assert measured(town, "staffing_search_skips") == {("instant", "connection"): 2}
        assert measured(town, "staffing_search_outage_seconds") == {("instant", "connection"): 2 * 1800}


@pytest.mark.rule("STAFF-7.07")
@pytest.mark.rule("STAFF-7.09")
@pytest.mark.parametrize(("minutes", "status"), [(50, "Sent"), (61, "Skipped")])
def test_a_missing_extension_is_waited_for_an_hour_by_a_digest(
    town: Town, seekers: Seekers, minutes: int, status: str
) -> None:
    one = seekers.search(seekers.user(), name="Welders", instant_enabled=False)
    worker = seekers.worker(listed=SLOT - MINUTE)
    seekers.breaks(EXTENSION)
    come(town, SLOT)
    go(town, minutes=minutes)
    town.conn.execute(BACK)
    go(town, minutes=5)
    town.mainspring.drain()
    assert [row[:3] for row in seekers.deliveries()] == [(one, "digest", status)]
    assert [text for _, _, text in seekers.told("digest")] == (
        [parts(["Welders"], [worker])] if status == "Sent" else []
    )
    if status == "Skipped":
        assert seekers.ran("put_together")[-1] == SLOT + 60 * MINUTE
        assert measured(town, "staffing_search_skips") == {("digest", "extension"): 1}
        assert measured(town, "staffing_search_outage_seconds") == {("digest", "extension"): 3600}


@pytest.mark.rule("STAFF-7.08")
@pytest.mark.rule("STAFF-7.09")
@pytest.mark.rule("STAFF-7.10")
@pytest.mark.rule("STAFF-7.11")
@pytest.mark.parametrize("broken", [EXTENSION, MID_QUERY])
def test_a_missing_extension_skips_an_instant_alert_at_once_and_nothing_is_told_by_halves(
    town: Town, seekers: Seekers, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    one = seekers.search(seekers.user())
    for _ in range(10):
        seekers.worker(listed=town.now)
    seekers.breaks(broken)
    seekers.newcomer()
    town.mainspring.drain()
    assert len(seekers.ran("match")) == 1
    assert seekers.deliveries() == [(one, "instant", "Skipped", "extension")]
    assert town.messages() == []
    assert [vars(line)["sqlstate"] for line in caplog.records if line.levelname == "ERROR"] == ["42883"]
    assert measured(town, "staffing_search_skips") == {("instant", "extension"): 1}
    told = [("instant: extension", "1 alerts were left out of late")]
    assert town.wrong("saved_searches_skipped") == told
    town.conn.execute(BACK)
    seekers.newcomer()
    town.mainspring.drain()
    assert seekers.deliveries()[1:] == [(one, "instant", "Sent", None)]
    town.mainspring.clock.advance(minutes=59)
    assert town.wrong("saved_searches_skipped") == told
    town.mainspring.clock.advance(minutes=1)
    assert town.wrong("saved_searches_skipped") == []


@pytest.mark.rule("STAFF-6.07")
@pytest.mark.rule("STAFF-7.19")
@pytest.mark.rule("STAFF-7.20")
@pytest.mark.rule("STAFF-15.14")
@pytest.mark.rule("STAFF-17.13")
def test_a_batch_that_fails_is_halved_and_only_what_failed_is_tried_again_alone(town: Town, seekers: Seekers) -> None:
    ids = seekers.crowd(50)
    bad = [ids[3], ids[4], ids[40]]
    town.conn.execute('update staffing.saved_searches set criteria = \'{"trade": "cursed"}\' where id = any(%s)', [bad])
    seekers.breaks(until(SLOT + MINUTE / 2, f"if trade = 'cursed' then {ORDINARY} end if;"))
    town.mainspring.clock.set(SLOT - MINUTE)
    town.mainspring.drain()
    go(town, minutes=1)
    town.mainspring.drain(queue=DIGEST_QUEUE, raise_errors=False)
    sent = {row[0] for row in seekers.deliveries()}
    assert sent == set(ids) - set(bad)
    sizes = town.rows(
        "select jsonb_array_length(payload -> 'search_ids'), count(*) from mainspring.jobs where task = 'put_together'"
        " group by 1 order by 1 desc"
    )
    assert sizes[:2] == [(50, 1), (25, 2)]
    go(town, minutes=3)
    assert [row[2] for row in seekers.deliveries()] == ["Sent"] * 50
    assert len(seekers.told("digest")) == 50
    alone = town.rows("select payload from mainspring.jobs where task = 'put_together' and attempt > 1")
    assert sorted(payload["search_ids"] for (payload,) in alone) == [[id_] for id_ in bad]
    assert measured(town, "staffing_search_batch_failure_rate") == {("digest",): 1.0}
    assert measured(town, "staffing_search_retry_success_rate") == {("digest",): 1.0}
    seekers.breaks("")
    town.mainspring.clock.set(SLOT + DAY)
    town.mainspring.drain(queue=DIGEST_QUEUE)
    assert measured(town, "staffing_search_batch_failure_rate") == {("digest",): 0.5}


@pytest.mark.rule("STAFF-7.15")
def test_a_mail_that_cannot_be_delivered_stops_no_other(
    town: Town, seekers: Seekers, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = seekers.user(email="nowhere"), seekers.user()
    ids = [seekers.search(user, instant_enabled=False) for user in (first, second)]
    with caplog.at_level("INFO", logger="mainspring.notify"):
        come(town, SLOT, raise_errors=False)
    query = "select recipient_id, status, sent_at from staffing.notification_log order by recipient_id"
    assert town.rows(query) == [(first, "Failed", None), (second, "Sent", SLOT)]
    assert [line for line in caplog.records if "email:error" in line.getMessage()]
    assert seekers.deliveries() == [(id_, "digest", "Sent", None) for id_ in ids]


@pytest.mark.rule("STAFF-7.02")
@pytest.mark.rule("STAFF-7.05")
@pytest.mark.rule("STAFF-7.07")
@pytest.mark.rule("STAFF-7.08")
def test_what_follows_a_failure_by_its_class() -> None:
    half = timedelta(seconds=30)

    def follow(kind: SearchKind, failure: Failure, *, after: timedelta, **about: int) -> object:
        about = {"searches": 1, "attempt": 1, "tries": 0} | about
        return failures.follow(kind, failure, since=SLOT, now=SLOT + after, settings=Settings(), **about)

    now = timedelta(0)
    assert follow("digest", "ordinary", searches=2, after=now) == Halve()
    assert follow("instant", "extension", searches=50, after=now) == Halve()
    assert follow("digest", "connection", searches=50, after=now) == Again(half)
    assert [follow("digest", "ordinary", attempt=n, after=DAY) for n in (1, 3, 4)] == [Again(), Again(), Skip()]
    assert follow("instant", "extension", after=now) == Skip()
    assert follow("digest", "extension", tries=1, after=half) == Again(2 * half)
    assert follow("digest", "extension", tries=9, after=58 * MINUTE) == Again(2 * MINUTE)
    assert follow("digest", "extension", tries=9, after=60 * MINUTE) == Skip()
    assert follow("instant", "connection", tries=9, after=29 * MINUTE) == Again(MINUTE)
    assert follow("instant", "connection", tries=9, after=30 * MINUTE) == Skip()
    assert not failures.over("digest", "connection", SLOT, SLOT + 30 * MINUTE, Settings())
    assert failures.over("digest", "connection", SLOT, SLOT + 30 * MINUTE + half, Settings())
    assert not failures.over("digest", "ordinary", SLOT, SLOT + DAY, Settings())


@pytest.mark.parametrize(
    ("state", "failure"),
    [
        ("42883", "extension"), ("42704", "extension"), ("58P01", "extension"), ("08006", "connection"),
        ("57P01", "connection"), ("25006", "connection"), (None, "connection"), ("57014", "ordinary"),
        ("53200", "ordinary"), ("40P01", "ordinary"),
    ],
)  # fmt: skip
@pytest.mark.rule("STAFF-7.01")
def test_a_state_says_what_kind_of_failure_it_is(state: str | None, failure: str) -> None:
    assert failures.failure_of(state) == failure


def test_an_attempt_that_comes_after_the_window_asks_no_more(town: Town, seekers: Seekers) -> None:
    seekers.search(seekers.user(), digest_enabled=False)
    seekers.breaks(LOST)
    seekers.newcomer()
    town.mainspring.drain()
    seekers.breaks("")
    town.mainspring.clock.advance(minutes=45)  # nobody worked meanwhile
    town.mainspring.drain()
    assert [row[1:] for row in seekers.deliveries()] == [("instant", "Skipped", "connection")]
    assert town.messages() == []
