"""The search for workers: one query, with who is free right now, for people who look and for saved searches."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
import psycopg
from psycopg.types.json import Jsonb

import mainspring as ms
from mainspring_apps.staffing import store
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.events import event
from mainspring_apps.staffing.people import By
from mainspring_apps.staffing.rules.matching import Asked, Criteria
from mainspring_apps.staffing.rules.weeks import Period
from mainspring_apps.staffing.states import Refused
from mainspring_apps.staffing.store import Conn


class Found(msgspec.Struct, frozen=True):
    """A worker who is what was asked for."""

    id: int
    trade: str
    zip_code: str
    listed_at: datetime


class Hit(Found, frozen=True):
    """A worker, and for which of several searches."""

    number: int


class Unanswered(ms.Failure):
    """The query failed, whatever the reason; see `rules.failures` for what follows.

    A failure of its own, whatever lies behind it: the engine would not count an attempt at a database that is full.
    """

    def __init__(self, sqlstate: str | None, detail: str) -> None:
        super().__init__(detail)
        self.sqlstate = sqlstate


def find(conn: Conn, *wanted: Asked, listed: Period | None = None, worker_id: int | None = None) -> list[list[Found]]:
    """The workers whom each of these searches finds, newest first; in the main search and in every alert.

    ::

        (workers,) = find(conn, matching.asked({"trade": "welder", "from": "2026-06-08"}, user.timezone))

    Only the primary is asked, and all rows have arrived before anybody sees one: a failure in the middle is a failure
    (STAFF-7.11). `listed` narrows it to who was listed in a span of time, `worker_id` to one worker.
    """
    try:
        if not store.value(conn, "on_primary"):
            raise Unanswered("25006", "the database is a replica")
        hits = store.many(
            conn, Hit, "search_workers",
            trades=[one.trade for one in wanted], zip_codes=[one.zip_code for one in wanted],
            starts=[one.starts for one in wanted], ends=[one.ends for one in wanted],
            listed_from=listed and listed.start, listed_until=listed and listed.end, worker_id=worker_id,
        )  # fmt: skip
    except psycopg.Error as error:
        raise Unanswered(error.sqlstate, error.diag.message_primary or str(error)) from error
    found: list[list[Found]] = [[] for _ in wanted]
    for hit in hits:
        found[hit.number].append(Found(hit.id, hit.trade, hit.zip_code, hit.listed_at))
    return found


@event
def save_search(
    desk: Desk,
    conn: Conn,
    *,
    user_id: int,
    criteria: Mapping[str, Any],
    name: str = "Saved search",
    instant: bool = True,
    digest: bool = True,
    by: By,
) -> int:
    """Save a search; its user is told of workers that it finds later.

    The desk has nothing to do here; every event takes one.
    """
    try:
        said = msgspec.convert(criteria, Criteria)
    except msgspec.ValidationError as error:
        raise Refused(f"criteria: {error}", field="criteria") from None
    if said.from_ and said.to and said.to < said.from_:
        raise Refused("criteria: ends before it begins", field="criteria")
    store.needed(conn, dict[str, Any], "user_of_company", user_id=user_id)
    about = {"user_id": user_id, "name": name, "criteria": Jsonb(dict(criteria))}
    return int(store.value(conn, "add_search", **about, instant=instant, digest=digest))
