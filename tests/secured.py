"""A secured database, with a login of each role."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from tests.databases import Database, check_tickets

from mainspring.db.schema.secure import is_secured, secure
from mainspring.embedded import ROLE, SUPERUSER

ROLES = ("worker", "api", "operator", "owner")


def superuser(database: Database) -> psycopg.Connection[Any]:
    return psycopg.connect(make_conninfo(database.dsn, user=SUPERUSER), autocommit=True)


def secure_template(conn: psycopg.Connection[Any]) -> None:
    """Secure the database that tests copy, which costs twenty times as much as a copy."""
    with superuser(Database(conn.info.dsn)) as own:
        secure(own)


class Secured:
    """A secured database, or one that is secured now, with a login of each role."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.conn = superuser(database)
        if not is_secured(self.conn):
            secure(self.conn)
        name = conninfo_to_dict(database.dsn)["dbname"]
        self.logins = {role: f"{name}_{role}" for role in ROLES if role != "owner"} | {"owner": ROLE}
        for role, login in self.logins.items():
            if role != "owner":
                self.do(f'create role "{login}" login in role mainspring_{role}')

    def close(self) -> None:
        check_tickets(self.conn)  # the owner, who looks after every test, sees nothing
        for role, login in self.logins.items():
            if role != "owner":
                self.do(f'drop owned by "{login}"')
                self.do(f'drop role "{login}"')
        self.conn.close()

    def do(self, text: str, *params: Any) -> list[Any]:
        """Do something as a superuser."""
        cursor = self.conn.execute(text.encode(), params or None)
        return cursor.fetchall() if cursor.description else []

    def dsn(self, role: str, org: str | None = None) -> str:
        """How a login of a role connects; with an organisation for all its transactions, if one is said."""
        options = {} if org is None else {"options": f"-c mainspring.org={org}"}
        return make_conninfo(self.database.dsn, user=self.logins[role], **options)

    def connect(self, role: str, org: str | None = None) -> psycopg.Connection[Any]:
        return psycopg.connect(self.dsn(role, org), autocommit=True)
