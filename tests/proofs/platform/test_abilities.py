"""What queues, brokers and cron services are asked for elsewhere, asked of the engine alone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

import mainspring as ms
from mainspring.testing import Harness

#: A Wednesday.
START = datetime(2026, 3, 4, 8, tzinfo=UTC)
SECOND = timedelta(seconds=1)

tasks = ms.Registry("abilities")
starts: list[tuple[str, datetime]] = []
clock: list[Callable[[], datetime]] = []


def entered(name: str) -> None:
    starts.append((name, clock[0]()))


@tasks.task
async def remind(*, user: int) -> None:
    entered("remind")


@tasks.task(queue="weekly-payments")
async def charge(*, booking: int) -> None:
    entered("charge")


@tasks.task(strand="booking:{booking}")
async def release(*, booking: int, step: int) -> None:
    entered(f"release {booking}.{step}")


@tasks.task
async def digest() -> None:
    entered("digest")


tasks.schedule("digest", ms.daily("05:00", zone="Asia/Kathmandu"), digest)


@pytest.fixture
def mainspring_app() -> ms.App:
    return ms.App(
        tasks, limits=[ms.rate("weekly-payments", 5, per="1s"), ms.in_order(task="release")], maintenance=False
    )


@pytest.mark.rule("STAFF-0.02")
def test_delays_rates_order_cron_and_cancellation_need_no_other_system(mainspring: Harness) -> None:
    starts.clear()
    clock[:] = [mainspring.now]
    mainspring.clock.set(START)
    client = mainspring.client

    later = client.enqueue(remind.job(user=1).after(timedelta(hours=2)))
    gone = client.enqueue(remind.job(user=2).after(timedelta(hours=1)))
    client.enqueue_many([charge.job(booking=n) for n in range(12)])
    client.enqueue_many([release.job(booking=7, step=n) for n in range(3)])
    assert client.cancel(gone.id) == "cancelled"
    mainspring.advance(days=1)

    at: dict[str, list[datetime]] = {}
    for name, when in starts:
        at.setdefault(name, []).append(when)
    assert at.pop("remind") == [START + timedelta(hours=2)]
    assert client.get(later.id).state == "succeeded"
    charged = at.pop("charge")
    assert len(charged) == 12
    assert max(sum(1 for t in charged if a <= t < a + SECOND) for a in charged) == 5
    assert at.pop("digest") == [datetime(2026, 3, 4, 23, 15, tzinfo=UTC)]  # 05:00 at Nepal's quarter-hour offset
    assert list(at) == ["release 7.0", "release 7.1", "release 7.2"]
