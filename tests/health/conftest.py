"""An application whose watches look at a table of cases, and whose observer remembers alerts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import mainspring as ms
from mainspring.events import Alert, Event
from mainspring.health.watch import Watch
from mainspring.testing import Harness

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
CASES = "create table cases (id int, kind text, note text, org text, due_at timestamptz default mainspring.now())"


class Told:
    """What observers heard of alerts: (name, subject, firing)."""

    def __init__(self) -> None:
        self.events: list[Alert] = []

    def __call__(self, batch: Sequence[Event]) -> None:
        self.events += [event for event in batch if isinstance(event, Alert)]

    @property
    def short(self) -> list[tuple[str, str, bool]]:
        return [(event.alert, event.subject, event.firing) for event in self.events]


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def watches() -> list[Watch]:
    return []


@pytest.fixture
def tasks() -> ms.Registry:
    return ms.Registry("shop")


@pytest.fixture
def mainspring_app(tasks: ms.Registry, told: Told, watches: list[Watch], monkeypatch: pytest.MonkeyPatch) -> ms.App:
    monkeypatch.delenv("MAINSPRING_MAINTENANCE")
    return ms.App(tasks, observers=[told], watches=watches)


@pytest.fixture(scope="session")
def mainspring_migrations() -> Sequence[str]:
    return [CASES]


@pytest.fixture
def mainspring(mainspring: Harness) -> Harness:
    mainspring.clock.set(NOON)
    return mainspring


def case(mainspring: Harness, id_: int, kind: str = "late", **columns: Any) -> None:
    about = {"note": None, "org": None, "due_at": NOON} | columns
    insert = "insert into cases values (%s, %s, %s, %s, %s)"
    mainspring.conn.execute(insert, [id_, kind, about["note"], about["org"], about["due_at"]])


def opened(mainspring: Harness, **filters: Any) -> list[tuple[str, str, int]]:
    """(name, subject, count) of the open alerts, by name and subject."""
    found = mainspring.client.alerts.list(**filters)
    return sorted((alert.name, alert.subject, alert.count) for alert in found)


def minutes(number: int) -> datetime:
    return NOON + timedelta(minutes=number)
