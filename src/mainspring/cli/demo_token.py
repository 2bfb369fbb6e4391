"""The token by which whoever runs `mainspring up` uses the routes of its application."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from mainspring.declare.route import DeclaredRoute

if TYPE_CHECKING:
    from mainspring.app import App


class DemoToken:
    """One token for every route that cannot do without, in a file that curl reads and nobody else.

    So it stands neither on the screen nor in a list of processes: `curl -K .data/curl http://127.0.0.1:8080/orders`.
    """

    def __init__(self, data: Path) -> None:
        self._file = data / "curl"
        self.curl = "curl"  # how to call it

    def give(self, app: App) -> dict[str, str]:
        """The tokens of an application by their variables: yours where you have set one, else one that is made now."""
        routes = [*app.routes, *(route for block in app.blocks for route in block.routes())]
        asking = (route for route in routes if isinstance(route, DeclaredRoute) and route.access == "token")
        settings = sorted({route.setting for route in asking if route.setting})
        if not settings:
            return {}
        yours = [os.environ[setting] for setting in settings if setting in os.environ]
        token = yours[0] if yours else secrets.token_urlsafe(24)
        write_for_curl(self._file, token)
        self.curl = f"curl -K {os.path.relpath(self._file)}"
        return {setting: os.environ.get(setting, token) for setting in settings}

    def take_back(self) -> None:
        """Nobody can use it any more."""
        self._file.unlink(missing_ok=True)


def write_for_curl(file: Path, token: str) -> None:
    """Keep a token for `curl -K`, readable by us alone from its first byte."""
    file.unlink(missing_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as made:
        made.write(f'header = "Authorization: Bearer {token}"\n')
