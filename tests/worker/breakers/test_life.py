"""The life of a breaker, on virtual time: closed, open, half open, closed again; and what jobs lose by it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from tests.worker.breakers.conftest import PAUSE, WITHIN, Dependency, state

import mainspring as ms
from mainspring.errors import ConfigurationError, DeclarationError
from mainspring.job import NewJob
from mainspring.outcome import BreakerOpen
from mainspring.testing import Harness

RETRY = ms.fixed(1, attempts=8)
Charge = ms.Task[..., Any]


@pytest.fixture
def charge(tasks: ms.Registry, dependency: Dependency) -> Charge:
    @tasks.task(needs=("stripe",), retry=RETRY)
    async def charge(*, n: int = 0) -> None:
        dependency.call(n)

    return charge


def break_it(mainspring: Harness, dependency: Dependency, job: NewJob, times: int) -> None:
    """Let so many jobs fail, and nothing become of their retries."""
    dependency.up = False
    for answer in mainspring.client.enqueue_many([job] * times):
        mainspring.run_one(answer.id, raise_errors=False)
        mainspring.client.cancel(answer.id)
    dependency.taken()


@pytest.mark.rule("STAFF-16.02")
def test_five_failures_open_it_for_the_pause_then_one_probe_closes_it(
    mainspring: Harness, charge: Charge, dependency: Dependency
) -> None:
    dependency.up = False
    mainspring.client.enqueue_many([charge.job(n=n) for n in range(20)])
    mainspring.drain(raise_errors=False)
    assert dependency.taken() == [0, 1, 2, 3, 4]
    assert state(mainspring, "stripe") == "open"

    mainspring.advance(PAUSE - timedelta(seconds=1))
    assert dependency.taken() == []

    mainspring.advance(seconds=1, raise_errors=False)
    assert len(dependency.taken()) == 1  # the probe, which failed
    assert state(mainspring, "stripe") == "open"

    dependency.up = True
    mainspring.advance(PAUSE - timedelta(seconds=1))
    assert dependency.taken() == []
    mainspring.advance(seconds=2)
    assert sorted(map(str, dependency.taken())) == sorted(map(str, range(20)))
    assert state(mainspring, "stripe") == "closed"
    assert {job.state for job in mainspring.client.jobs()} == {"succeeded"}


@pytest.mark.rule("STAFF-16.03", "ENG-25.03")
def test_a_job_that_an_open_breaker_stops_loses_no_attempt_and_leaves_no_failure(
    mainspring: Harness, charge: Charge, dependency: Dependency
) -> None:
    break_it(mainspring, dependency, charge.job(), 5)
    job = mainspring.client.enqueue(charge.job()).id

    for _ in range(12):  # longer than its attempts would last
        mainspring.advance(2 * PAUSE, raise_errors=False)

    found = mainspring.client.get(job)
    assert (found.state, found.attempt) == ("scheduled", 0)
    assert mainspring.client.attempts(job) == []
    assert len(dependency.taken()) >= 8  # it was the probe again and again, and failed as one

    dependency.up = True
    mainspring.advance(2 * PAUSE)
    found = mainspring.client.get(job)
    assert (found.state, found.attempt) == ("succeeded", 1)


@pytest.mark.rule("STAFF-16.04")
def test_one_services_breaker_leaves_the_others_alone(
    mainspring: Harness, tasks: ms.Registry, charge: Charge, dependency: Dependency
) -> None:
    sms = Dependency()

    @tasks.task(needs=("sms",), retry=RETRY)
    async def text() -> None:
        sms.call()

    break_it(mainspring, sms, text.job(), 2)
    mainspring.client.enqueue_many([text.job(), charge.job(n=7)])
    mainspring.drain()

    assert (state(mainspring, "sms"), state(mainspring, "stripe")) == ("open", "closed")
    assert (sms.taken(), dependency.taken()) == ([], [7])


def test_a_dead_endpoint_does_not_hold_the_others(
    mainspring: Harness, tasks: ms.Registry, dependency: Dependency
) -> None:
    @tasks.task(needs=("webhook:{endpoint}",), retry=RETRY)
    async def deliver(*, endpoint: int) -> None:
        dependency.call(endpoint)

    break_it(mainspring, dependency, deliver.job(endpoint=1), 2)
    dependency.up = True
    mainspring.client.enqueue_many([deliver.job(endpoint=n) for n in (1, 2, 3, 1)])
    mainspring.drain()

    assert dependency.taken() == [2, 3]
    assert (state(mainspring, "webhook", "1"), state(mainspring, "webhook")) == ("open", "closed")
    mainspring.advance(PAUSE)
    assert dependency.taken() == [1, 1]


def test_the_key_of_one_organisation_is_not_that_of_another(
    mainspring: Harness, tasks: ms.Registry, dependency: Dependency
) -> None:
    @tasks.task(needs=("webhook:{endpoint}",), retry=RETRY)
    async def deliver(*, endpoint: int, org: str) -> None:
        dependency.call(org)

    break_it(mainspring, dependency, deliver.job(endpoint=1, org="acme").for_org("acme"), 2)
    dependency.up = True
    mainspring.client.enqueue_many([deliver.job(endpoint=1, org=org).for_org(org) for org in ("acme", "zeta")])
    mainspring.drain()

    assert dependency.taken() == ["zeta"]
    assert [row.org_id for row in mainspring.client.breakers.list() if row.state == "open"] == ["acme"]


def test_failures_that_are_further_apart_than_the_window_do_not_open_it(
    mainspring: Harness, charge: Charge, dependency: Dependency
) -> None:
    for _ in range(3):
        break_it(mainspring, dependency, charge.job(), 4)
        assert state(mainspring, "stripe") == "closed"
        mainspring.advance(WITHIN + timedelta(seconds=1))


def test_a_job_that_is_alone_opens_it_by_time_and_loses_no_attempt_from_then_on(
    mainspring: Harness, tasks: ms.Registry, dependency: Dependency
) -> None:
    @tasks.task(needs=("mail",), retry=ms.fixed(30, attempts=6))
    async def charge() -> None:
        dependency.call()

    dependency.up = False
    job = mainspring.client.enqueue(charge.job()).id
    mainspring.advance(hours=13, raise_errors=False)
    assert (state(mainspring, "mail"), mainspring.client.get(job).attempt) == ("open", 3)  # at 0, 30 and 60 seconds

    dependency.up = True
    mainspring.advance(minutes=2)
    assert (state(mainspring, "mail"), mainspring.client.get(job).state) == ("closed", "succeeded")


def test_a_rate_is_taken_of_enough_calls_only(mainspring: Harness, tasks: ms.Registry, dependency: Dependency) -> None:
    @tasks.task(needs=("mail",), retry=ms.fixed(3600, attempts=9))
    async def send(*, up: bool) -> None:
        dependency.up = up
        dependency.call()

    def sends(*calls: bool) -> str:
        for up in calls:
            mainspring.run_one(send.job(up=up), raise_errors=False)
        return state(mainspring, "mail")

    assert sends(False, False, False) == "closed"  # 3 of 3, but 4 calls are asked for
    mainspring.advance(WITHIN)
    assert sends(True, True, False, True) == "closed"  # 1 of 4
    assert sends(True, False) == "closed"  # 2 of 6
    assert sends(False, False) == "open"  # 4 of 8


def test_a_task_may_need_several_and_waits_for_the_one_that_is_open(
    mainspring: Harness, tasks: ms.Registry, charge: Charge, dependency: Dependency
) -> None:
    @tasks.task(needs=("sms", "stripe"), retry=RETRY)
    async def both() -> None:
        dependency.call("both")

    break_it(mainspring, dependency, charge.job(), 5)
    dependency.up = True
    job = mainspring.client.enqueue(both.job()).id
    mainspring.drain()

    assert dependency.taken() == []
    assert "needs stripe" in mainspring.client.explain(job).verdict
    mainspring.advance(PAUSE)
    assert dependency.taken() == ["both"]


def test_plain_functions_and_those_in_processes_wait_too(
    mainspring: Harness, tasks: ms.Registry, charge: Charge, dependency: Dependency
) -> None:
    @tasks.task(needs=("stripe",), retry=RETRY)
    def plain() -> None:
        dependency.call("plain")

    break_it(mainspring, dependency, plain.job(), 5)
    dependency.up = True
    mainspring.client.enqueue(plain.job())
    mainspring.drain()

    assert dependency.taken() == []
    mainspring.advance(PAUSE)
    assert dependency.taken() == ["plain"]


def test_an_attempt_that_takes_too_long_is_a_failure(mainspring: Harness, tasks: ms.Registry) -> None:
    @tasks.task(needs=("sms",), timeout=timedelta(milliseconds=20), retry=RETRY)
    async def slow() -> None:
        await asyncio.sleep(60)

    for _ in range(2):
        mainspring.run_one(slow.job(), raise_errors=False)

    assert state(mainspring, "sms") == "open"


def test_business_errors_and_snoozes_do_not_open_it(mainspring: Harness, tasks: ms.Registry) -> None:
    errors = [ms.Permanent("no"), ms.Snooze(5), ms.Failure("ours", counts=False)]

    @tasks.task(needs=("sms",), retry=RETRY)
    async def picky() -> None:
        raise errors[0]

    while errors:
        for _ in range(3):
            mainspring.run_one(picky.job(), raise_errors=False)
        del errors[0]

    assert state(mainspring, "sms") == "closed"


# -- around one call -------------------------------------------------------------------------------------------------


def test_a_breaker_around_one_call_gives_the_attempt_back(
    mainspring: Harness, tasks: ms.Registry, dependency: Dependency
) -> None:
    @tasks.task(retry=RETRY)
    async def remind(ctx: ms.Context) -> None:
        async with ctx.breaker("sms"):
            dependency.call()

    break_it(mainspring, dependency, remind.job(), 2)
    job = mainspring.client.enqueue(remind.job()).id
    mainspring.drain()

    found = mainspring.client.get(job)
    assert (dependency.taken(), found.state, found.attempt) == ([], "scheduled", 0)
    assert [event.event for event in mainspring.client.audit.trail(job)][-1] == "job.deferred"  # it had begun

    dependency.up = True
    mainspring.advance(PAUSE)
    assert (len(dependency.taken()), mainspring.client.get(job).state) == (1, "succeeded")
    assert state(mainspring, "sms") == "closed"


def test_the_job_that_tries_goes_on_calling(mainspring: Harness, tasks: ms.Registry, dependency: Dependency) -> None:
    @tasks.task(retry=RETRY)
    async def remind(ctx: ms.Context) -> None:
        for person in range(3):
            async with ctx.breaker("sms"):
                dependency.call(person)

    break_it(mainspring, dependency, remind.job(), 2)
    dependency.up = True
    mainspring.client.enqueue(remind.job())
    dependency.taken()
    mainspring.advance(PAUSE * 3)
    assert dependency.taken()[:3] == [0, 1, 2]


def test_a_plain_handler_has_breakers_around_its_calls_too(
    mainspring: Harness, tasks: ms.Registry, dependency: Dependency
) -> None:
    @tasks.task(retry=RETRY)
    def deliver(ctx: ms.SyncContext, *, endpoint: int) -> None:
        with ctx.breaker(f"webhook:{endpoint}"):
            dependency.call(endpoint)

    break_it(mainspring, dependency, deliver.job(endpoint=1), 2)
    dependency.up = True
    mainspring.client.enqueue_many([deliver.job(endpoint=1), deliver.job(endpoint=2)])
    mainspring.drain()

    assert dependency.taken() == [2]
    assert state(mainspring, "webhook", "1") == "open"


def test_a_handler_that_can_do_without_catches_it(
    mainspring: Harness, tasks: ms.Registry, dependency: Dependency
) -> None:
    @tasks.task(retry=RETRY)
    async def remind(ctx: ms.Context) -> str:
        try:
            async with ctx.breaker("sms"):
                dependency.call()
        except BreakerOpen:
            return "by mail"
        return "by sms"

    break_it(mainspring, dependency, remind.job(), 2)

    assert mainspring.client.result(mainspring.run_one(remind.job()).job.id) == "by mail"


def test_a_failed_call_blames_its_own_breaker_only(
    mainspring: Harness, tasks: ms.Registry, dependency: Dependency
) -> None:
    @tasks.task(needs=("webhook",), retry=RETRY)
    async def remind(ctx: ms.Context) -> None:
        async with ctx.breaker("sms"):
            dependency.call()

    break_it(mainspring, dependency, remind.job(), 4)

    assert (state(mainspring, "sms"), state(mainspring, "webhook")) == ("open", "closed")
    assert mainspring.client.breakers.show("webhook")[0].failed == 0


def test_an_unknown_name_in_a_handler_is_said_with_the_nearest(mainspring: Harness, tasks: ms.Registry) -> None:
    @tasks.task(retry=RETRY)
    async def remind(ctx: ms.Context) -> None:
        async with ctx.breaker("smss"):
            pass

    with pytest.raises(DeclarationError, match=r"no breaker is called 'smss' \(did you mean 'sms'\?\)"):
        mainspring.run_one(remind.job())


# -- what people see --------------------------------------------------------------------------------------------------


def test_explain_says_which_breaker_holds_a_job_and_until_when(
    mainspring: Harness, charge: Charge, dependency: Dependency
) -> None:
    break_it(mainspring, dependency, charge.job(), 5)
    job = mainspring.client.enqueue(charge.job()).id
    mainspring.drain()
    mainspring.clock.advance(seconds=20)

    found = mainspring.client.explain(job)

    assert not found.claimable
    assert found.verdict.startswith("It needs stripe, whose breaker is open, for 20 s now; the next probe is in 40 s")
    (check,) = [check for check in found.checks if check.name == "breaker"]
    assert check.holds is False
    assert "`mainspring breaker show stripe`" in check.detail
    mainspring.clock.advance(seconds=41)
    (check,) = [check for check in mainspring.client.explain(job).checks if check.name == "breaker"]
    assert check.holds is False  # until somebody lets it go to try
    assert "half open" in check.detail


def test_what_waits_has_no_due_time_and_goes_on_when_it_closes(
    mainspring: Harness, charge: Charge, dependency: Dependency
) -> None:
    break_it(mainspring, dependency, charge.job(), 5)
    mainspring.client.enqueue_many([charge.job(n=n) for n in range(50)])
    mainspring.drain()
    assert mainspring.client.breakers.show("stripe")[0].waiting == 50
    assert {job.gate for job in mainspring.client.jobs(state="scheduled")} == {"breaker:stripe"}

    dependency.up = True
    mainspring.advance(PAUSE)

    assert len(dependency.taken()) == 50
    assert mainspring.client.breakers.show("stripe")[0].waiting == 0


def test_a_probe_that_says_nothing_is_followed_by_the_next(
    mainspring: Harness, tasks: ms.Registry, charge: Charge, dependency: Dependency
) -> None:
    @tasks.task(needs=("stripe",), retry=RETRY)
    async def refuse() -> None:
        raise ms.Permanent("the card is gone")

    break_it(mainspring, dependency, charge.job(), 5)
    mainspring.client.enqueue_many([refuse.job(), refuse.job(), charge.job(n=7)])
    dependency.up = True
    mainspring.drain()
    mainspring.advance(PAUSE, raise_errors=False)

    assert dependency.taken() == [7]


def test_who_waits_for_what_its_task_needs_no_longer_goes_too(
    mainspring: Harness, tasks: ms.Registry, charge: Charge, dependency: Dependency
) -> None:
    break_it(mainspring, dependency, charge.job(), 5)
    mainspring.client.enqueue_many([charge.job(n=n) for n in range(20)])
    mainspring.drain()
    newer = ms.Registry("test")

    @newer.task(name=charge.name)
    async def charge_by_hand(*, n: int = 0) -> None:
        dependency.calls.append(n)

    with Harness(mainspring.dsn, newer) as later:
        later.advance(PAUSE + timedelta(seconds=10))

    assert len(dependency.taken()) == 20


def test_keys_that_nobody_calls_are_forgotten_and_those_that_a_person_forced_are_not(
    mainspring: Harness, tasks: ms.Registry, dependency: Dependency
) -> None:
    @tasks.task(needs=("webhook:{endpoint}",), retry=RETRY)
    async def deliver(*, endpoint: int) -> None:
        dependency.call(endpoint)

    for endpoint in (1, 2):
        break_it(mainspring, dependency, deliver.job(endpoint=endpoint), 2)
    mainspring.client.breakers.open("webhook", key="3", reason="the customer asked")
    assert [row.key for row in mainspring.client.breakers.show("webhook")] == [None, "1", "2", "3"]

    mainspring.clock.advance(hours=1)
    dependency.up = True
    mainspring.run_one(deliver.job(endpoint=2))  # the probe
    mainspring.clock.advance(minutes=2)
    mainspring.run_one(deliver.job(endpoint=9))

    assert [row.key for row in mainspring.client.breakers.show("webhook")] == [None, "2", "3"]


def test_a_registry_alone_says_that_breakers_are_declared_by_an_app(mainspring: Harness) -> None:
    tasks = ms.Registry("mail")

    @tasks.task(needs=("stripe",))
    async def charge() -> None: ...

    with Harness(mainspring.dsn, tasks) as alone:
        alone.client.enqueue(charge.job())
        with pytest.raises(ConfigurationError, match="task charge needs 'stripe'"):
            alone.drain()


def test_jobs_in_a_tests_own_transaction_have_breakers(
    mainspring: Harness, mainspring_app: ms.App, charge: Charge, dependency: Dependency
) -> None:
    from mainspring.testing import drain

    dependency.up = False
    with mainspring.conn.transaction(force_rollback=True):
        mainspring.client.enqueue_many([charge.job(n=n) for n in range(8)], conn=mainspring.conn)
        drain(mainspring.conn, mainspring_app, raise_errors=False)
        assert dependency.taken() == [0, 1, 2, 3, 4]
        (found,) = mainspring.conn.execute("select state from mainspring.breaker where name = 'stripe'").fetchall()
        assert found == ("open",)
