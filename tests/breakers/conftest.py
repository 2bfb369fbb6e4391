"""Breakers at work: a dependency that can be down, and an application whose breakers stand between."""

from __future__ import annotations

from datetime import timedelta

import pytest

import mainspring as ms
from mainspring.testing import Harness

WITHIN, PAUSE = timedelta(seconds=30), timedelta(seconds=60)


class Dependency:
    """Something outside that is called, and remembers by whom."""

    def __init__(self) -> None:
        self.up = True
        self.calls: list[object] = []

    def call(self, about: object = None, error: Exception | None = None) -> None:
        self.calls.append(about)
        if not self.up:
            raise error or ConnectionError("down")

    def taken(self) -> list[object]:
        """The calls since somebody last asked."""
        found, self.calls = self.calls, []
        return found


@pytest.fixture
def dependency() -> Dependency:
    return Dependency()


@pytest.fixture
def tasks() -> ms.Registry:
    return ms.Registry("test")


@pytest.fixture
def mainspring_app(tasks: ms.Registry) -> ms.App:
    breakers = [
        ms.breaker("stripe", failures=5, within=WITHIN, pause=PAUSE),
        ms.breaker("sms", failures=2, within=WITHIN, pause=PAUSE, longest=timedelta(minutes=3)),
        ms.breaker("webhook", failures=2, within=WITHIN, pause=PAUSE),
        ms.breaker("mail", rate=0.5, calls=4, within=WITHIN, pause=PAUSE),
    ]
    return ms.App(None, tasks, breakers=breakers, maintenance=False)


def state(mainspring: Harness, name: str, key: str | None = None) -> str:
    """What a breaker does now."""
    found = [row.state for row in mainspring.client.breakers.show(name) if row.key == key]
    return found[0] if found else "closed"
