from __future__ import annotations

import asyncio
import logging

import psycopg
import pytest

from mainspring.worker.service import LONGEST_BACKOFF_S, SHORTEST_BACKOFF_S, Service, backoff

pytestmark = pytest.mark.anyio


class Counting(Service):
    def __init__(self, interval: float = 60.0, failures: int = 0, error: Exception | None = None) -> None:
        super().__init__(interval)
        self.ticks, self.failures, self.error = 0, failures, error or ValueError("a bug")
        self.ticked = asyncio.Event()

    async def tick(self) -> None:
        self.ticks += 1
        self.ticked.set()
        if self.ticks <= self.failures:
            raise self.error

    async def reaches(self, ticks: int) -> None:
        async with asyncio.timeout(5):
            while self.ticks < ticks:
                self.ticked.clear()
                await self.ticked.wait()


async def test_a_service_ticks_at_its_start_and_then_every_interval() -> None:
    service = Counting(interval=0.01)
    service.start()
    await service.reaches(3)
    await service.stop()


async def test_waking_a_service_makes_it_tick_before_its_interval_is_over() -> None:
    service = Counting(interval=60)
    service.start()
    await service.reaches(1)
    service.wake()
    await service.reaches(2)
    await service.stop()


async def test_stopping_twice_or_without_a_start_is_harmless_and_ends_the_ticking() -> None:
    service = Counting(interval=0.001)
    await service.stop()
    service.start()
    await service.reaches(1)
    await service.stop()
    await service.stop()
    ticks = service.ticks
    await asyncio.sleep(0.02)

    assert service.ticks == ticks


async def test_a_bug_is_logged_once_with_its_stack_and_the_service_tries_again_soon(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = Counting(interval=60, failures=3, error=KeyError("x"))
    service.start()
    await service.reaches(4)
    await service.stop()

    fails, works = [record for record in caplog.records if "Counting" in record.message]
    assert (fails.levelno, fails.exc_info is not None) == (logging.ERROR, True)
    assert "Counting works again after" in works.message


async def test_what_passes_by_itself_is_logged_if_it_lasts_and_the_database_is_there(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = psycopg.OperationalError("the server closed the connection")
    for lasting, excused, lines in ((60.0, False, 0), (0.01, True, 0), (0.01, False, 2)):
        caplog.clear()
        monkeypatch.setattr("mainspring.worker.service.LASTING_TROUBLE_S", lasting)
        service = Counting(interval=60, failures=3, error=error)
        service.excused = excused
        service.start()
        await service.reaches(4)
        await service.stop()

        assert len([record for record in caplog.records if "Counting" in record.message]) == lines


def test_the_pause_after_failures_grows_is_spread_and_stays_bounded() -> None:
    pauses = {n: [backoff(n) for _ in range(200)] for n in (1, 2, 3, 50, 10_000)}

    assert all(SHORTEST_BACKOFF_S / 2 <= pause <= SHORTEST_BACKOFF_S for pause in pauses[1])
    assert max(pauses[1]) <= min(pauses[3])
    assert all(LONGEST_BACKOFF_S / 2 <= pause <= LONGEST_BACKOFF_S for pause in pauses[50] + pauses[10_000])
    assert len(set(pauses[2])) > 100
