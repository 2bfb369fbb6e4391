from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.staffing.town import Town

import mainspring as ms
from mainspring.sandbox import Sandbox
from mainspring.testing import Harness
from mainspring_apps.staffing import desk as desks
from mainspring_apps.staffing.desk import desk
from mainspring_apps.staffing.market import market

_OURS: dict[ms.App, desks.Desk] = {}


@pytest.fixture(scope="session")
def mainspring_app(mainspring_sandbox_server: Sandbox) -> ms.App:
    with mainspring_sandbox_server.standing_in():
        app = market(maintenance=False, watches=())  # tests ask them where they matter: `town.wrong`
    _OURS[app] = desk()
    return app


@pytest.fixture(autouse=True)
def at_our_desk(request: pytest.FixtureRequest) -> None:
    """Commands and applications that other tests load in this process sit down at desks of their own."""
    if "mainspring_app" in request.fixturenames:
        app = request.getfixturevalue("mainspring_app")
        if app in _OURS and (not desks._desks or desks._desks[-1] is not _OURS[app]):
            desks.sit(_OURS[app])


@pytest.fixture
def town(mainspring: Harness, mainspring_sandbox: Sandbox) -> Iterator[Town]:
    """A marketplace with nobody in it, on Monday 2026-06-01 00:00 in New York."""
    found = Town(mainspring, mainspring_sandbox)
    yield found
    found.close()
    desk().close()
