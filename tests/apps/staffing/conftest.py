from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.apps.staffing.town import Town

from mainspring.testing import Harness
from mainspring_apps.staffing.market import Market
from mainspring_sandbox import Sandbox


@pytest.fixture(scope="session")
def mainspring_app(mainspring_sandbox_server: Sandbox) -> Market:
    with mainspring_sandbox_server.standing_in():
        return Market(maintenance=False, watches=())  # tests ask them where they matter: `town.wrong`


@pytest.fixture
def town(mainspring: Harness, mainspring_sandbox: Sandbox, mainspring_app: Market) -> Iterator[Town]:
    """A marketplace with nobody in it, on Monday 2026-06-01 00:00 in New York."""
    found = Town(mainspring, mainspring_sandbox, mainspring_app.desk)
    yield found
    found.close()
