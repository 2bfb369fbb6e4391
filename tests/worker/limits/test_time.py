"""Limits of an application hold in the tests of its authors, by their clock."""

from __future__ import annotations

from datetime import datetime

import pytest
from tests.worker.limits.windows import largest

import mainspring as ms
from mainspring.testing import Harness

tasks = ms.Registry("timed")
started: list[tuple[int, datetime]] = []


@tasks.task(queue="mail")
async def send(ctx: ms.Context, *, n: int) -> None:
    """Write down when."""
    started.append((n, ctx.job.claimed_at))


@tasks.task(strand="booking:{booking}", retry=ms.fixed(60, attempts=2))
async def change(ctx: ms.Context, *, booking: int, n: int) -> None:
    """The first change fails once."""
    if n == 0 and ctx.attempt == 1:
        raise RuntimeError("not yet")
    started.append((n, ctx.job.claimed_at))


@pytest.fixture
def mainspring_app() -> ms.App:
    started.clear()
    limits = [ms.rate("mail", 2, per="1m"), ms.in_order(task="change")]
    return ms.App(tasks, limits=limits, maintenance=False)


@pytest.mark.rule("ENG-25.01")
def test_a_rate_is_met_as_virtual_time_goes_on(mainspring: Harness) -> None:
    for n in range(6):
        mainspring.client.enqueue(send.job(n=n))
    mainspring.drain()
    assert [n for n, _ in started] == [0, 1]
    mainspring.advance(seconds=50)
    assert len(started) == 2
    mainspring.advance(minutes=10)
    assert [n for n, _ in started] == [0, 1, 2, 3, 4, 5]
    assert largest([at.timestamp() for _, at in started], 60.0) == 2


def test_the_changes_of_a_booking_are_made_in_order_though_one_is_retried(mainspring: Harness) -> None:
    for n in range(3):
        mainspring.client.enqueue(change.job(booking=42, n=n))
    mainspring.client.enqueue(change.job(booking=43, n=9))
    mainspring.drain(raise_errors=False)
    assert [n for n, _ in started] == [9]
    mainspring.advance(minutes=5)
    assert [n for n, _ in started] == [9, 0, 1, 2]
