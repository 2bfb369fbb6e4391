"""What the catalogue says of one schema, and the statements that change it."""

from __future__ import annotations

from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from mainspring.config import DEFAULT_SCHEMA
from mainspring.db.schema.rights import ROLES
from mainspring.db.wire.sql import render
from mainspring.errors import ConfigurationError, SchemaMissing


def role_names(schema: str = DEFAULT_SCHEMA) -> list[str]:
    """The group roles of a schema.

    >>> role_names()
    ['mainspring_worker', 'mainspring_api', 'mainspring_operator']
    """
    return [f"{schema}_{role}" for role in ROLES]


class Catalogue:
    """One schema: its tables, sequences, functions and owner."""

    def __init__(self, conn: psycopg.Connection[Any], schema: str) -> None:
        render("{schema}", schema)  # refuses a name that cannot be quoted
        self.conn, self.name = conn, schema
        self._schema = sql.Identifier(schema)

    def tables(self) -> list[str]:
        """The names of its tables."""
        return self._of_kind("rp")

    def sequences(self) -> list[str]:
        """The names of its sequences."""
        return self._of_kind("S")

    def bare(self) -> list[str]:
        """Its tables without row-level security."""
        query = """
            select c.relname from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
            where n.nspname = %s and c.relkind in ('r', 'p') and not c.relforcerowsecurity order by 1
        """
        return self.column(query)

    def _of_kind(self, kinds: str) -> list[str]:
        query = """
            select c.relname from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
            where n.nspname = %s and strpos(%s, c.relkind::text) > 0 order by 1
        """
        return self.column(query, self.name, kinds)

    def functions(self) -> list[tuple[str, sql.SQL]]:
        """Its functions: name and signature."""
        query = """
            select p.proname, p.oid::regprocedure::text
            from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
            where n.nspname = %s order by 2
        """
        return [(name, sql.SQL(signature)) for name, signature in self.rows(query)]  # quoted by PostgreSQL

    def without_org(self) -> list[str]:
        """Its tables without an organisation."""
        query = """
            select c.relname from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
            where n.nspname = %s and c.relkind in ('r', 'p') and not exists (
              select from pg_catalog.pg_attribute a where a.attrelid = c.oid and a.attname = 'org_id' and a.attnotnull)
            order by 1
        """
        return self.column(query, self.name)

    def owner(self) -> str:
        """The one role that owns everything: verbs run as it, so row-level security must bind it."""
        owners = self.column(
            """
            select distinct pg_get_userbyid(o.owner) from pg_catalog.pg_namespace n
            cross join lateral (
              select n.nspowner as owner
              union all select c.relowner from pg_catalog.pg_class c where c.relnamespace = n.oid and c.relkind <> 'c'
              union all select p.proowner from pg_catalog.pg_proc p where p.pronamespace = n.oid) o
            where n.nspname = %s
            """,
            self.name,
        )
        if not owners or not self.tables():
            raise SchemaMissing
        if len(owners) > 1:
            raise ConfigurationError(
                f"schema: {self.name} belongs to {' and '.join(sorted(owners))}; give all of it to one role "
                "(alter … owner to, or reassign owned)"
            )
        if bad := self.bad_owners():
            raise ConfigurationError(f"schema: {'; '.join(bad)}")
        return owners[0]

    def bad_owners(self) -> list[str]:
        """Why row-level security would not bind the owner, or would bind it too loosely."""
        rows = self.rows(
            """
            select distinct r.rolname, r.rolsuper or r.rolbypassrls,
                   array(select g.rolname::text from pg_catalog.pg_roles g
                         where g.rolname = any(%s) and not r.rolsuper and pg_has_role(r.oid, g.oid, 'usage'))
            from pg_catalog.pg_namespace n join pg_catalog.pg_class c on c.relnamespace = n.oid
            join pg_catalog.pg_roles r on r.oid in (c.relowner, n.nspowner)
            where n.nspname = %s
            """,
            role_names(self.name),
            self.name,
        )
        found = [
            f"its owner {name} is a superuser or bypasses row-level security; give it to an ordinary role"
            for name, free, _ in rows
            if free
        ]
        for name, _, groups in rows:
            found += [f"its owner {name} is a member of {group}: revoke {group} from {name}" for group in groups]
        return found

    def do(self, text: LiteralString, **parts: sql.Composable) -> None:
        """Run a statement with names filled in."""
        self.conn.execute(sql.SQL(text).format(schema=self._schema, **parts))

    def rows(self, query: LiteralString, *params: Any) -> list[Any]:
        """What a query answers; without parameters it is about this schema."""
        with self.conn.cursor(row_factory=tuple_row) as cursor:
            return cursor.execute(query, params or [self.name]).fetchall()

    def column(self, query: LiteralString, *params: Any) -> list[str]:
        """The first column of it."""
        return [row[0] for row in self.rows(query, *params)]
