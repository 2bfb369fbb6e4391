"""A worker is killed at every step of the flows of money: another goes on, and the end is the same.

Each flow runs once unharmed, by real workers, which name their steps. Then, for each step: a fresh database, the same
flow, and a worker that sends itself SIGKILL there. The lease of the dead ends, another worker comes, and everything is
compared: rows, keys, the provider's books, messages, audit, jobs and alerts.

Of the messages, each name of a step is a point of death once: what is true of the first is true of the others. Here
each flow takes a few points, others in each run, and the kit's own worker goes on; `make crashes` takes all of them,
and starts another real worker after each death.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from typing import NamedTuple

import pytest
from tests.apps.staffing.crashes import Nursery, nursery
from tests.apps.staffing.flows import FLOWS, INSTANT, Flow, end_of, left, wrong
from tests.apps.staffing.town import Town
from tests.databases import check_tickets

from mainspring.testing import Harness
from mainspring.virtual.databases import DatabaseServer
from mainspring_apps.staffing.market import Market
from mainspring_apps.staffing.settings import Settings
from mainspring_sandbox import Courier, Sandbox
from mainspring_sandbox.ledger import real_time

ALL = os.environ.get("STAFFING_CRASHES") == "all"
SAMPLE = 3
LEASE = timedelta(seconds=61)
ROUNDS = 20
Fresh = Callable[[], AbstractContextManager[Town]]


class Phase(NamedTuple):
    """A worker came at this instant, and reached these steps."""

    at: datetime
    steps: list[str]


@pytest.fixture(scope="module")
def fork(mainspring_sandbox_server: Sandbox) -> Iterator[Nursery]:
    with nursery(mainspring_sandbox_server.environment()) as running:
        yield running


@pytest.fixture
def fresh(
    mainspring_server: DatabaseServer,
    mainspring_app: Market,
    mainspring_sandbox_server: Sandbox,
    monkeypatch: pytest.MonkeyPatch,
) -> Fresh:
    """Makes a marketplace with nobody in it, each time anew."""

    @contextmanager
    def made() -> Iterator[Town]:
        with mainspring_server.fresh(prepare=mainspring_app.migrations) as database:
            monkeypatch.setattr(mainspring_app, "_dsn", database.dsn)
            with Harness(database.dsn, mainspring_app) as harness:
                mainspring_sandbox_server.reset(harness.now)
                harness.visitors.append(Courier(mainspring_sandbox_server, mainspring_app))
                town = Town(harness, mainspring_sandbox_server, mainspring_app.desk)
                yield town
                town.close()
                check_tickets(harness.conn)
                mainspring_sandbox_server.reset(real_time)

    return made


def arrive(town: Town, at: datetime) -> None:
    """It is now, and what the provider sends has come."""
    town.mainspring.clock.set(at)
    for visitor in town.mainspring.visitors:
        visitor.visit(at)


def unharmed(town: Town, flow: Flow, fork: Nursery) -> list[Phase]:
    """The whole flow by workers that live, one for each instant at which there is something to do."""
    phases = list[Phase]()
    reached, last = Counter[str](), town.now + flow.lasts
    for _ in range(ROUNDS):
        arrive(town, town.now)
        ended = fork.drain(town.mainspring.dsn, flow, reached=reached)
        assert ended.signal == 0
        reached.update(step.rpartition(" #")[0] for step in ended.steps)
        phases.append(Phase(town.now, ended.steps))
        coming = [visitor.next_at(town.now) for visitor in town.mainspring.visitors]
        coming.append(town.value("select min(due_at) from mainspring.waiting"))
        due = [at for at in coming if at is not None and at <= last]
        if not due:
            return phases
        town.mainspring.clock.set(max(min(due), town.now))
    raise AssertionError(f"it does not end: {phases}")


def killed(town: Town, flow: Flow, fork: Nursery, phases: list[Phase], phase: int, step: str) -> list[str]:
    """The same flow, in which one worker dies and others go on; answers what the dead one has reached."""
    last, dsn = town.now + flow.lasts, town.mainspring.dsn
    if phase:
        town.mainspring.advance(to=phases[phase].at - INSTANT)
    arrive(town, phases[phase].at)
    reached = Counter(one.rpartition(" #")[0] for before in phases[:phase] for one in before.steps)
    ended = fork.drain(dsn, flow, fatal=step, reached=reached)
    assert (ended.signal, ended.steps[-1:]) == (signal.SIGKILL, [step])
    buried(town)
    if ALL:
        town.mainspring.clock.advance(LEASE)
        assert fork.drain(dsn, flow).signal == 0
    else:
        town.mainspring.expire_leases()
    town.mainspring.advance(to=max(last, town.now))
    return ended.steps


def buried(town: Town) -> None:
    """Wait until the database has noticed a death: until then what the dead one held is locked."""
    held = """select count(*) from pg_stat_activity
              where datname = current_database() and pid <> pg_backend_pid() and xact_start is not null"""
    for _ in range(5000):
        if not town.value(held):
            return
        time.sleep(0.002)
    raise AssertionError("the transaction of a dead worker stays open")


def points(phases: list[Phase]) -> list[tuple[int, str]]:
    """Where a worker may die: every step of every phase, of messages the first of each name."""
    found = [(number, step) for number, phase in enumerate(phases) for step in phase.steps]
    first = (" #1", " commit #2")  # the second commit of a message says that it was sent
    return [(number, step) for number, step in found if not step.startswith("notify.") or step.endswith(first)]


def in_flight(steps: list[str]) -> bool:
    """Whether a mail was handed over, or nearly, and nobody wrote that down: it may go out twice, SMTP knows no key."""
    open_ = False
    for step in steps:
        if step.startswith("notify.deliver: before mail"):
            open_ = True
        elif step.startswith("notify.deliver: after commit"):
            open_ = False
    return open_


@pytest.mark.rule("STAFF-19.15", "STAFF-19.02", "STAFF-1.28", "STAFF-13.08")
@pytest.mark.timeout(600)  # each step costs a database, a fork and a second worker
@pytest.mark.cases(3)
@pytest.mark.parametrize("name", FLOWS)
def test_killed_at_any_step_the_flow_ends_as_if_nothing_had_happened(
    name: str, fresh: Fresh, fork: Nursery, mainspring_app: Market, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = FLOWS[name]
    monkeypatch.setitem(vars(mainspring_app.desk), "settings", Settings(transfer_timing=flow.timing))
    with fresh() as town:
        flow.begin(town)
        phases = unharmed(town, flow, fork)
        assert wrong(town) == []
        reference, messages = end_of(town), left(town)
    assert all(times == 1 for times in messages.values())
    every = points(phases)
    if not ALL:
        every = random.sample(every, SAMPLE)  # by the seed of the run, which pytest prints

    repeats = 0
    for phase, step in every:
        with fresh() as town:
            flow.begin(town)
            steps = killed(town, flow, fork, phases, phase, step)
            assert wrong(town) == [], step
            found, came = end_of(town), left(town)
        assert found == reference, step
        assert came.keys() == messages.keys(), step
        twice = came - messages
        assert twice.total() <= in_flight(steps), (step, twice)
        repeats += twice.total()
    sys.stdout.write(f"{name}: killed at {len(every)} of {len(points(phases))} steps, mails twice {repeats}\n")
