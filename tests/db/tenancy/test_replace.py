"""A migration of a secured schema: what it replaces and brings is secured when it commits, and nobody is locked out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from tests.databases import Database
from tests.secured import superuser

import mainspring.db.schema.migrate
from mainspring.db.schema.line import Line, Migration, engine_line
from mainspring.db.schema.migrate import migrate
from mainspring.db.schema.rights import VERB_RIGHTS
from mainspring.db.schema.secure import cover, secure, unsecure
from mainspring.db.schema.verb import Verb

VERB = """
    select p.prosecdef, p.proconfig @> array['search_path=pg_catalog, pg_temp'],
           has_function_privilege('public', p.oid, 'execute'), has_function_privilege(%s, p.oid, 'execute'), p.prosrc
    from pg_proc p where pronamespace = to_regnamespace(%s) and proname = 'cancel'
"""
NEW = (
    "create table {schema}.new_one (org_id text not null);",
    "create or replace function {schema}.new_one() returns int language sql return 1",
)


@pytest.fixture
def secured(database: Database) -> Iterator[str]:
    """A secured schema whose roles no other test uses."""
    name = f"jobs{uuid4().hex[:8]}"
    with superuser(database) as conn, database.connect() as owner:
        migrate(owner, schema=name)
        secure(conn, schema=name)
        yield name
        unsecure(conn, schema=name)
        conn.execute(f"drop schema {name} cascade".encode())


def later(*more: Verb, tables: tuple[Migration, ...] = ()) -> Line:
    """The engine's line of a next version: every verb that runs as the owner has changed."""
    line = engine_line()
    owned = {f"{{schema}}.{name}" for name in VERB_RIGHTS}
    verbs = [
        Verb(re.sub(r"\n", " -- a later form\n", verb.text, count=1)) if verb.name in owned else verb
        for verb in line.verbs
    ]
    return replace(line, tables=(*line.tables, *tables), verbs=(*verbs, *more), edition=2)


def about(conn: psycopg.Connection[Any], schema: str) -> tuple[Any, ...]:
    row = conn.execute(VERB, [f"{schema}_api", schema]).fetchone()
    assert row is not None
    return tuple(row)


def test_replaced_verbs_and_what_is_new_are_secured(database: Database, secured: str) -> None:
    number = len(engine_line().tables) + 1
    with database.connect() as owner:
        before = about(owner, secured)
        line = later(Verb(NEW[1]), tables=(Migration(number, "new", NEW[0]),))
        applied = migrate(owner, schema=secured, line=line)
        assert (applied.tables, len(applied.verbs)) == ([number], len(VERB_RIGHTS) + 1)
        assert cover(owner, schema=secured).gaps == []
        assert about(owner, secured)[:4] == before[:4] == (True, True, False, True)


def test_table_that_comes_without_a_verb_is_secured(database: Database, secured: str) -> None:
    line = engine_line()
    more = Migration(len(line.tables) + 1, "new", NEW[0])
    with database.connect() as owner:
        applied = migrate(owner, schema=secured, line=replace(line, tables=(*line.tables, more)))
        assert (applied.tables, applied.verbs) == ([more.number], [])
        assert cover(owner, schema=secured).gaps == []


def test_verbs_are_not_replaced_where_they_cannot_be_secured(
    database: Database, secured: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise psycopg.errors.InsufficientPrivilege

    monkeypatch.setattr(mainspring.db.schema.migrate, "secure_new", fail)
    with database.connect() as owner:
        before = about(owner, secured)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            migrate(owner, schema=secured, line=later())
        assert about(owner, secured) == before
        assert cover(owner, schema=secured).gaps == []


def test_verbs_are_replaced_and_secured_while_somebody_writes_to_every_table(database: Database, secured: str) -> None:
    """Policies take the table's strongest lock: a table that has them is not touched."""
    tables = """
        select string_agg(c.oid::regclass::text, ', ') from pg_class c
        where c.relkind = 'r' and c.relnamespace = to_regnamespace(%s)
    """
    with database.connect() as owner, database.connect() as holder, holder.transaction():
        (names,) = holder.execute(tables, [secured]).fetchone() or ("",)
        holder.execute(f"lock table {names} in row exclusive mode".encode())
        assert len(migrate(owner, schema=secured, line=later()).verbs) == len(VERB_RIGHTS)
        assert cover(owner, schema=secured).gaps == []
