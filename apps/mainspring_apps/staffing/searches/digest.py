"""The daily digest: one mail every morning where the user lives, with whom each search has found since the last one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

import mainspring as ms
from mainspring_apps.frame.setting import rest_of_day
from mainspring_apps.staffing import store
from mainspring_apps.staffing.desk import Desk, log
from mainspring_apps.staffing.registry import DIGEST_QUEUE, few_tries, tasks
from mainspring_apps.staffing.rules import digests
from mainspring_apps.staffing.rules.matching import asked
from mainspring_apps.staffing.searches.batches import Batch
from mainspring_apps.staffing.searches.search import find
from mainspring_apps.staffing.store import Conn

SCHEDULE = "saved-search-digest"
#: A day may be so much longer.
CLOCKS_CHANGE = timedelta(hours=1)


class Begun(msgspec.Struct, frozen=True):
    """A search of a slot; `begun` is false where it was told, or is being put together, already."""

    id: int
    user_id: int
    begun: bool


class DigestSearch(msgspec.Struct, frozen=True):
    """A search that is to be asked; `wanted` is false where its user has switched it off since."""

    id: int
    user_id: int
    criteria: Mapping[str, Any]
    wanted: bool


class Told(msgspec.Struct, frozen=True):
    """A part of a mail: whom a search has found."""

    id: int
    name: str
    zero_result_streak: int
    workers: list[dict[str, Any]]

    def shown(self, url: str) -> dict[str, Any]:
        """As the text of the mail needs it."""
        return {"name": self.name, "workers": [w | {"link": f"{url}/workers/{w['id']}"} for w in self.workers]}


def zones(desk: Desk, conn: Conn) -> list[str]:
    """Where people live who want a digest; those whose zone is none are read as UTC."""
    return sorted({digests.zone_of(name) for name in store.column(conn, "digest_zones")})


@tasks.task(queue=DIGEST_QUEUE)
def begin_digest(desk: Desk, ctx: ms.SyncContext, *, instant: datetime, zone: str) -> None:
    """Begin the digest of a zone: its searches, user by user, in batches."""
    with ctx.complete() as conn:
        if not digests.in_time(instant, desk.now(conn), zone):
            log.warning("the digest of %s in %s comes a day late and is left out", instant, zone)
            return
        names = [name for name in store.column(conn, "digest_zones") if digests.zone_of(name) == zone]
        _warn(conn, [name for name in names if name != zone])
        for ids in ms.chunks(_begin(desk, conn, instant, names), desk.settings.search_batch):
            desk.enqueue(conn, put_together.job(slot=instant, zone=zone, search_ids=ids, size=len(ids)))


@tasks.task(queue=DIGEST_QUEUE, retry=few_tries, halve="search_ids")
def put_together(
    desk: Desk, ctx: ms.SyncContext, *, slot: datetime, zone: str, search_ids: list[int], size: int
) -> None:
    """Ask these searches; who has all parts together gets the mail."""
    batch = Batch(desk, "digest", slot.isoformat(), search_ids, size)
    batch.run(
        ctx,
        lambda conn: _ask(desk, conn, batch, slot, zone),
        skipped=lambda conn: _send(desk, conn, batch, slot, _drop(conn, slot, search_ids)),
    )


tasks.schedule(
    SCHEDULE,
    lambda desk: ms.daily(desk.settings.digest_at),
    begin_digest,
    zones=zones,
    within=lambda desk: rest_of_day(desk.settings.digest_at) + CLOCKS_CHANGE,
    catch_up="latest",
)


def _warn(conn: Conn, names: Sequence[str]) -> None:
    for user in store.column(conn, "users_in_zones", zones=list(names)) if names else ():
        log.error("user %s: has no time zone that exists, so UTC is used", user, extra={"user_id": user})


def _begin(desk: Desk, conn: Conn, slot: datetime, names: Sequence[str]) -> Iterator[int]:
    user, search = 0, 0
    about = {"slot": slot, "slot_name": slot.isoformat(), "zones": list(names), "limit": desk.settings.scan_rows}
    while page := store.many(conn, Begun, "begin_digest", after_user=user, after_search=search, **about):
        yield from (part.id for part in page if part.begun)
        user, search = page[-1].user_id, page[-1].id


def _drop(conn: Conn, slot: datetime, search_ids: Sequence[int]) -> list[int]:
    """These have no part in the mail; answers whose they were."""
    return store.column(conn, "drop_parts", slot=slot, search_ids=list(search_ids))


def _ask(desk: Desk, conn: Conn, batch: Batch, slot: datetime, zone: str) -> None:
    parts = store.many(conn, DigestSearch, "parts_to_ask", slot=slot, search_ids=list(batch.searches))
    users = _drop(conn, slot, [part.id for part in parts if not part.wanted])
    parts = [part for part in parts if part.wanted]
    wanted = [asked(part.criteria, zone) for part in parts]
    found = find(conn, *wanted, listed=digests.window(slot, zone, desk.settings.digest_at))
    for part, want, workers in zip(parts, wanted, found, strict=True):
        about = {"workers": [worker.id for worker in workers], "starts": want.starts, "ends": want.ends}
        store.do(conn, "save_part", search_id=part.id, slot=slot, **about)
    _send(desk, conn, batch, slot, [*users, *(part.user_id for part in parts)])


def _send(desk: Desk, conn: Conn, batch: Batch, slot: datetime, users: Sequence[int]) -> None:
    """Ask for the mail of each user for whom nothing is missing any more; an empty one must be wanted (G-28)."""
    ids = sorted(set(users))
    store.column(conn, "lock_users", ids=ids)
    for user in store.column(conn, "users_complete", slot=slot, user_ids=ids):
        parts = store.many(conn, Told, "parts_of_user", slot=slot, user_id=user)
        comes = any(part.workers for part in parts) or bool(store.value(conn, "wants_empty_digest", user_id=user))
        if comes:
            shown = [part.shown(desk.settings.app_url) for part in parts]
            about = {"parts": shown, "slot": batch.slot, "user_id": user}
            desk.tell(conn, "digest", [user], about, occurrence=slot)
        for part in parts:
            batch.deliver(conn, part.id, status="Sent" if comes else "Empty")
            _count_empty(desk, conn, part, user, slot)
        _drop(conn, slot, [part.id for part in parts])


def _count_empty(desk: Desk, conn: Conn, part: Told, user: int, slot: datetime) -> None:
    """Who finds nobody for too long is switched off, where the marketplace wants that (STAFF-7.14)."""
    streak = digests.streak(part.zero_result_streak, len(part.workers))
    if streak != part.zero_result_streak:
        store.do(conn, "count_empty", search_id=part.id, streak=streak)
    if not desk.settings.deactivate_empty_searches or streak < desk.settings.zero_result_limit:
        return
    if store.value(conn, "deactivate_search", search_id=part.id) is not None:
        about = {"Search": part.name, "Days": streak, "saved_search_id": part.id}
        desk.tell(conn, "search_deactivated", [user], about, occurrence=slot)
        desk.record(conn, "search_deactivated", "search", part.id, reason="Zero_Results")
