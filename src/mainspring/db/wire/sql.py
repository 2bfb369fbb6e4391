"""The name of the database schema, and the SQL texts written for it.

SQL files say `{schema}`, `{channel}` and `{claim_lock}`; they are filled in once, at load time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import LiteralString

from mainspring.config import DEFAULT_SCHEMA
from mainspring.errors import ConfigurationError


def render(text: str, schema: str) -> LiteralString:
    """Fill the schema's names into an SQL text of ours.

    A literal in spirit: the text comes from a file of this package, and the name is checked and quoted here.
    """
    if not schema or len(schema.encode()) > 40 or any(c in "\"'\\{}%" or not c.isprintable() for c in schema):
        raise ConfigurationError(f"schema: {schema!r} is not a name of 1 to 40 bytes without quotes, braces, \\ and %")
    lock = int.from_bytes(hashlib.sha256(f"mainspring claim {schema}".encode()).digest()[:8], "big", signed=True)
    text = text.replace("{schema}", f'"{schema}"').replace("{channel}", f"'{schema}'")
    return text.replace("{claim_lock}", f"({lock})")


def bounded(text: str, schema: str, most: int) -> bytes:
    """A query of an application, with the schema's name filled in, and one row more than is looked at.

    As a part of another it is one query, whatever stands at its end.
    """
    return f"select * from (\n{render(text.strip().rstrip(';'), schema)}\n) asked limit {most + 1}".encode()  # noqa: S608 (the application's own text)


def named(text: str) -> dict[str, str]:
    """Split a file into its statements by their `-- name:` lines, without the comments.

    psycopg looks for placeholders in comments too, so they are dropped.
    """
    statements: dict[str, str] = {}
    for part in text.split("-- name: ")[1:]:
        name, _, body = part.partition("\n")
        statements[name.strip()] = "\n".join(line for line in body.splitlines() if not line.startswith("--")).strip()
    return statements


class Sql:
    """The named statements of `sql/*.sql`, written for one schema.

    >>> Sql()["wake"]
    'select "mainspring".wake()'
    """

    def __init__(self, schema: str = DEFAULT_SCHEMA) -> None:
        self.schema = schema
        self._statements = _written(schema)

    def __getitem__(self, name: str) -> LiteralString:
        return self._statements[name]

    def names(self) -> list[str]:
        """Every statement, for the test that prepares them all."""
        return list(self._statements)


@cache
def _written(schema: str) -> Mapping[str, LiteralString]:
    """Once for a schema: each client, worker and connection asks for them."""
    return {name: render(text, schema) for name, text in _load().items()}


@cache
def _load() -> dict[str, str]:
    found: dict[str, str] = {}
    for file in sorted(_folder("sql").iterdir(), key=lambda f: f.name):
        for name, text in named(file.read_text()).items():
            assert name not in found, f"statement {name} stands twice"
            found[name] = text
    return found


def _folder(name: str) -> Traversable:
    return files("mainspring.db") / name
