"""Shares of a rate: handed out by the database, counted by workers, and never more than the rate in any window."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from typing import Any, cast

import msgspec
import pytest
from tests.db.engine import Engine
from tests.worker.limits.conftest import NOON
from tests.worker.limits.windows import largest

import mainspring as ms
from mainspring.worker.attempt import LiveAttempt
from mainspring.worker.rates import Rates, gates_of
from mainspring.worker.share import Share

QUEUE = "q:default"
GATE = f"rate:{QUEUE}/"


@pytest.fixture(autouse=True)
def shared(engine: Engine) -> None:
    """Workers keep shares though time is the test's: here their clock is the same."""
    engine.conn.execute("create or replace function mainspring.is_virtual() returns boolean language sql return false")


class Moment:
    """The clock of one worker's loop."""

    def __init__(self) -> None:
        self.now = 0.0

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, call: Any) -> Any:
        class Timer:
            def cancel(self) -> None: ...

        return Timer()


class Held:
    """A job that one of these workers holds."""

    def __init__(self, epoch: int, now: float) -> None:
        self.epoch, self.received_at = epoch, now
        self.shares: list[Share] = []
        self.passing, self.start_by = False, 0.0


class Hand:
    """A worker as far as rates go: what it holds, and what is on its way to it."""

    def __init__(self, engine: Engine, name: str, clock: Moment) -> None:
        self.engine, self.name, self.clock = engine, name, clock
        self.rates = Rates(known=True, loop=cast(Any, clock))
        self.held: list[Held] = []
        self.talking = 0
        self.entered: list[float] = []

    def ask(self, want: int = 100) -> tuple[Any, ...]:
        """What the database makes of a turn that begins now; the answer is taken in by `hear`."""
        sent, alone = self.clock.now, not self.talking
        told, asks = self.rates.report(sent, alone=alone)
        self.talking += 1
        return sent, told, asks, want

    def serve(self, turn: tuple[Any, ...]) -> tuple[Any, ...]:
        sent, told, asks, want = turn
        with self.engine.conn.transaction():
            jobs = self.engine.claim(self.name, n=want, told=told)
            rows = self.engine.ask("shares", [self.name])
        return jobs, rows, asks, sent

    def hear(self, answer: tuple[Any, ...]) -> int:
        jobs, rows, asks, sent = answer
        self.talking -= 1
        for job in jobs:
            run = Held(job.epoch, self.clock.now)
            self.rates.receive(cast(LiveAttempt, run), gates_of(job.gates))
            self.held.append(run)
        got = {gate for job in jobs for gate in gates_of(job.gates)}
        for share in self.rates.answered(rows, asks, got, sent):
            self.back([run for run in self.held if share in run.shares])
        return len(jobs)

    def turn(self, want: int = 100) -> int:
        """Ask, and be answered at once."""
        return self.hear(self.serve(self.ask(want)))

    def enter(self) -> int:
        """Enter whatever may be entered now."""
        self.let_through()
        return self.arrive()

    def let_through(self) -> None:
        """Let whatever may be entered now go on its way."""
        for run in self.held:
            if not run.passing:
                self.rates.take(cast(LiveAttempt, run))

    def arrive(self) -> int:
        """What is on its way comes to its handler, or goes back where its share may be somebody else's."""
        count = 0
        for run in [run for run in self.held if run.passing]:
            if self.clock.now >= run.start_by:
                self.back([run])
                continue
            self.rates.entered(cast(LiveAttempt, run))
            self.entered.append(self.clock.now)
            self.held.remove(run)
            self.engine.complete(self.name, run.epoch)
            count += 1
        return count

    def back(self, runs: list[Held]) -> None:
        for run in runs:
            self.rates.give_back(cast(LiveAttempt, run))
            self.held.remove(run)
            self.engine.settle(self.name, {"epoch": run.epoch, "verb": "release", "started": False})

    @property
    def n(self) -> int:
        share = self.rates._shares.get(GATE)
        return share.n if share is not None else 0


