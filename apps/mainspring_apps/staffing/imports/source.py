"""What the views say, all at one instant, each value as text: what a text means is checked row by row."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, get_args

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from mainspring.errors import ConfigurationError
from mainspring.text.texts import did_you_mean, shown
from mainspring_apps.staffing import store
from mainspring_apps.staffing.imports.columns import Noun, Raw, columns
from mainspring_apps.staffing.states import Refused
from mainspring_apps.staffing.store import Conn

Views = Mapping[Noun, list[Raw]]
_SCHEMA: Final = re.compile("[^\x00-\x1f]{1,63}")


def read(conn: Conn, schema: str) -> Views:
    """Every row of every view, in order of their ids."""
    if not _SCHEMA.fullmatch(schema) or schema == "staffing":
        raise Refused("schema: is not the name of a schema of yours", field="schema")
    conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ  # a booking and its shifts are of one instant
    try:
        with conn.transaction():
            store.do(conn, "plain_dates")
            return {noun: _view(conn, schema, noun) for noun in get_args(Noun)}
    finally:
        conn.isolation_level = None


def _view(conn: Conn, schema: str, noun: Noun) -> list[Raw]:
    known = store.column(conn, "columns_of", schema=schema, view=noun)
    if not known:
        raise ConfigurationError(
            f"there is no view {shown(schema)}.{noun}: an import reads {', '.join(get_args(Noun))}"
        )
    for name in columns(noun):
        if name not in known:
            raise ConfigurationError(f"{shown(schema)}.{noun} has no column {name}{did_you_mean(name, known)}")
    wanted = sql.SQL(", ").join(sql.SQL("{0}::text as {0}").format(sql.Identifier(name)) for name in columns(noun))
    place = sql.SQL("{}.{}").format(sql.Identifier(schema), sql.Identifier(noun))
    query = sql.SQL('select {} from {} order by external_id::text collate "C"').format(wanted, place)
    try:
        with conn.cursor(row_factory=dict_row) as cursor:
            return list(cursor.execute(query).fetchall())
    except psycopg.errors.OperationalError:
        raise
    except psycopg.Error as error:
        why = str(error).strip().partition("\n")[0]
        raise ConfigurationError(f"{shown(schema)}.{noun} cannot be read: {why}") from None
