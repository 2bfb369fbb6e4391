"""For tests: a fresh database with virtual time, and verbs that run due jobs and look at what was enqueued.

With pytest, ask for the fixture `mainspring`, which is a `Harness`. `drain` and `Guest` work on a connection of your
own, inside of its transaction.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# pytest imports this package wherever Mainspring is installed: the database driver waits until it is needed.
if TYPE_CHECKING:
    from mainspring.testing.clock import Clock
    from mainspring.testing.databases import Database, Server, install
    from mainspring.testing.guest import Guest, adrain, drain
    from mainspring.testing.harness import Harness
    from mainspring.testing.ran import Crash, Drained, Ran
    from mainspring.testing.visitor import Visitor
else:
    _HOMES = {
        "Clock": "clock",
        "Crash": "ran",
        "Database": "databases",
        "Drained": "ran",
        "Guest": "guest",
        "Harness": "harness",
        "Ran": "ran",
        "Server": "databases",
        "Visitor": "visitor",
        "adrain": "guest",
        "drain": "guest",
        "install": "databases",
    }

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'mainspring.testing' has no attribute {name!r}")
        return getattr(import_module(f"mainspring.testing.{_HOMES[name]}"), name)


__all__ = [
    "Clock",
    "Crash",
    "Database",
    "Drained",
    "Guest",
    "Harness",
    "Ran",
    "Server",
    "Visitor",
    "adrain",
    "drain",
    "install",
]
