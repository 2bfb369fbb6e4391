"""Clocks of workers and clients that are off by a day decide nothing: the database's does."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.worker.stage import Stage

from mainspring import Context, Registry, fixed

pytestmark = pytest.mark.anyio

DAY = 86_400.0
_time, _time_ns = time.time, time.time_ns


class _Any(type):
    """What is a datetime is one of ours."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, datetime)


@pytest.fixture(params=[DAY, -DAY, 300.0, -300.0], ids=["a day ahead", "a day behind", "5 min ahead", "5 min behind"])
def off(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    """This process's clock is off by so many seconds, wherever the engine could read it."""
    seconds: float = request.param

    class Shifted(datetime, metaclass=_Any):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]  # a datetime, not one of ours
            return datetime.fromtimestamp(_time() + seconds, tz)

        @classmethod
        def utcnow(cls) -> datetime:  # type: ignore[override]  # the same
            return cls.now(UTC).replace(tzinfo=None)

    monkeypatch.setattr(time, "time", lambda: _time() + seconds)
    monkeypatch.setattr(time, "time_ns", lambda: _time_ns() + int(seconds * 1e9))
    for name, module in list(sys.modules.items()):
        if name.startswith("mainspring") and getattr(module, "datetime", None) is datetime:
            monkeypatch.setattr(module, "datetime", Shifted)
    return seconds


@pytest.mark.rule("ENG-13.01", "ENG-13.02")
async def test_timers_retries_and_leases_keep_the_database_s_time(stage: Stage, tasks: Registry, off: float) -> None:
    started: dict[str, list[datetime]] = {}

    @tasks.task(retry=fixed(0.2, attempts=2))
    async def work(ctx: Context, *, name: str) -> None:
        started.setdefault(name, []).append(stage.one("select clock_timestamp()"))
        if name == "retried" and ctx.attempt == 1:
            raise ValueError("again")

    now: datetime = stage.one("select clock_timestamp()")
    soon, later = now + timedelta(seconds=0.3), now + timedelta(hours=12)
    async with stage.work(tasks, rescue_every=timedelta(milliseconds=50)) as worker:
        timer = await stage.enqueue(work.job(name="soon").at(soon))
        delayed = await stage.enqueue(work.job(name="delayed").after(0.3))
        retried = await stage.enqueue(work.job(name="retried"))
        far = await stage.enqueue(work.job(name="far").at(later))
        for job in (timer, delayed, retried):
            await stage.result(job)
        assert await stage.state(far) == "scheduled"
        assert worker.counts["rescued"] == worker.counts["lost"] == 0

    assert set(started) == {"soon", "delayed", "retried"}
    assert [len(times) for times in (started["soon"], started["delayed"], started["retried"])] == [1, 1, 2]
    assert timedelta(0) <= started["soon"][0] - soon < timedelta(minutes=1)
    due = (await stage.job(delayed)).scheduled_for
    assert due is not None
    assert timedelta(0) <= started["delayed"][0] - due < timedelta(minutes=1)
    assert started["retried"][1] - started["retried"][0] >= timedelta(seconds=0.2)
    found = await stage.job(timer)
    assert abs(found.created_at - now) < timedelta(seconds=60)
