"""The signatures of the verbs of each line, and since which version: what a version has shipped never changes in place.

Workers of the version before go on while verbs are replaced. So a function whose arguments or columns change gets a
new name beside the old one, which a numbered file drops one version later; a view only grows at its end. `make schema`
writes the records, and refuses to lose what an earlier version has shipped.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from tools.dump_schema import migrated

from mainspring import __version__
from mainspring.db.schema.line import Line, engine_line
from mainspring.db.schema.migrate import migrate
from mainspring_apps.rental.app import MIGRATIONS as RENTAL
from mainspring_apps.staffing.market import MIGRATIONS as STAFFING

ROOT = Path(__file__).parent.parent
HEAD = "# Since which version each verb of this line has its signature: `make schema` writes this."

_FUNCTIONS = """
    select format('%%s(%%s) returns %%s', proname, pg_get_function_arguments(oid), pg_get_function_result(oid))
    from pg_proc where pronamespace = %(schema)s::regnamespace
"""
_VIEWS = """
    select format('view %%s: %%s', c.relname,
                  string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod), ', ' order by a.attnum))
    from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
    where c.relnamespace = %(schema)s::regnamespace and c.relkind = 'v' group by c.relname
"""


@dataclass(frozen=True, slots=True)
class RecordedLine:
    """A line whose verbs are in a schema of its name, the version that ships it, and where its signatures are kept."""

    line: Line
    version: str
    record: Path

    @property
    def name(self) -> str:
        """The line's."""
        return self.line.name


def recorded_lines() -> list[RecordedLine]:
    """The engine's, and those of the applications."""
    apps = tomllib.loads((ROOT / "apps/pyproject.toml").read_text())["project"]["version"]
    return [
        RecordedLine(engine_line(), __version__, ROOT / "tests/db/migrations/signatures.txt"),
        RecordedLine(STAFFING, apps, ROOT / "tests/apps/staffing/signatures.txt"),
        RecordedLine(RENTAL, apps, ROOT / "tests/apps/rental/signatures.txt"),
    ]


@dataclass(frozen=True, slots=True)
class Shipped:
    """What was recorded: a version, the edition and the digest of its verbs, and since when each signature stands."""

    version: str
    edition: int
    digest: str
    since: dict[str, str]

    @classmethod
    def read(cls, text: str) -> Shipped:
        """Read the record."""
        _, head, *lines = text.splitlines()
        version, edition, digest = head.split()
        return cls(version, int(edition), digest, {line.partition(" ")[2]: line.partition(" ")[0] for line in lines})

    def write(self) -> str:
        """The record as text."""
        lines = sorted(f"{version} {signature}" for signature, version in self.since.items())
        return "\n".join([HEAD, f"{self.version} {self.edition} {self.digest}", *lines]) + "\n"

    def problems(self, signatures: set[str], line: Line, version: str) -> list[str]:
        """What a version would break by having these signatures now."""
        dropped = {
            name
            for m in line.tables
            for name in re.findall(rf"drop (?:function|view) (?:\{{schema\}}|{line.name})\.(\w+)", m.text)
        }
        found = [
            f"{signature}: version {since} has shipped it. Let it stand and write a new name beside it; one version "
            "later a numbered file may drop it"
            for signature, since in self.since.items()
            if since != version and not _stands(signature, signatures) and _name(signature) not in dropped
        ]
        if self.version != version and self.digest != line.digest and line.edition <= self.edition:
            about = f"the verbs of {line.name} differ from those of version {self.version}"
            found.append(f"edition: {about}: make it {self.edition + 1}")
        return found

    def renewed(self, signatures: set[str], line: Line, version: str) -> Shipped:
        """The record of this version."""
        kept = {
            signature: since
            for signature, since in self.since.items()
            if signature in signatures or (since != version and _stands(signature, signatures))
        }
        return Shipped(version, line.edition, line.digest, dict.fromkeys(signatures, version) | kept)


def signatures(conn: psycopg.Connection[Any], schema: str = "mainspring") -> set[str]:
    """The signatures that a schema of a database has."""
    return {row[0] for query in (_FUNCTIONS, _VIEWS) for row in conn.execute(query, {"schema": schema}).fetchall()}


def _stands(signature: str, now: set[str]) -> bool:
    """Whether it is there; a view may have grown at its end."""
    return signature in now or any(one.startswith(f"{signature}, ") for one in now if one.startswith("view "))


def _name(signature: str) -> str:
    return re.split(r"[(:]", signature.removeprefix("view "))[0]


def main() -> None:
    """Write the records anew, unless something would be lost."""
    with migrated() as dsn, psycopg.connect(dsn) as conn:
        for one in recorded_lines():
            migrate(conn, line=one.line)
            now = signatures(conn, one.name)
            shipped = Shipped.read(one.record.read_text()) if one.record.exists() else Shipped(one.version, 0, "", {})
            if problems := shipped.problems(now, one.line, one.version):
                raise SystemExit("\n".join(problems))
            one.record.write_text(shipped.renewed(now, one.line, one.version).write())
            print(f"{one.record.relative_to(ROOT)}: {len(now)} signatures")


if __name__ == "__main__":
    main()
