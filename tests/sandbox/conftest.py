"""The sandbox, as everybody here asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.sandbox.till import Clock, Receiver, Till, receiver, till

from mainspring_sandbox import Sandbox


@pytest.fixture
def clock() -> Clock:
    """The sandbox's time."""
    return Clock()


@pytest.fixture
def sandbox(clock: Clock) -> Iterator[Sandbox]:
    """A sandbox of its own for each test, whose time stands still."""
    with Sandbox(clock=clock) as sandbox:
        yield sandbox


@pytest.fixture
def shop(sandbox: Sandbox) -> Iterator[Till]:
    """Stripe's SDK without retries of its own."""
    with till(sandbox) as made:
        yield made


@pytest.fixture
def hook() -> Iterator[Receiver]:
    """Somebody who takes webhooks."""
    with receiver() as made:
        yield made
