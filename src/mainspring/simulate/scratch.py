"""The scratch database of a simulation: made on a server of its own or on a given one, and dropped afterwards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from uuid import uuid4

import psycopg

from mainspring.db.wire.connect import options
from mainspring.db.wire.fence import confined
from mainspring.db.wire.translate import unavailable
from mainspring.embedded import VOLATILE
from mainspring.errors import ConfigurationError
from mainspring.virtual.databases import Database, DatabaseServer
from mainspring.virtual.run import RunClusters

#: The virtual clock is read some twenty times at every instant. Measured: 7 µs a call from its table, 2 µs from a
#: setting, which the connection that asks most has besides.
QUICKEN: Final = """
create or replace function {schema}.now() returns timestamptz language plpgsql stable as $$
declare
  said constant text := current_setting('mainspring.now', true);
begin
  if said <> '' then
    return said::timestamptz;
  end if;
  return (select c.at from {schema}.clock c);
end $$
"""
MOVE: Final = "update {schema}.clock set at = %s returning set_config('mainspring.now', at::text, false)"
TIDY_SCRATCH: Final = "vacuum {schema}.clock, {schema}.waiting, {schema}.running, {schema}.schedule_zone"

#: Where programs look for their database: an application that is imported inside the block finds the scratch one.
VARIABLES = ("MAINSPRING_DSN", "DATABASE_URL")


@contextmanager
def scratch(dsn: str | None = None, *, keep: bool = False) -> Iterator[Database]:
    """An empty database of its own; inside the block every connection of Mainspring in this process leads there.

    On the server of `dsn`, by a role that may create databases, or on a throw-away one in memory. What a killed
    simulation left behind is removed by the next one on the same server.
    """
    name = uuid4().hex[:12]
    with _given(dsn, name) if dsn else _own(name) as server, _copied(server, keep) as database:
        before = {variable: os.environ.get(variable) for variable in VARIABLES}
        os.environ.update(dict.fromkeys(VARIABLES, database.dsn))
        try:
            with confined(database.dsn):
                yield database
        finally:
            for variable, value in before.items():
                os.environ.pop(variable) if value is None else os.environ.update({variable: value})


@contextmanager
def _own(name: str) -> Iterator[DatabaseServer]:
    run = RunClusters.join(f"simulate-{name}")
    try:
        yield DatabaseServer.of(run.cluster("memory/18", settings=VOLATILE))
    finally:
        run.leave()


@contextmanager
def _given(dsn: str, name: str) -> Iterator[DatabaseServer]:
    options(dsn, "mainspring simulate")  # what is wrong with it is said without its own words
    with unavailable(), DatabaseServer.shared(dsn, name) as server:
        yield server


@contextmanager
def _copied(server: DatabaseServer, keep: bool) -> Iterator[Database]:
    try:
        copy = server.copy("template0", keep=keep)
        database = copy.__enter__()
    except psycopg.errors.InsufficientPrivilege:
        raise ConfigurationError("dsn: this role may not create databases: alter role … createdb") from None
    try:
        yield database
    finally:
        copy.__exit__(None, None, None)
