"""Writes docs/schema.md from a migrated database and the comments of the SQL files: `make schema`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psycopg
from tools.dump_schema import migrated

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/schema.md"

INTRO = """\
# SQL schema

Written by `make schema` from `db/tables` and `db/verbs` and their comments; a test compares. The views are for
everybody: monitoring is just SQL. Functions marked with a star are called by the client and may be called by you.
Tables and the other functions belong to the engine: they change between versions, and guards refuse most changes by
hand.

All of it lives in the schema `mainspring`, unless you chose another name.
"""

#: The functions that people and programs call; what they do is promised.
PUBLIC = {"enqueue", "enqueue_many", "cancel", "reschedule", "prioritize", "pause", "resume", "now"}

_CREATED = re.compile(
    r"(?P<comment>(?:^--[^\n]*\n)+)^create (?:unlogged |or replace )?(?P<kind>table|view|function|sequence|type) "
    r"\{schema\}\.(?P<name>\w+)",
    re.MULTILINE,
)

_COLUMNS = """
    select c.relkind::text, c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull
    from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    where c.relnamespace = 'mainspring'::regnamespace and c.relkind in ('r', 'v')
    order by c.relname, a.attnum
"""

_INDEXES = """
    select i.indrelid::regclass::text, c.relname, regexp_replace(pg_get_indexdef(i.indexrelid), '^.* USING ', ''),
           i.indisunique
    from pg_index i join pg_class c on c.oid = i.indexrelid
    where c.relnamespace = 'mainspring'::regnamespace order by 1, not i.indisprimary, 2
"""

_FUNCTIONS = """
    select p.proname, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid)
    from pg_proc p where p.pronamespace = 'mainspring'::regnamespace and p.prorettype <> 'trigger'::regtype
    order by p.proname, 2
"""


def comments() -> dict[str, str]:
    """What stands above each thing in the SQL files, in one paragraph."""
    found = ROOT / "src/mainspring/db"
    text = "\n".join(file.read_text() for room in ("tables", "verbs") for file in sorted((found / room).glob("*.sql")))
    return {
        found["name"]: " ".join(line.removeprefix("--").strip() for line in found["comment"].splitlines()).strip()
        for found in _CREATED.finditer(text)
    }


def page(conn: psycopg.Connection[Any]) -> str:
    """The whole page."""
    why = comments()
    columns: dict[tuple[str, str], list[tuple[str, str, bool]]] = {}
    for kind, name, column, type_, needed in conn.execute(_COLUMNS).fetchall():
        columns.setdefault((kind, name), []).append((column, type_, needed))
    functions = conn.execute(_FUNCTIONS).fetchall()
    indexes: dict[str, list[str]] = {}
    for table, name, how, unique in conn.execute(_INDEXES).fetchall():
        about = f"- {'unique ' if unique else ''}index `{name}`: `{how}`"
        indexes.setdefault(table.removeprefix("mainspring.").strip('"'), []).append(about)
    return "\n".join(
        [
            INTRO,
            "## Views\n",
            *(_relation(name, found, why) for (kind, name), found in columns.items() if kind == "v"),
            "## Functions\n",
            *(_function(name, arguments, answer, why) for name, arguments, answer in functions),
            "## Tables\n",
            *(
                "\n".join([_relation(name, found, why), *indexes[name], ""])
                for (kind, name), found in columns.items()
                if kind == "r"
            ),
        ]
    )


def _relation(name: str, columns: list[tuple[str, str, bool]], why: dict[str, str]) -> str:
    rows = [f"| `{column}` | {type_}{', not null' if needed else ''} |" for column, type_, needed in columns]
    return "\n".join([f"### {name}\n\n{_said(name, why)}| column | type |", "| --- | --- |", *rows, ""])


def _function(name: str, arguments: str, answer: str, why: dict[str, str]) -> str:
    star = " ★" if name in PUBLIC else ""
    signature = f"{name}({', '.join(re.sub('mainspring[.]', '', arguments).split(', '))})"
    return f"### {name}{star}\n\n{_said(name, why)}```text\n{signature}\n  → {answer}\n```\n"


def _said(name: str, why: dict[str, str]) -> str:
    return f"{_escaped(why[name])}\n\n" if name in why else ""


def _escaped(comment: str) -> str:
    return comment.replace("|", r"\|").replace("<", r"\<").replace("*", r"\*").replace("_", r"\_")


if __name__ == "__main__":
    with migrated() as dsn, psycopg.connect(dsn) as conn:
        PAGE.write_text(page(conn))
    print(f"{PAGE.name}: {len(PAGE.read_text().splitlines())} lines")
