"""The providers of a simulation: the sandbox, by its virtual clock."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Final

from mainspring.app import App
from mainspring.errors import ConfigurationError
from mainspring.virtual.visitor import Visitor
from mainspring_sandbox.environment import REAL, applied, environment

if TYPE_CHECKING:
    from mainspring_sandbox import Sandbox

#: What stands between us and the sandbox, or the world, in some environments.
PROXIES: Final = tuple(name for proxy in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY") for name in (proxy, proxy.lower()))
#: Where nobody answers, for applications that are told of providers where there is no sandbox.
NOWHERE: Final = "http://127.0.0.1:9", 9


class SimulatedClock:
    """The simulation's time, for those who cannot ask its database."""

    def __init__(self, at: datetime) -> None:
        self.at = at

    def __call__(self) -> datetime:
        """What it shows."""
        return self.at


class SimulatedProviders:
    """What an application finds in place of real providers, and what it asked of them."""

    def __init__(self, watch: SimulatedClock, sandbox: Sandbox | None = None) -> None:
        self.watch, self._sandbox = watch, sandbox
        self.visitors: list[Visitor] = []

    def meet(self, app: App) -> None:
        """Know the application on which they call by themselves: Stripe does, with its webhooks."""
        if self._sandbox is not None:
            from mainspring_sandbox import Courier

            self.visitors.append(Courier(self._sandbox, app))

    def asked(self) -> dict[str, int]:
        """How much left the house, by its kind."""
        if self._sandbox is None:
            return {}
        from mainspring_sandbox.desk import OUTBOX

        counts = {kind: self._sandbox.ledger.count(kind) for kind in OUTBOX}
        return {kind: count for kind, count in counts.items() if count}


@contextmanager
def providers(watch: SimulatedClock, seed: int) -> Iterator[SimulatedProviders]:
    """Inside the block the environment leads to a sandbox of its own; nothing of it is kept.

    Where its extra is not installed, providers that the environment names answer nothing.
    """
    without = (*REAL, *PROXIES)
    try:
        from mainspring_sandbox import Sandbox
    except ConfigurationError:
        nowhere = {name: value for name, value in environment(*NOWHERE).items() if name in os.environ}
        with applied(nowhere, without):
            yield SimulatedProviders(watch)
        return
    with Sandbox(clock=watch, seed=seed) as sandbox, applied(sandbox.environment(), without):
        yield SimulatedProviders(watch, sandbox)
