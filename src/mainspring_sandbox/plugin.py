"""Fixtures for tests against the sandbox: one server a session, empty at the beginning of each test.

pytest imports it wherever Mainspring is installed, so it imports nothing until a fixture is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from mainspring import App, Registry
    from mainspring.testing import Harness
    from mainspring_sandbox.server import Sandbox


@pytest.fixture(scope="session")
def mainspring_sandbox_server() -> Iterator[Sandbox]:
    """The stand-ins of this process: make your App for them, inside of `mainspring_sandbox_server.standing_in()`."""
    from mainspring_sandbox import Sandbox

    with Sandbox() as sandbox:
        yield sandbox


@pytest.fixture
def mainspring_sandbox(
    mainspring_sandbox_server: Sandbox, mainspring: Harness, mainspring_app: App | Registry | None
) -> Iterator[Sandbox]:
    """The stand-ins with nothing in their books, by the test's clock; Stripe's webhooks come two seconds after."""
    from mainspring.app import App
    from mainspring_sandbox import Courier
    from mainspring_sandbox.ledger import real_time

    sandbox = mainspring_sandbox_server
    sandbox.reset(mainspring.now)
    if isinstance(mainspring_app, App):
        mainspring.visitors.append(Courier(sandbox, mainspring_app))
    with sandbox.standing_in():
        yield sandbox
    sandbox.reset(real_time)
