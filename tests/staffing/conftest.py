from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.staffing.town import Town

import mainspring as ms
from mainspring.sandbox import Sandbox
from mainspring.testing import Harness
from mainspring_apps.staffing.desk import desk
from mainspring_apps.staffing.market import market


@pytest.fixture(scope="session")
def mainspring_app(mainspring_sandbox_server: Sandbox) -> ms.App:
    with mainspring_sandbox_server.standing_in():
        return market(maintenance=False, watches=())  # tests ask them where they matter: `town.wrong`


@pytest.fixture
def town(mainspring: Harness, mainspring_sandbox: Sandbox) -> Iterator[Town]:
    """A marketplace with nobody in it, on Monday 2026-06-01 00:00 in New York."""
    yield Town(mainspring, mainspring_sandbox)
    desk().close()
