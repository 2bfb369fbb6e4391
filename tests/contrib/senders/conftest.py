"""The senders as production uses them, and the providers' stand-ins on the other side of the line."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mainspring_sandbox import Sandbox


@pytest.fixture(scope="session")
def stand_ins() -> Iterator[Sandbox]:
    with Sandbox() as sandbox:
        yield sandbox


@pytest.fixture
def sandbox(stand_ins: Sandbox) -> Iterator[Sandbox]:
    """Empty, and well."""
    stand_ins.ledger.clear()
    stand_ins.faults.clear()
    stand_ins.faults.struck.clear()
    yield stand_ins
    stand_ins.faults.clear()
