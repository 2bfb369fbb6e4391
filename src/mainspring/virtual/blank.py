"""What a database looks like that nobody has used, and how a used one is made so again.

Rows are deleted with triggers off, which costs a fraction of a new copy; all else that a test can change, from a grant
to the size of an index, is only looked at, and a database that looks different is not used again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final, Self

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Composable, Identifier, Literal

from mainspring.db.wire.sql import named

_SQL: Final = named((files(__package__) / "blank.sql").read_text())
#: Rows are compared as text, whatever the database or the role prefers, and what we write is not counted.
_SETTINGS: Final = {
    "session_replication_role": "replica",
    "row_security": "off",
    "track_counts": "off",
    "stats_fetch_consistency": "none",
    "synchronous_commit": "off",
    "lock_timeout": "2s",
    "statement_timeout": "20s",
    "search_path": "pg_catalog",
    "jit": "off",
    "TimeZone": "UTC",
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
    "bytea_output": "hex",
    "extra_float_digits": "1",
}
_FIXED: Final = """
select (datdba, datacl, datallowconn, datconnlimit, datistemplate)::text,
  (select (sum(relpages), sum(reltuples))::text from pg_class where oid >= 16384),
  array(select oid from pg_class where oid >= 16384 and relkind in ('r', 'i') and pg_relation_size(oid) > 2 * 8192),
  exists (select from pg_class where relkind = 'm'), (select rolsuper from pg_roles where rolname = current_user)
from pg_database where datname = current_database()
"""
_TABLES: Final = """
select c.oid, n.nspname, c.relname, array(
  select attname::text from pg_attribute
  where attrelid = c.oid and attnum > 0 and not attisdropped and attgenerated = ''
  order by attnum)
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind = 'r' and c.oid >= 16384 and pg_relation_size(c.oid) > 0
"""
_CALLED: Final = "select seqrelid, pg_sequence_last_value(seqrelid) from pg_sequence"
_ROW: Final = Identifier("a row of it")  # a name that no column has
_ROWS: Final = "select array_agg({row}::text order by {row}::text) from only {table} as {row}"
_LARGE: Final = 10_000  # characters: to send and to parse 100,000 costs 5 ms, and hardly a test writes there
_DIGEST: Final = "sha256(convert_to(({rows})::text, 'UTF8'))::text"
# Two conditions, one in the other: PostgreSQL plans the second, for 0.6 ms a table, only where it is reached.
_KEPT: Final = """
  if {oid} = any (written) then
    if {now} is distinct from {digest} then
      raise exception 'rows that are kept';
    end if;
  end if;
"""
_SEED: Final = """
  if {oid} = any (written) then
    if ({now}) is distinct from {rows}::text[] then
      delete from only {table};
      insert into {table} ({columns}) overriding system value
        select {values} from (select value::{table} as {row} from unnest({rows}::text[]) as value) as seed;
    end if;
  end if;
"""


class Unfit(Exception):
    """A database cannot be made blank again, and why."""


@dataclass(frozen=True, slots=True)
class Blank:
    """A new database: how it looks, and the statements that make a used one so."""

    look: dict[str, str]
    statements: bytes

    @classmethod
    def of(cls, dsn: str) -> Self | None:
        """Learn from a new one; None where we may not do it all, or where it holds more than rows."""
        try:
            with _connect(dsn) as conn:
                ((database, planner, large, materialized, superuser),) = conn.execute(_FIXED).fetchall()
                if materialized or not superuser:
                    return None
                seeds = dict(_seeds(conn))
                called = {oid: value for oid, value in conn.execute(_CALLED).fetchall() if value is not None}
                restore = SQL(_SQL["restore"]).format(
                    database=Literal(database),
                    planner=Literal(planner),
                    large=_oids(large),
                    seeded=_oids(seeds),
                    seeds=SQL("").join(seeds.values()),
                    sequences=_oids(called),
                    values=SQL("{}::bigint[]").format(Literal(list(called.values()))),
                )
                return cls(_look(conn), restore.as_bytes(conn))
        except psycopg.OperationalError:  # the options are refused
            return None

    def restore(
        self, dsn: str, oid: int, counted: str | None, used: Callable[[psycopg.Connection[Any]], object]
    ) -> str:
        """Make a used database blank, mostly in one round trip; returns since when PostgreSQL counts anew.

        `counted` is what this returned the last time; None for a database that was never made blank. `used` is handed
        the connection first, while everything is as it was left.
        """
        asked = SQL(_SQL["ask"]).format(oid=Literal(str(oid)), counted=Literal(counted or "never"))
        try:
            with _connect(dsn) as conn:
                used(conn)
                cursor = conn.execute(asked.as_bytes(conn) + b";" + self.statements)
                while cursor.nextset():
                    pass
                ((since, written),) = cursor.fetchall()
                look = _look(conn) if written else self.look
        except psycopg.Error as error:
            raise Unfit(str(error).partition("\n")[0]) from error
        if changed := sorted(name for name, _ in look.items() ^ self.look.items()):
            raise Unfit(changed[0])
        return str(since)


def _connect(dsn: str) -> psycopg.Connection[Any]:
    options = " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items())
    return psycopg.connect(make_conninfo(dsn, options=options), autocommit=True)


def _look(conn: psycopg.Connection[Any]) -> dict[str, str]:
    return dict(conn.execute(_SQL["look"]).fetchall())


def _seeds(conn: psycopg.Connection[Any]) -> Iterator[tuple[int, Composable]]:
    """What makes each table hold what it holds in a new database, where that is anything."""
    for oid, schema, name, columns in conn.execute(_TABLES).fetchall():
        table = Identifier(schema, name)
        now = SQL(_ROWS).format(row=_ROW, table=table)
        ((rows,),) = conn.execute(now).fetchall()
        if rows is None:
            continue
        if sum(map(len, rows)) > _LARGE:
            digest = SQL(_DIGEST).format(rows=now)
            ((found,),) = conn.execute(SQL("select {}").format(digest)).fetchall()
            yield oid, SQL(_KEPT).format(oid=Literal(oid), now=digest, digest=Literal(found))
            continue
        yield (
            oid,
            SQL(_SEED).format(
                oid=Literal(oid),
                now=now,
                rows=Literal(rows),
                table=table,
                columns=SQL(", ").join(map(Identifier, columns)),
                values=SQL(", ").join(SQL("({}).{}").format(_ROW, Identifier(column)) for column in columns),
                row=_ROW,
            ),
        )


def _oids(oids: Iterable[int]) -> Composable:
    return SQL("{}::oid[]").format(Literal(list(oids)))
