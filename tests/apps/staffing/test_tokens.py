from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from tests.apps.staffing.town import Town

from mainspring.testing import Crash
from mainspring_apps.staffing import store, tokens
from mainspring_apps.staffing.registry import MAGIC_LINKS

NIGHT = datetime(2026, 6, 2, 2, tzinfo=UTC)
HOUR = timedelta(hours=1)


def token(town: Town, *, expires: datetime, created: datetime, used: bool = False) -> int:
    hashed = f"secret-{expires}-{created}-{used}".encode()
    return town.insert("magic_link_tokens", token_hash=hashed, expires_at=expires, created_at=created, used=used)


def many(town: Town, count: int) -> None:
    town.conn.execute(
        "insert into staffing.magic_link_tokens (token_hash, expires_at, created_at)"
        " select ('t' || n)::bytea, %s, %s from generate_series(1, %s) n",
        [NIGHT - HOUR, NIGHT - 2 * HOUR, count],
    )


def left(town: Town) -> list[int]:
    return [row[0] for row in town.rows("select id from staffing.magic_link_tokens order by id")]


@pytest.mark.rule("STAFF-13.01")
def test_tokens_are_removed_every_night_at_two(town: Town) -> None:
    town.mainspring.drain()
    for night in (NIGHT, NIGHT + timedelta(days=1)):
        town.mainspring.clock.set(night - timedelta(seconds=1))
        town.mainspring.drain()
        town.mainspring.advance(seconds=1)
    fired = town.rows("select instant from mainspring.fire where schedule = 'magic-link-cleanup' and how = 'fired'")
    assert sorted(at for (at,) in fired) == [NIGHT, NIGHT + timedelta(days=1)]
    assert (
        town.rows("select queue, state from mainspring.jobs where task = 'clean_tokens'")
        == [(MAGIC_LINKS, "succeeded")] * 2
    )


@pytest.mark.rule("STAFF-13.02")
@pytest.mark.rule("STAFF-13.03")
@pytest.mark.rule("STAFF-13.04")
@pytest.mark.rule("STAFF-13.06")
def test_expired_and_forgotten_tokens_go_and_others_stay(town: Town, caplog: pytest.LogCaptureFixture) -> None:
    town.mainspring.clock.set(NIGHT)
    second, day = timedelta(seconds=1), timedelta(hours=24)
    for used in (True, False):
        token(town, expires=NIGHT - second, created=NIGHT - HOUR, used=used)
    token(town, expires=NIGHT + day, created=NIGHT - 25 * HOUR)  # unused, and valid for long
    kept = [
        token(town, expires=NIGHT + HOUR, created=NIGHT - 48 * HOUR, used=True),
        token(town, expires=NIGHT + HOUR, created=NIGHT - day),  # exactly a day old
        token(town, expires=NIGHT, created=NIGHT - HOUR),  # expires now: not before
    ]
    with caplog.at_level(logging.INFO, logger="mainspring_apps.staffing"):
        town.mainspring.run_one(tokens.clean_tokens.job())
    assert left(town) == kept
    (line,) = [line for line in caplog.records if "magic links" in line.getMessage()]
    said = vars(line)
    assert (said["expired"], said["unused"], said["batches"]) == (2, 1, 1)
    assert said["duration"] >= 0
    assert "secret" not in str(said)


@pytest.mark.rule("STAFF-13.05")
@pytest.mark.rule("STAFF-13.08")
def test_each_batch_is_a_transaction_and_the_next_run_finishes_what_one_left(
    town: Town, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    many(town, 2500)
    town.mainspring.clock.set(NIGHT)
    column, batches = store.column, 0

    def dying(conn: Any, name: str, /, **params: Any) -> Any:
        nonlocal batches
        batches += 1
        if batches == 2:
            raise Crash
        return column(conn, name, **params)

    with monkeypatch.context() as patch:
        patch.setattr(store, "column", dying)
        town.mainspring.run_one(tokens.clean_tokens.job())
    assert len(left(town)) == 1500  # the first batch is committed
    with caplog.at_level(logging.INFO, logger="mainspring_apps.staffing"):
        town.mainspring.run_one(tokens.clean_tokens.job())
    assert left(town) == []
    (line,) = [line for line in caplog.records if "magic links" in line.getMessage()]
    assert (vars(line)["expired"], vars(line)["batches"]) == (1500, 2)
    many(town, 2500)
    before = town.value("select count(distinct xmin::text) from staffing.magic_link_tokens")
    town.conn.execute("create table deletions (id bigint, tx xid8 default pg_current_xact_id())")
    town.conn.execute(
        "create function note() returns trigger language plpgsql as"
        " $$ begin insert into deletions (id) values (old.id); return old; end $$"
    )
    town.conn.execute(
        "create trigger note before delete on staffing.magic_link_tokens for each row execute function note()"
    )
    town.mainspring.run_one(tokens.clean_tokens.job())
    sizes = town.rows("select count(*) from deletions group by tx order by tx::text::bigint")
    assert (before, sizes) == (1, [(1000,), (1000,), (500,)])


@pytest.mark.rule("STAFF-13.07")
@pytest.mark.rule("STAFF-17.06")
def test_the_indexes_are_those_that_postgresql_allows(town: Town) -> None:
    found = town.rows(
        "select indexdef from pg_indexes where schemaname = 'staffing' and tablename = 'magic_link_tokens'"
    )
    defined = {row[0].partition(" USING ")[2] for row in found}
    assert {"btree (expires_at, used)", "btree (created_at) WHERE (used = false)"} <= defined
    with pytest.raises(
        psycopg.errors.InvalidObjectDefinition, match="functions in index predicate must be marked IMMUTABLE"
    ):
        town.conn.execute(
            "create index on staffing.magic_link_tokens (expires_at) where used = false and expires_at < now()"
        )
