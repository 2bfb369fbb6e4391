"""Listings: a worker can be found, and whoever waited for such a worker is told at once."""

from __future__ import annotations

from mainspring_apps.staffing import store
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.events import event
from mainspring_apps.staffing.people import By
from mainspring_apps.staffing.searches.instant import announce
from mainspring_apps.staffing.store import Conn


@event
def list_worker(desk: Desk, conn: Conn, worker_id: int, *, by: By) -> bool:
    """List a worker, so that searches find them; users with matching saved searches are told. False: listed already."""
    listed_at = store.value(conn, "list_worker", worker_id=worker_id)
    if listed_at is None:
        store.needed(conn, dict, "worker_profile", worker_id=worker_id)
        return False
    desk.enqueue(conn, announce.job(worker_id=worker_id, listed_at=listed_at))
    desk.record(conn, "worker_listed", "worker", worker_id)
    return True


@event
def unlist_worker(desk: Desk, conn: Conn, worker_id: int, *, by: By) -> bool:
    """Unlist a worker: searches and alerts that still wait do not find them. False: was not listed."""
    if store.value(conn, "unlist_worker", worker_id=worker_id) is None:
        store.needed(conn, dict, "worker_profile", worker_id=worker_id)
        return False
    desk.record(conn, "worker_unlisted", "worker", worker_id)
    return True
