"""Named SQL statements of an application, from the `.sql` files of its package."""

from __future__ import annotations

from importlib.resources import files
from typing import LiteralString

from mainspring.config import DEFAULT_SCHEMA
from mainspring.db.wire.sql import named, render
from mainspring.errors import DeclarationError


class Statements:
    """The statements in the folder `sql` of a package, by their names.

    ::

        -- name: pay_booking
        -- Why, who and which index: comments are for readers only.
        update shop.booking set status = 'paid' where id = %(id)s and status = 'open'

        sql = Statements("shop")
        conn.execute(sql["pay_booking"], {"id": 7})

    `{schema}` in a file is the schema of Mainspring.
    """

    def __init__(self, package: str, *, folder: str = "sql", schema: str = DEFAULT_SCHEMA) -> None:
        self._statements: dict[str, LiteralString] = {}
        for file in sorted((files(package) / folder).iterdir(), key=lambda f: f.name):
            if not file.name.endswith(".sql"):
                continue
            for name, text in named(file.read_text()).items():
                if name in self._statements:
                    raise DeclarationError(f"{package}: the statement {name} stands twice")
                self._statements[name] = render(text, schema)

    def __getitem__(self, name: str) -> LiteralString:
        try:
            return self._statements[name]
        except KeyError:
            raise DeclarationError(f"there is no statement {name}") from None

    def names(self) -> list[str]:
        """Every statement, for a test that prepares them all."""
        return list(self._statements)
