"""Instant alerts: a worker was just listed, and whoever saved a search for such a worker is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, time
from typing import Any

import msgspec

import mainspring as ms
from mainspring_apps.staffing import store, timers
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.registry import INSTANT_QUEUE, few_tries, tasks
from mainspring_apps.staffing.rules import quiet
from mainspring_apps.staffing.rules.digests import zone_of
from mainspring_apps.staffing.rules.matching import asked, fits
from mainspring_apps.staffing.searches.batches import Batch
from mainspring_apps.staffing.searches.search import find
from mainspring_apps.staffing.store import Conn


class Profile(msgspec.Struct, frozen=True):
    """What of a worker may be remembered for a while; who is free may not (STAFF-5.11)."""

    id: int
    state: str
    listed_at: datetime | None
    trade: str
    zip_code: str


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """A saved search that wants instant alerts."""

    id: int
    user_id: int
    name: str
    criteria: Mapping[str, Any]
    timezone: str


class Alert(Search, frozen=True, kw_only=True):
    """One that may be told, with the peace of its user."""

    quiet_hours_start: time
    quiet_hours_end: time
    alert_channels: list[str]


@tasks.task(queue=INSTANT_QUEUE, dedupe=ms.dedupe.keep("listed:{worker_id}:{listed_at}"))
def announce(desk: Desk, ctx: ms.SyncContext, *, worker_id: int, listed_at: datetime) -> None:
    """Find the saved searches that a listed worker's profile meets, and have them matched, batch by batch."""
    with ctx.complete() as conn:
        worker = store.one(conn, Profile, "worker_profile", worker_id=worker_id)
        if worker is None or worker.state != "Listed" or worker.listed_at != listed_at:
            return
        wanted = (search.id for search in _searches(desk, conn) if _meets(search, worker))
        for ids in ms.chunks(wanted, desk.settings.search_batch):
            desk.enqueue(conn, match.job(worker_id=worker_id, listed_at=listed_at, search_ids=ids, size=len(ids)))


@tasks.task(queue=INSTANT_QUEUE, retry=few_tries, halve="search_ids")
def match(
    desk: Desk, ctx: ms.SyncContext, *, worker_id: int, listed_at: datetime, search_ids: list[int], size: int
) -> None:
    """Ask again whether a worker is what these searches want, and free, and tell their users, unless they sleep."""
    batch = Batch(desk, "instant", f"{worker_id}:{listed_at.isoformat()}", search_ids, size)
    batch.run(ctx, lambda conn: _tell(desk, conn, batch, worker_id, listed_at))


def _searches(desk: Desk, conn: Conn) -> Iterator[Search]:
    after = 0
    while page := store.many(conn, Search, "instant_searches", after=after, limit=desk.settings.scan_rows):
        yield from page
        after = page[-1].id


def _meets(search: Search, worker: Profile) -> bool:
    return fits(asked(search.criteria, zone_of(search.timezone)), worker.trade, worker.zip_code)


def _tell(desk: Desk, conn: Conn, batch: Batch, worker_id: int, listed_at: datetime) -> None:
    now = desk.now(conn)
    awake: list[Alert] = []
    for alert in store.many(conn, Alert, "alerts_to_match", search_ids=list(batch.searches), slot=batch.slot):
        until = quiet.waits_until(now, alert.timezone, alert.quiet_hours_start, alert.quiet_hours_end)
        if until is None:
            awake.append(alert)
        else:  # matched again then: the worker may be gone (STAFF-5.06)
            later = match.job(worker_id=worker_id, listed_at=listed_at, search_ids=[alert.id], size=1).at(until)
            timers.start(desk, conn, "instant", f"{alert.id}:{batch.slot}", later)
    found = find(conn, *(asked(one.criteria, zone_of(one.timezone)) for one in awake), worker_id=worker_id)
    hits = [
        alert for alert, workers in zip(awake, found, strict=True) if any(w.listed_at == listed_at for w in workers)
    ]
    store.column(conn, "lock_users", ids=[alert.user_id for alert in hits])
    for alert in hits:
        _alert(desk, conn, batch, alert, worker_id, listed_at)


def _alert(desk: Desk, conn: Conn, batch: Batch, alert: Alert, worker_id: int, listed_at: datetime) -> None:
    """Tell a user, or leave it to the digest when there were too many within the hour."""
    sent = store.value(conn, "alerts_of_user", user_id=alert.user_id, within=quiet.HOUR)
    if sent >= desk.settings.instant_alerts_per_user_per_hour:  # the rest is in the digest (STAFF-5.10)
        batch.deliver(conn, alert.id, status="Skipped", reason="limit")
        return
    if not alert.alert_channels or not batch.deliver(conn, alert.id):
        return
    link = f"{desk.settings.app_url}/workers/{worker_id}"
    about = {"Search": alert.name, "Link": link, "saved_search_id": alert.id, "worker_id": worker_id}
    about["listed_at"] = listed_at.isoformat()  # listed anew within a quarter of an hour is another message
    desk.tell(
        conn, "instant_alert", [alert.user_id], about, occurrence=listed_at, channels=alert.alert_channels
    )  # fmt: skip
