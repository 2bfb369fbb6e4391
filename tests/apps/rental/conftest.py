from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from tests.apps.rental.yard import ENV, Yard

from mainspring.testing import Harness
from mainspring_apps.rental.app import Rental
from mainspring_sandbox import Sandbox


@pytest.fixture(scope="session")
def mainspring_app(mainspring_sandbox_server: Sandbox) -> Rental:
    with mainspring_sandbox_server.standing_in():
        base = f"{mainspring_sandbox_server.url}/resend"
        env = {name: value for name, value in os.environ.items() if name != "MAINSPRING_SMTP_URL"}
        return Rental(env | ENV | {"MAINSPRING_RESEND_BASE": base}, maintenance=False, watches=())


@pytest.fixture
def yard(mainspring: Harness, mainspring_sandbox: Sandbox, mainspring_app: Rental) -> Iterator[Yard]:
    """A rental company with one machine, on Monday 2026-06-01 at 09:00 in Lisbon."""
    found = Yard(mainspring, mainspring_sandbox, mainspring_app)
    yield found
    found.desk.close()
