"""People who look for workers, for tests of saved searches: what they are told, and a query that breaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from psycopg.types.json import Jsonb
from tests.apps.staffing.town import Town

from mainspring_apps.staffing.searches import listings

#: Tuesday noon in New York: nobody sleeps, and the next digests are far.
NOON = datetime(2026, 6, 2, 16, tzinfo=UTC)
WELDER = {"trade": "welder"}
HEAD = """
create or replace function staffing.search_workers(trade text, zip_code text, starts timestamptz, ends timestamptz,
  listed_from timestamptz, listed_until timestamptz, worker_id bigint)
returns setof staffing.workers language plpgsql as $$
#variable_conflict use_variable
begin {} return query select w.* from staffing.workers w where w.state = 'Listed'
  and (worker_id is null or w.id = worker_id) and (listed_from is null or w.listed_at >= listed_from)
  and (listed_until is null or w.listed_at < listed_until) and (trade is null or w.trade = trade); end $$
"""


class Seekers:
    """A borrower whose people save searches, and a lender whose workers they wait for."""

    def __init__(self, town: Town, at: datetime = NOON) -> None:
        self.town = town
        town.mainspring.clock.set(at)
        self.borrower = town.company("Borrower", stripe_customer_id=None)
        self.lender = town.company("Lender", stripe_account_id=None)

    def user(self, **about: Any) -> int:
        """Somebody who wants a digest also of nobody, unless it is said otherwise."""
        return self.town.user(self.borrower, "Manager", **{"opted_out": []} | about)

    def search(self, user: int, criteria: Mapping[str, Any] = WELDER, **about: Any) -> int:
        return self.town.insert("saved_searches", user_id=user, criteria=Jsonb(dict(criteria)), **about)

    def crowd(self, count: int, *, trades: Sequence[str] = ("welder",), zone: str = "America/New_York") -> list[int]:
        """So many users with one search each; in one go."""
        rows = self.town.rows(
            "with people as (insert into staffing.users"
            " (company_id, role, name, email, timezone, quiet_hours_start, quiet_hours_end, opted_out)"
            " select %s, 'Manager', 'P', 'c' || n || '@example.com', %s, '22:00', '07:00', '{}'"
            " from generate_series(1, %s) n returning id)"
            " insert into staffing.saved_searches (user_id, criteria) select id, jsonb_build_object('trade',"
            " (%s::text[])[1 + (row_number() over (order by id)) %% cardinality(%s::text[])]) from people returning id",
            self.borrower, zone, count, list(trades), list(trades),
        )  # fmt: skip
        return [row[0] for row in rows]

    def worker(self, *, listed: datetime | None = None, **about: Any) -> int:
        state = {"state": "Listed", "listed_at": listed} if listed else {}
        return self.town.worker(self.lender, **about, **state)

    def enlist(self, worker: int) -> bool:
        with self.town.conn.transaction():
            return listings.list_worker(
                self.town.desk, self.town.conn, worker, by=self.town.admin_of("workers", worker)
            )

    def newcomer(self, **about: Any) -> int:
        """A worker who is listed now."""
        worker = self.worker(**about)
        self.enlist(worker)
        return worker

    def told(self, kind: str) -> list[tuple[Any, ...]]:
        """(recipient, channel, message) of a kind, in order."""
        return self.town.rows(
            "select recipient_id, channel, message from staffing.notification_log"
            " where kind = %s order by 1, 2, created_at",
            kind,
        )

    def deliveries(self) -> list[tuple[Any, ...]]:
        """(search, kind, status, reason), in order."""
        query = (
            "select saved_search_id, kind, status, reason from staffing.alert_deliveries order by saved_search_id, at"
        )
        return self.town.rows(query)

    def breaks(self, statement: str) -> None:
        """The query for workers does this first."""
        self.town.conn.execute(HEAD.format(statement).encode())

    def ran(self, task: str) -> list[datetime]:
        """When attempts of a task began."""
        return [
            row[0]
            for row in self.town.rows(
                "select a.started_at from mainspring.attempts a join mainspring.jobs j on j.id = a.job_id"
                " where j.task = %s order by a.started_at", task,
            )
        ]  # fmt: skip


def measured(town: Town, name: str) -> dict[tuple[Any, ...], float]:
    """What a measure answers now, by its labels."""
    return {tuple(row[:-1]): float(row[-1]) for row in town.measured(name)}
