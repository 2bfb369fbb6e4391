"""A line: the tables and verbs of the engine, or of one application.

Tables are migrated: `tables/NNNN_name.sql`, each applied once and never changed. Verbs are replaced: `verbs/*.sql`, one
file a subject. The first lines of a numbered file give the reason; `-- breaking` there tells running workers of older
versions to stop.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable

from mainspring.db.schema.verb import Verb, read_verbs, whole
from mainspring.errors import DeclarationError

ENGINE_LINE = "mainspring"
#: Of the engine's verbs: one more with every version whose verbs differ from those of the version before.
EDITION = 1


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered step: the DDL of tables, indexes, sequences and types."""

    number: int
    name: str
    text: str

    @property
    def breaking(self) -> bool:
        """Whether workers of an older version must stop once it is applied."""
        head = re.match(r"(--[^\n]*\n)*", self.text)
        return head is not None and "-- breaking" in head.group()

    @property
    def digest(self) -> str:
        """Tells whether a file changed after it was applied, which only an unreleased one does."""
        return sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Line:
    """The tables and verbs of the engine or of one application.

    ::

        # shop/tables/0001_orders.sql, shop/verbs/views.sql
        app = ms.App(tasks, migrations=[ms.Line.of("shop", "shop", edition=3)])
    """

    name: str
    tables: tuple[Migration, ...]
    verbs: tuple[Verb, ...] = ()
    edition: int = 1

    @classmethod
    def read(cls, name: str, folder: Traversable, *, edition: int = 1) -> Line:
        """Read the folders `tables`, of files numbered from 0001 on without gaps, and `verbs`."""
        tables, verbs = folder / "tables", folder / "verbs"
        if not tables.is_dir() and not verbs.is_dir():
            raise DeclarationError(f"{name} has neither tables/NNNN_name.sql nor verbs/*.sql in {folder}")
        found = [
            Migration(int(match[1]), match[2], file.read_text())
            for file in (sorted(tables.iterdir(), key=lambda f: f.name) if tables.is_dir() else ())
            if (match := re.fullmatch(r"(\d{4})_(\w+)\.sql", file.name))
        ]
        if [m.number for m in found] != list(range(1, len(found) + 1)):
            raise DeclarationError(f"tables of {name} are not numbered from 0001 on without gaps")
        return cls(name, tuple(found), read_verbs(verbs) if verbs.is_dir() else (), edition)

    @classmethod
    def of(cls, name: str, package: str, *, edition: int = 1) -> Line:
        """The folders `tables` and `verbs` of a package; their files may say `{schema}` for the engine's.

        Raise `edition` with each release that changes a verb: an older edition never replaces a newer one.
        """
        return cls.read(name, files(package), edition=edition)

    @property
    def digest(self) -> str:
        """Tells whether a database has all its verbs in this form."""
        return whole((verb.key, verb.digest) for verb in self.verbs)


@cache
def engine_line() -> Line:
    """The engine's own."""
    return Line.read(ENGINE_LINE, files("mainspring.db"), edition=EDITION)
