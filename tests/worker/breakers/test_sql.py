"""What the database decides: when a breaker opens, who may probe, what a call that began earlier says."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from tests.databases import Database
from tests.db.engine import Engine
from tests.worker.breakers.conftest import Breaker


def test_each_failure_counts_once_whoever_reports_it(stripe: Breaker) -> None:
    assert [stripe.report(0), stripe.report(0), stripe.state] == [[], [], "closed"]
    assert [stripe.report(0), stripe.state] == [["opened"], "open"]
    assert stripe.report(0, 0, 0, 0) == []  # it is open: they say nothing new


def test_many_at_once_open_it_once(stripe: Breaker) -> None:
    assert stripe.report(0, 0, 0, 0, 0, 0) == ["opened"]


@pytest.mark.rule("STAFF-16.02")
def test_before_the_pause_is_over_nobody_is_let_through_and_then_one_at_a_time(stripe: Breaker) -> None:
    stripe.report(0, 0, 0)
    first, second = stripe.running(), stripe.running()
    assert stripe.probe(first) == ("open", 60)
    stripe.clock.advance(seconds=59)
    assert stripe.probe(first) == ("open", 1)
    stripe.clock.advance(seconds=1)

    assert stripe.state == "half_open"
    assert [stripe.probe(first), stripe.probe(second)] == [("probe", 0), ("open", 0)]
    assert stripe.probe(first) == ("probe", 0)  # its next call
    assert stripe.report(probe=second, succeeded=1) == []  # nobody let it through
    assert stripe.report(probe=first, succeeded=1) == ["closed"]
    assert stripe.probe(second) == ("closed", 0)


def test_a_probe_whose_worker_was_killed_makes_room_when_its_lease_ends(stripe: Breaker) -> None:
    stripe.report(0, 0, 0)
    stripe.clock.advance(seconds=60)
    killed, other = stripe.running(lease=timedelta(seconds=30)), stripe.running()
    assert stripe.probe(killed)[0] == "probe"
    stripe.clock.advance(seconds=29)
    assert stripe.probe(other)[0] == "open"
    stripe.clock.advance(seconds=1)
    assert stripe.probe(other)[0] == "probe"


def test_a_probe_that_was_put_off_before_it_called_makes_room_at_once(stripe: Breaker) -> None:
    stripe.report(0, 0, 0)
    stripe.clock.advance(seconds=60)
    first, second = stripe.running(), stripe.running()
    stripe.probe(first)
    stripe.engine.settle("w1", {"epoch": first, "verb": "release"})

    assert stripe.probe(second)[0] == "probe"


def test_as_many_probes_as_declared_at_once_also_when_they_ask_together(database: Database, engine: Engine) -> None:
    stripe = Breaker(engine, probes=2)
    stripe.report(0, 0, 0)
    stripe.clock.advance(seconds=60)
    epochs = [stripe.running() for _ in range(3)]
    with database.connect() as other, stripe.conn.transaction():
        assert [stripe.probe(epochs[0])[0], stripe.probe(epochs[1])[0]] == ["probe", "probe"]
        other.execute("set lock_timeout = '50 ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):  # it waits for what the first decide
            other.execute("select * from mainspring.ask_probe('SYSTEM', 'stripe', '', %s)", [epochs[2]])
    assert stripe.probe(epochs[2])[0] == "open"


def test_a_failed_probe_opens_it_again_for_twice_as_long_up_to_the_longest(engine: Engine) -> None:
    stripe = Breaker(engine, pause="10 s", longest="35 s")
    stripe.report(0, 0, 0)
    pauses = []
    for _ in range(4):
        pauses.append(stripe.one("select until - since from mainspring.breaker"))
        stripe.clock.advance(pauses[-1])
        epoch = stripe.running()
        stripe.probe(epoch)
        assert stripe.report(0, probe=epoch) == ["opened"]
    assert pauses == [timedelta(seconds=s) for s in (10, 20, 35, 35)]

    stripe.clock.advance(seconds=35)
    epoch = stripe.running()
    stripe.probe(epoch)
    stripe.report(probe=epoch, succeeded=1)
    stripe.report(0, 0, 0)
    assert stripe.one("select until - since from mainspring.breaker") == timedelta(seconds=10)  # from the beginning


def test_a_call_that_began_before_it_last_changed_says_nothing_about_now(stripe: Breaker) -> None:
    stripe.report(0, 0, 0)
    stripe.clock.advance(seconds=60)
    epoch = stripe.running()
    stripe.probe(epoch)
    stripe.report(probe=epoch, succeeded=1)
    stripe.clock.advance(seconds=5)

    assert stripe.report(6, 6, 6, 7) == []
    assert stripe.report(4, 4, 4) == ["opened"]


def test_the_window_rolls_on_the_databases_clock(stripe: Breaker) -> None:
    for _ in range(6):
        assert stripe.report(0) == []
        stripe.clock.advance(seconds=16)
    assert stripe.report(0, 0) == ["opened"]


def test_a_rate_is_of_all_calls_that_were_reported(engine: Engine) -> None:
    stripe = Breaker(engine, rate=0.5, calls=10)
    assert stripe.report(0, 0, 0, succeeded=4) == []  # 3 of 7
    assert stripe.report(succeeded=3) == []  # 3 of 10
    assert stripe.report(0, 0, 0) == []  # 6 of 13
    assert stripe.report(0) == ["opened"]  # 7 of 14


def test_failures_that_are_far_apart_open_it_where_nothing_succeeds_between_for_so_long(engine: Engine) -> None:
    stripe = Breaker(engine, failures=5, failing_for="90 s")
    stripe.report(0)
    for _ in range(2):
        stripe.clock.advance(seconds=60)
        assert stripe.report(succeeded=1) == []  # once the window is empty, too
        assert stripe.report(0) == []
    stripe.clock.advance(seconds=60)
    assert stripe.report(0, succeeded=1) == []  # whichever came first
    stripe.clock.advance(seconds=89)
    assert stripe.report(0) == []
    stripe.clock.advance(seconds=1)
    assert [stripe.report(0), stripe.state] == [["opened"], "open"]

    stripe.clock.advance(seconds=60)
    first = stripe.running()
    stripe.probe(first)
    assert stripe.report(probe=first, succeeded=1) == ["closed"]
    assert stripe.report(0) == []  # a new row
    key: dict[str, Any] = {"org_id": "acme", "key": "7"}
    assert stripe.report(0, **key) == []
    stripe.clock.advance(seconds=90)
    assert stripe.report(0, **key) == ["opened"]


def test_the_row_stays_small_however_many_report(stripe: Breaker) -> None:
    stripe.declare(failures=100_000)
    for _ in range(300):
        stripe.clock.advance(milliseconds=200)
        stripe.report(0)
    assert stripe.one("select cardinality(at) from mainspring.breaker") <= 52
    assert stripe.one("select (select sum(f) from unnest(failed) f) from mainspring.breaker") in range(145, 155)


@pytest.mark.parametrize("hours", [-1, 24])
def test_a_clock_that_jumps_neither_locks_it_open_nor_loses_it(stripe: Breaker, hours: int) -> None:
    stripe.report(0, 0, 0)
    stripe.clock.advance(hours=hours)

    assert stripe.state == "half_open"
    assert stripe.probe(stripe.running())[0] == "probe"


def test_a_rule_that_changes_holds_for_its_keys_at_once(stripe: Breaker) -> None:
    stripe.report(0, org_id="acme", key="7")
    stripe.declare(failures=2)
    assert stripe.report(0, org_id="acme", key="7") == ["opened"]


def test_a_key_does_not_open_the_whole_nor_the_same_key_of_another(stripe: Breaker) -> None:
    assert stripe.report(0, 0, 0, org_id="acme", key="7") == ["opened"]
    epoch = stripe.running()
    assert stripe.probe(epoch, "acme", "7")[0] == "open"
    assert (
        stripe.probe(epoch, "zeta", "7")[0] == stripe.probe(epoch, "acme", "8")[0] == stripe.probe(epoch)[0] == "closed"
    )


def test_what_is_forced_is_not_moved_by_calls(stripe: Breaker) -> None:
    stripe.conn.execute("select mainspring.close_breaker('stripe', 'user', 'ada', 'I know better')")
    assert stripe.report(0, 0, 0, 0) == []
    assert stripe.state == "closed"
    stripe.conn.execute("select mainspring.open_breaker('stripe', 'user', 'ada', 'maintenance')")
    stripe.clock.advance(days=1)
    assert stripe.state == "open"
    assert stripe.probe(stripe.running()) == ("open", 60)
    stripe.conn.execute("select mainspring.auto_breaker('stripe', 'user', 'ada', 'it is over')")
    assert stripe.state == "closed"


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ("'nobody', 'user', 'ada', 'why'", "name"),
        ("'', 'user', 'ada', 'why'", "name"),
        ("null, 'user', 'ada', 'why'", "name"),
        ("'stripe', 'robot', 'ada', 'why'", "actor_type"),
        ("'stripe', 'user', '', 'why'", "actor_id"),
        ("'stripe', 'user', 'ada', null", "reason"),
        ("'stripe', 'user', 'ada', ' '", "reason"),
        ("'stripe', 'user', 'ada', 'why', null", "key"),
        ("'stripe', 'user', 'ada', 'why', E'a\\nb'", "key"),
        ("'stripe', 'user', 'ada', 'why', '7', null", "org"),
        ("'stripe', 'user', 'ada', 'why', '7', ''", "org"),
    ],
)
@pytest.mark.parametrize("verb", ["open_breaker", "close_breaker", "auto_breaker"])
def test_what_a_person_says_wrongly_is_refused_by_its_field(
    stripe: Breaker, verb: str, arguments: str, field: str
) -> None:
    with pytest.raises(psycopg.Error) as caught:
        stripe.conn.execute(f"select mainspring.{verb}({arguments})".encode())
    assert (caught.value.sqlstate, caught.value.diag.message_detail) == ("MS001", field)
