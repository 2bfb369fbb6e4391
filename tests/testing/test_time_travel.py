"""A week of timers in a second."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

import pytest

from mainspring import Registry, fixed
from mainspring.testing import Harness


@pytest.mark.rule("ENG-29.02")
def test_a_four_hour_timer_three_attempts_and_a_lost_lease_take_less_than_a_second(
    mainspring: Harness, tasks: Registry
) -> None:
    began = mainspring.now()
    approved: list[datetime] = []
    tried: list[tuple[int, timedelta]] = []

    @tasks.task
    async def auto_approve(*, log: int) -> None:
        approved.append(mainspring.now())

    @tasks.task(retry=fixed(60, attempts=3))
    def charge(*, booking: int) -> str:
        tried.append((booking, mainspring.now() - began))
        if len(tried) < 3:
            raise ConnectionError("the provider is away")
        return "charged"

    @tasks.task
    async def export() -> str:
        return "exported"

    start = time.perf_counter()

    timer = mainspring.client.enqueue(auto_approve.job(log=9).after(timedelta(hours=4)))
    payment = mainspring.client.enqueue(charge.job(booking=7))
    lost = mainspring.crash(export.job())
    assert lost.lease_expires_at == began + timedelta(seconds=60)

    mainspring.advance(minutes=5, raise_errors=False)
    assert tried == [(7, timedelta(minutes=n)) for n in range(3)]
    assert mainspring.client.result(payment.id) == "charged"
    assert (mainspring.client.get(lost.id).state, mainspring.client.get(lost.id).crashes) == ("succeeded", 1)

    mainspring.advance(hours=3, minutes=54, seconds=59)
    assert approved == []
    mainspring.advance(seconds=1)
    assert approved == [began + timedelta(hours=4)]
    assert mainspring.client.get(timer.id).finished_at == began + timedelta(hours=4)

    assert time.perf_counter() - start < 60, "four hours (measured: 75 ms)"