class World:
    """Workers of one rate, whose clocks and the database's go on together."""

    def __init__(self, engine: Engine, client: ms.Client, most: int, per: timedelta, jobs: int) -> None:
        self.engine, self.clock, self.per = engine, Moment(), per.total_seconds()
        client.limits.set(ms.rate(QUEUE, most, per=per))
        engine.enqueue_many([{}] * jobs)
        self.hands = 0

    def hand(self) -> Hand:
        self.hands += 1
        return Hand(self.engine, f"w{self.hands}", self.clock)

    def pass_by(self, seconds: float) -> None:
        self.clock.now += seconds
        self.engine.clock.set(NOON + timedelta(seconds=self.clock.now))

    def play(self, hands: list[Hand], seconds: float, away: float, apart: float = 0.0, first: int = 100) -> None:
        """Workers that come one after the other, so far from the database each way, ask when they have a reason to.

        `first` is how many jobs each asks for at first.
        """
        flying: list[tuple[float, Hand, bool, tuple[Any, ...]]] = []
        begun = self.clock.now
        step = min(self.per / 20, 0.01)
        while self.clock.now < begun + seconds:
            self.pass_by(step)
            now = self.clock.now
            for flight in [f for f in flying if f[0] <= now]:
                flying.remove(flight)
                _, hand, asks, said = flight
                if asks:
                    flying.append((now + away, hand, False, hand.serve(said)))
                else:
                    hand.hear(said)
            for nth, hand in enumerate(hands):
                if now < begun + nth * apart:
                    continue
                if hand.talking < 2 and (not hand.rates._shares or hand.rates.due(now) <= now):
                    flying.append((now + away, hand, True, hand.ask(100 if hand.entered else first)))
                hand.enter()
        for _, hand, asks, said in flying:
            hand.hear(hand.serve(said) if asks else said)


def shares(engine: Engine) -> dict[str, int]:
    return dict(engine.rows("select worker, n from mainspring.share where until > mainspring.now() order by 1"))


