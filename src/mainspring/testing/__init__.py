"""For tests: a fresh database with virtual time, and verbs that run due jobs and look at what was enqueued.

With pytest, ask for the fixture `mainspring`, which is a `Harness`. `drain` and `Guest` work on a connection of your
own, inside of its transaction.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# pytest imports this package wherever Mainspring is installed: the database driver waits until it is needed.
if TYPE_CHECKING:
    from mainspring.testing.guest import Guest, adrain, drain
    from mainspring.testing.harness import Harness
    from mainspring.virtual.clock import Clock
    from mainspring.virtual.databases import Database, DatabaseServer, install
    from mainspring.virtual.ran import Crash, Drained, Ran
    from mainspring.virtual.visitor import Visitor
    from mainspring.worker.commit import Commit, at_commits
else:
    _HOMES = {
        "Clock": "mainspring.virtual.clock",
        "Commit": "mainspring.worker.commit",
        "Crash": "mainspring.virtual.ran",
        "Database": "mainspring.virtual.databases",
        "DatabaseServer": "mainspring.virtual.databases",
        "Drained": "mainspring.virtual.ran",
        "Guest": "mainspring.testing.guest",
        "Harness": "mainspring.testing.harness",
        "Ran": "mainspring.virtual.ran",
        "Visitor": "mainspring.virtual.visitor",
        "adrain": "mainspring.testing.guest",
        "at_commits": "mainspring.worker.commit",
        "drain": "mainspring.testing.guest",
        "install": "mainspring.virtual.databases",
    }

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'mainspring.testing' has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)


__all__ = [
    "Clock",
    "Commit",
    "Crash",
    "Database",
    "DatabaseServer",
    "Drained",
    "Guest",
    "Harness",
    "Ran",
    "Visitor",
    "adrain",
    "at_commits",
    "drain",
    "install",
]
