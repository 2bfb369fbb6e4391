"""How whoever runs `mainspring up` comes in over HTTP: a user with a link, and tokens for roles and people."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mainspring.cli.demo_token import write_for_curl
from mainspring.declare.credential import ACCESS_ROLES, new_secret, sign_in_link

if TYPE_CHECKING:
    import psycopg

    from mainspring.db.access import Grant

DEMO_USER: Final = "demo"


class DemoAccess:
    """The user `demo`, an admin; and tokens in files that curl reads and nobody else, anew at each start.

    A token is for a role, or for one of the application's `demo_people`, to whom their organisation alone exists.
    """

    def __init__(self, data: Path) -> None:
        self._data = data
        self._grants: dict[str, Grant] = {}

    @property
    def curls(self) -> dict[str, str]:
        """How to ask as each, such as `curl.viewer`."""
        return {f"curl.{name}": f"curl -K {os.path.relpath(self._file(name))}" for name in self._grants}

    def _file(self, name: str) -> Path:
        return self._data / f"curl.{name}"

    def give(self, conn: psycopg.Connection[Any], schema: str, url: str, people: Mapping[str, str]) -> str:
        """Let them in; gives a link that signs in once."""
        from mainspring.db import access
        from mainspring.db.jobs import Who
        from mainspring.db.wire.bound import bound
        from mainspring.db.wire.run import psycopg_door, run
        from mainspring.db.wire.sql import Sql
        from mainspring.job import SYSTEM

        self._grants = {name: access.Grant(role="member", org=org) for name, org in people.items()}
        self._grants |= {role: access.Grant(role=role) for role in ACCESS_ROLES if role != "member"}
        door, sql, who = psycopg_door(conn), Sql(schema), Who(actor_id="mainspring up")
        with bound(conn, SYSTEM):
            for old in run(door, access.tokens(sql)):
                if old.created_by == who.actor_id and old.state == "active":
                    run(door, access.revoke_token(sql, old.id, who, "another start"))
            for name, grant in self._grants.items():
                made = run(door, access.create_token(sql, f"demo {name}", grant, None, who))
                write_for_curl(self._file(name), made.text)
            known = {user.name: user for user in run(door, access.users(sql))}
            if DEMO_USER not in known:
                grant = access.Grant(role="admin", reveals=True)
                run(door, access.create_user(sql, DEMO_USER, grant, None, who))
            elif known[DEMO_USER].disabled_at is not None:  # by somebody, who shall be right
                return f"{url}/sign-in"
            code = new_secret()
            run(door, access.create_link(sql, DEMO_USER, code, who))
        return sign_in_link(url, code)

    def take_back(self) -> None:
        """Nobody finds the tokens any more; the next start revokes them."""
        for name in self._grants:
            self._file(name).unlink(missing_ok=True)