@pytest.mark.rule("ENG-25.02")
@pytest.mark.parametrize("per", [timedelta(milliseconds=100), timedelta(seconds=1), timedelta(days=1)], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_no_window_holds_more_than_the_rate_whatever_is_slow_lost_or_killed(
    engine: Engine, client: ms.Client, per: timedelta, seed: int
) -> None:
    """Turns take up to three windows or two seconds, answers are lost, workers die; each counts by its own clock."""
    chance, most = random.Random(seed), 6
    world = World(engine, client, most, per, 600)
    slow = min(world.per * 3, 2.0)
    hands = [world.hand() for _ in range(3)]
    entered: list[float] = []
    flying: list[tuple[float, Hand, bool, tuple[Any, ...]]] = []
    seen = Counter[str]()
    steps = 0
    while steps < 200 or seen["entered"] < 2 * most or not seen["lost"] or not seen["killed"]:
        steps += 1
        assert steps < 2000, seen
        world.pass_by(chance.choice((0.0, 0.02, 0.1, 0.4)) * min(world.per, 5.0))
        if world.per > 5 and chance.random() < 0.02:
            world.pass_by(world.per / 3)
        now = world.clock.now
        for flight in sorted((f for f in flying if f[0] <= now), key=lambda f: f[0]):
            flying.remove(flight)
            _, hand, asks, said = flight
            if hand not in hands:
                continue
            if asks:
                answer = hand.serve(said)
                flying.append((now + chance.random() * slow / 2, hand, False, answer))
            elif chance.random() < 0.05:  # lost: what it took is given back by who notices
                seen["lost"] += 1
                hand.talking -= 1
                hand.rates.unasked(said[2])
                for job in said[0]:
                    engine.settle(hand.name, {"epoch": job.epoch, "verb": "release"})
            else:
                hand.hear(said)
        for place, hand in enumerate(hands):
            if chance.random() < 0.5 and hand.talking < 2:
                flying.append((now + chance.random() * slow / 2, hand, True, hand.ask(chance.randint(1, 10))))
            if chance.random() < 0.7:  # what was let through is on its way while the worker asks and is answered
                seen["entered"] += hand.arrive()
            if chance.random() < 0.8:
                hand.let_through()
            if hand.held and chance.random() < 0.05:
                seen["back"] += 1
                hand.back(hand.held[:1])
            if chance.random() < 0.005:
                seen["killed"] += 1
                entered += hand.entered
                hands[place] = world.hand()
                engine.conn.execute("update mainspring.running set lease_expires_at = mainspring.now()")
                engine.rescue()
                engine.conn.execute("update mainspring.waiting set crashes = 0, due_at = mainspring.now()")
    entered += [at for hand in hands for at in hand.entered]
    assert largest(entered, world.per) <= most


@pytest.mark.rule("ENG-25.02")
@pytest.mark.parametrize("seed", [2, 5, 46])  # these exceeded the rate before
def test_no_window_holds_more_though_work_comes_in_bursts_and_answers_overtake_each_other(
    engine: Engine, client: ms.Client, seed: int
) -> None:
    """Between bursts shares are let go and their rows cleared away, while answers about them are on their way."""
    chance, most = random.Random(seed), 4
    world = World(engine, client, most, timedelta(seconds=1), 0)
    hands = [world.hand() for _ in range(3)]
    flying: list[tuple[float, Hand, bool, tuple[Any, ...]]] = []
    overtaken = bursts = 0
    while bursts < 40 or not overtaken:
        # While a worker is about to hear that its share is gone, above all.
        gone = any(not asks and not said[1] and hand.rates._shares for _, hand, asks, said in flying)
        if chance.random() < (0.5 if gone else 0.04):
            bursts += 1
            engine.enqueue_many([{}] * chance.randint(most, 2 * most))
        for _ in range(chance.choice((1, 1, 3, 12))):
            world.pass_by(chance.choice((0.02, 0.1)))
            now = world.clock.now
            for flight in sorted((f for f in flying if f[0] <= now), key=lambda f: f[0]):
                flying.remove(flight)
                _, hand, asks, said = flight
                if asks:
                    flying.append((now + chance.random() * 0.6, hand, False, hand.serve(said)))
                else:
                    overtaken += any(
                        other is hand and said[3] > turn[3] for _, other, asked, turn in flying if not asked
                    )
                    hand.hear(said)
            for hand in hands:
                if hand.talking < 2 and chance.random() < 0.6:
                    flying.append((now + chance.random() * 0.3, hand, True, hand.ask(chance.randint(1, 6))))
                hand.enter()
    assert largest([at for hand in hands for at in hand.entered], world.per) <= most


def test_one_worker_alone_reaches_the_rate_though_each_answer_takes_three_windows(
    engine: Engine, client: ms.Client
) -> None:
    world = World(engine, client, 10, timedelta(milliseconds=100), 400)
    hand = world.hand()
    world.play([hand], 3.0, away=0.15)
    since = [at for at in hand.entered if at > 1.5]
    assert largest(hand.entered, 0.1) <= 10
    assert len(since) >= 0.9 * 10 * 15  # of what 1.5 s allow


@pytest.mark.parametrize(
    ("most", "many", "away", "apart"), [(20, 2, 0.1, 0.35), (20, 3, 0.05, 0.0), (7, 4, 0.05, 0.1), (3, 4, 0.05, 0.1)]
)
def test_workers_that_fetch_the_next_window_ahead_leave_the_others_their_part(
    engine: Engine, client: ms.Client, most: int, many: int, away: float, apart: float
) -> None:
    """One asks just before another in each window, and all that it entered in the last one counts still."""
    world = World(engine, client, most, timedelta(seconds=1), 8 * most)
    hands = [world.hand() for _ in range(many)]
    world.play(hands, 6.0, away, apart, first=max(1, most // 4))
    entered = [at for hand in hands for at in hand.entered]
    assert largest(entered, 1.0) == most
    assert sum(3 < at <= 6 for at in entered) >= 0.98 * 3 * most
    parts = sorted(hand.n for hand in hands)
    assert sum(parts) == most
    assert parts[-1] - parts[0] <= 1


def test_a_rate_that_was_raised_is_shared_alike(engine: Engine, client: ms.Client) -> None:
    world = World(engine, client, 4, timedelta(seconds=1), 300)
    hands = [world.hand(), world.hand()]
    world.play(hands, 3.0, away=0.05, apart=0.1)
    client.limits.set(ms.rate(QUEUE, 20, per="1s"))
    world.play(hands, 3.0, away=0.05)
    assert shares(engine) == {"w1": 10, "w2": 10}
    assert largest([at for hand in hands for at in hand.entered], 1.0) == 20


def test_a_second_worker_is_given_half_and_what_the_first_let_go_when_its_entries_are_over(
    engine: Engine, client: ms.Client
) -> None:
    world = World(engine, client, 10, timedelta(seconds=1), 200)
    first, second = world.hand(), world.hand()
    assert first.turn() == 10
    assert first.enter() == 10
    assert second.turn() == 0  # it wants some, and there is none
    world.pass_by(0.05)
    first.turn()  # hears that somebody wants some
    assert first.n == 5
    first.turn()  # says that it obeys; what it entered counts still
    assert second.turn() == 0
    world.pass_by(1.0)
    second.turn()
    assert second.n == 5
    assert sum(shares(engine).values()) == 10
    first.turn()
    assert (first.enter(), second.enter()) == (5, 5)
    assert largest([*first.entered, *second.entered], 1.0) == 10


def test_a_worker_without_jobs_lets_go_and_another_has_the_whole_rate(engine: Engine, client: ms.Client) -> None:
    world = World(engine, client, 4, timedelta(seconds=1), 4)
    first, second = world.hand(), world.hand()
    first.turn()
    assert first.enter() == 4
    for _ in range(30):
        world.pass_by(0.1)
        first.turn()
    assert shares(engine).get("w1", 0) == 0
    engine.enqueue_many([{}] * 10)
    assert second.turn() == 4
    assert second.enter() == 4


def test_of_a_days_rate_a_dead_worker_keeps_only_what_it_may_have_entered(engine: Engine, client: ms.Client) -> None:
    world = World(engine, client, 10, timedelta(days=1), 100)
    dead, heir = world.hand(), world.hand()
    dead.turn(want=3)
    assert shares(engine) == {"w1": 5}
    world.pass_by(4)  # its share has ended: of its five, three were let in, and may have been entered
    heir.turn()
    assert heir.enter() == 7
    world.pass_by(timedelta(hours=23).total_seconds())
    heir.turn()
    assert heir.enter() == 0
    world.pass_by(timedelta(hours=2).total_seconds())
    heir.turn()
    assert heir.enter() == 10


def test_the_shares_of_workers_that_are_gone_do_not_pile_up(engine: Engine, client: ms.Client) -> None:
    world = World(engine, client, 6, timedelta(seconds=1), 600)
    for _ in range(10):  # each is killed while it holds a share
        hand = world.hand()
        hand.turn()
        assert hand.enter() > 0
        world.pass_by(5.0)
    last = world.hand()
    last.turn()
    assert engine.rows("select distinct worker from mainspring.share") == [(last.name,)]


def test_an_answer_that_comes_late_does_not_raise_what_was_given_up(engine: Engine, client: ms.Client) -> None:
    world = World(engine, client, 10, timedelta(seconds=1), 200)
    first, second = world.hand(), world.hand()
    first.turn()
    old = first.serve(first.ask())  # says ten, and is slow
    second.turn()
    world.pass_by(0.01)
    first.turn()
    first.turn()
    assert first.n == 5
    first.hear(old)
    assert first.n == 5


def test_jobs_that_another_turn_brings_are_not_taken_for_lost_and_those_that_never_came_are(
    engine: Engine, client: ms.Client
) -> None:
    world = World(engine, client, 10, timedelta(days=1), 100)
    hand = world.hand()
    pending = "select let_in - entered - returned from mainspring.share"

    def speak() -> None:
        hand.rates._touch(hand.rates._shares[GATE], world.clock.now)
        hand.turn(want=0)

    hand.turn(want=1)
    coming = hand.serve(hand.ask(want=3))
    speak()
    assert engine.rows(pending) == [(4,)]
    hand.talking -= 1  # the answer is lost
    hand.rates.unasked(coming[2])
    speak()
    assert engine.rows(pending) == [(1,)]


def test_a_share_that_is_not_renewed_enters_nothing_more(engine: Engine, client: ms.Client) -> None:
    world = World(engine, client, 10, timedelta(seconds=1), 200)
    hand = world.hand()
    hand.turn()
    world.pass_by(3.1)
    assert hand.enter() == 0
    hand.turn()
    assert hand.enter() == 10


def test_a_limit_that_is_dropped_gives_back_what_waits_for_it(engine: Engine, client: ms.Client) -> None:
    world = World(engine, client, 10, timedelta(seconds=1), 20)
    hand = world.hand()
    hand.turn()
    client.limits.drop(f"rate:{QUEUE}")
    world.pass_by(0.1)
    hand.turn(want=0)
    assert hand.held == []
    assert engine.rows("select count(*) from mainspring.running") == [(0,)]
    assert engine.rows("select max(attempt) from mainspring.waiting") == [(0,)]


def test_shares_of_a_rate_by_organisation_are_counted_each_by_itself(engine: Engine, client: ms.Client) -> None:
    client.limits.set(ms.rate(task="t", most=2, per="1s", by="org"))
    engine.enqueue_many([{"org_id": org} for org in "aaabbb"])
    hand = Hand(engine, "w1", Moment())
    assert hand.turn() == 4
    assert hand.enter() == 4
    assert engine.rows("select gate, n from mainspring.share order by 1") == [("rate:t:org/a", 2), ("rate:t:org/b", 2)]


def test_what_a_rate_of_a_task_put_off_starts_before_a_backlog_that_is_due_longer(
    engine: Engine, client: ms.Client
) -> None:
    client.limits.set(ms.rate(task="t", most=2, per="1s"))
    engine.enqueue_many([{"task": "t"}] * 6)
    clock = Moment()
    hand = Hand(engine, "w1", clock)
    hand.turn()
    assert hand.enter() == 2
    engine.enqueue_many([{"task": "u"}] * 50)
    clock.now = 0.99
    engine.clock.set(NOON + timedelta(seconds=0.99))
    told, _ = hand.rates.report(clock.now, alone=True)
    jobs = engine.claim("w1", n=10, tasks=["t", "u"], told=told)
    assert Counter(job.task for job in jobs) == {"t": 2, "u": 8}


def test_a_worker_that_can_start_nothing_in_time_says_so(engine: Engine, client: ms.Client) -> None:
    world = World(engine, client, 2, timedelta(seconds=1), 3)
    hand, late = world.hand(), list[str]()
    hand.turn()
    world.pass_by(2)
    for run in hand.held:
        late += [share.limit for share in hand.rates.give_back(cast(LiveAttempt, run), late=True)]
    assert late == [f"rate:{QUEUE}"]  # once
    (share,) = msgspec.json.decode(hand.rates.report(world.clock.now, alone=True)[0])
    assert share["late"] == 2.0
    hand.rates._touch(hand.rates._shares[GATE], world.clock.now)
    hand.serve(hand.ask(want=0))
    ((job,),) = engine.rows("select id from mainspring.waiting")
    (check,) = [check for check in client.explain(job).checks if check.name == f"limit rate:{QUEUE}"]
    assert "worker w1 was let have jobs, and cannot start them in time" in check.detail


def test_four_workers_that_all_want_more_settle_on_equal_parts(engine: Engine, client: ms.Client) -> None:
    world = World(engine, client, 10, timedelta(milliseconds=100), 600)
    hands = [world.hand() for _ in range(4)]
    for _ in range(12):
        for hand in hands:
            hand.turn()
            hand.enter()
            world.pass_by(0.03)
    assert sorted(hand.n for hand in hands) == [2, 2, 3, 3]
    assert sorted(shares(engine).values()) == [2, 2, 3, 3]


def test_a_share_that_comes_again_is_never_taken_for_an_older_one(engine: Engine, client: ms.Client) -> None:
    world = World(engine, client, 5, timedelta(seconds=1), 30)
    hand = world.hand()
    hand.turn()
    assert hand.enter() == 5
    before = hand.rates._shares[GATE].version
    engine.conn.execute("delete from mainspring.share")  # as when it was let go, which this worker has not heard yet
    world.pass_by(2.0)
    for _ in range(3):
        hand.turn()
    assert hand.rates._shares[GATE].version > before
    assert hand.enter() > 0, "or its jobs would wait for ever for a share that it does not believe in"


def test_a_job_that_takes_a_place_is_not_fetched_before_its_rate_lets_it_start(
    engine: Engine, client: ms.Client
) -> None:
    world = World(engine, client, 3, timedelta(seconds=1), 30)
    client.limits.set(ms.concurrency(QUEUE, 10))
    hand = world.hand()
    hand.turn()
    assert (hand.enter(), len(hand.held)) == (3, 0)
    world.pass_by(0.97)
    hand.turn()  # without places the next ones would come now, to be here when the window opens
    assert hand.held == []
    assert engine.rows("select count(*) from mainspring.slot") == [(0,)]
    world.pass_by(0.2)
    hand.turn()
    assert hand.enter() == 3
