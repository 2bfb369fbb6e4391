"""Measures of applications, read from the database: each in a transaction of its own that only reads."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from threading import Lock
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from mainspring.config import DEFAULT_SCHEMA
from mainspring.db.wire.connect import Connection, options
from mainspring.db.wire.sql import bounded
from mainspring.errors import MainspringError
from mainspring.health.measure import Measure, Measured, series
from mainspring.health.trouble import Trouble
from mainspring.text.params import params_now
from mainspring.text.sanitize import sanitize

log = logging.getLogger("mainspring.metrics")

MEASURE_GUARD = "set transaction read only; set local statement_timeout = '2 s'"
#: So many rows, and one more, is none.
COLUMNS_ONLY = -1
#: A histogram's observations are counted where they are: (labels…, [sum, at most each bound …, all]) travels.
COUNTED = """
select {labels} array[coalesce(sum(observed), 0), {upto} count(observed)]::float8[]
from (
{sql}
) asked ({labels} value) cross join lateral (select value::float8) observation (observed)
group by ({groups})"""


def counted(measure: Measure, labels: int) -> str:
    """The query that counts the observations of a histogram, whose columns before the last are so many labels."""
    names = [f"label_{number}" for number in range(labels)]
    upto = "".join(f"count(*) filter (where observed <= {bound!r}), " for bound in measure.buckets)
    sql, listed = measure.sql.strip().rstrip(";"), "".join(f"{name}, " for name in names)
    return COUNTED.format(labels=listed, upto=upto, sql=sql, groups=", ".join(names))


class Measures:
    """Reads them, and keeps them for a while, so that many who look cost no more than one."""

    def __init__(
        self, dsn: str, measures: Sequence[Measure], schema: str = DEFAULT_SCHEMA, *, keep: float = 15.0
    ) -> None:
        self._dsn, self._measures, self._schema, self._keep = dsn, tuple(measures), schema, keep
        self._errors: Counter[str] = Counter()
        self._found: list[Measured] = []
        self._read_at = float("-inf")
        self._lock = Lock()
        words = {one.name: f"measure {one.name} can" for one in self._measures}
        self._troubles = {
            name: Trouble(log, f"{text}not be read", f"{text} be read again") for name, text in words.items()
        }

    def __call__(self) -> list[Measured]:
        """What each answered; one that could not be asked says so, and harms no other."""
        with self._lock:
            if time.monotonic() >= self._read_at + self._keep:
                self._found = self._read()
                self._read_at = time.monotonic()
            return self._found

    def _read(self) -> list[Measured]:
        """By a connection that is closed at once: monitoring holds nothing."""
        try:
            conn: psycopg.Connection[Any]
            with Connection.connect(self._dsn, **options(self._dsn, "mainspring measures")) as conn:
                return [self._one(conn, measure) for measure in self._measures]
        except (psycopg.Error, MainspringError) as error:
            return [self._broken(measure, error) for measure in self._measures]

    def _one(self, conn: psycopg.Connection[Any], measure: Measure) -> Measured:
        try:
            with conn.transaction():
                conn.execute(MEASURE_GUARD)
                cursor = psycopg.Cursor(conn, row_factory=tuple_row)
                histogram = measure.kind == "histogram"
                params = None if measure.params is None else params_now(measure.sql, measure.params)
                most = COLUMNS_ONLY if histogram else measure.most_rows
                cursor.execute(bounded(measure.sql, self._schema, most), params)
                columns = [column.name for column in cursor.description or ()]
                if histogram:
                    cursor.execute(bounded(counted(measure, len(columns) - 1), self._schema, measure.most_rows), params)
                found = series(measure, columns, cursor.fetchall())
        except (psycopg.Error, ValueError, TypeError) as error:
            return self._broken(measure, error)
        self._troubles[measure.name].over()
        return replace(found, errors=self._errors[measure.name])

    def _broken(self, measure: Measure, error: Exception) -> Measured:
        self._errors[measure.name] += 1
        text = sanitize(str(error), 500)
        self._troubles[measure.name].failed(text)
        return Measured(measure, error=text, errors=self._errors[measure.name])
