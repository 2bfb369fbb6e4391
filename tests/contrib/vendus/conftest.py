from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from tests.sandbox.till import Clock

from mainspring.contrib.vendus import Vendus
from mainspring_sandbox import Sandbox


@pytest.fixture(scope="module")
def one_sandbox() -> Iterator[Sandbox]:
    with Sandbox() as sandbox:
        yield sandbox


@pytest.fixture
def sandbox(one_sandbox: Sandbox) -> Sandbox:
    """A sandbox without anything in it, whose time stands still."""
    one_sandbox.reset(Clock())
    return one_sandbox


@pytest.fixture
async def vendus(sandbox: Sandbox) -> AsyncIterator[Vendus]:
    vendus = Vendus("canary-7f3a9c", base=f"{sandbox.url}/vendus", timeout=5)
    yield vendus
    await vendus.aclose()
