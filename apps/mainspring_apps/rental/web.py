"""A rental company over HTTP: what its people do and see, the webhook, the run endpoint and the links in mails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from mainspring.web import Run
from mainspring_apps.frame.body import number
from mainspring_apps.frame.web import Endpoint, Look, Site, Visit
from mainspring_apps.rental import bookings, papers, refunds, repair, settling, store, webhook
from mainspring_apps.rental.desk import Desk
from mainspring_apps.rental.people import known_as
from mainspring_apps.rental.registry import BOOKING_JOBS

PEOPLE: Final = "rental"  # the organisation of those who come in, and of all jobs (RENT-1.12)
RUN_PATH: Final = "/api/cron/process-booking-jobs"
JOBS_PAGE: Final = 100

ENDPOINTS: Final = (
    Endpoint("/machines", bookings.add_machine, role="operator"),
    Endpoint("/machines/{machine_id:int}/book", bookings.book, role="operator"),
    Endpoint("/bookings/{booking_id:int}/address", bookings.correct_address, role="operator"),
    Endpoint("/bookings/{booking_id:int}/resend", repair.resend_mail, role="operator"),
    Endpoint("/bookings/{booking_id:int}/retry", repair.retry_job, role="operator"),
    Endpoint("/bookings/{booking_id:int}/refund", refunds.refund, role="operator"),
    Endpoint("/bookings/{booking_id:int}/cancel", refunds.cancel_booking, role="operator"),
    Endpoint("/send-skipped", repair.send_skipped, role="operator"),
    Endpoint("/issue-skipped", repair.issue_skipped, role="operator"),
    Endpoint("/to-settle/{to_settle_id:int}/settle", settling.settle, role="admin"),
    Endpoint("/to-settle/{to_settle_id:int}/accept", settling.accept_payment, role="admin"),
)


def _booking(desk: Desk, visit: Visit) -> Any:
    return bookings.shown(desk, visit.conn, visit.request.path_params["booking_id"])


def _rows(statement: str) -> Callable[[Desk, Visit], Any]:
    def look(_: Desk, visit: Visit) -> Any:
        limit = number("limit", visit.request.query_params.get("limit", str(JOBS_PAGE)))
        return store.many(visit.conn, dict[str, Any], statement, limit=min(max(limit, 1), JOBS_PAGE))

    return look


LOOKS: Final = (
    Look[Desk]("/bookings/{booking_id:int}", "A booking with its stamps and the history of its jobs.", _booking),
    Look[Desk]("/jobs/pending", "Jobs of bookings that wait, the oldest first.", _rows("pending_jobs")),
    Look[Desk]("/to-settle", "Money that confirms nothing, the oldest first.", _rows("list_to_settle")),
    Look[Desk]("/jobs/failed", "Jobs of bookings that failed, the newest first.", _rows("failed_jobs")),
)
SITE: Final = Site[Desk](
    base="/rental", endpoints=ENDPOINTS, looks=LOOKS, known_as=known_as, org=PEOPLE, role="viewer"
)  # fmt: skip


def routes(desk: Desk, kick: Callable[[], None]) -> list[Any]:
    """All addresses of a rental company."""
    run = Run(RUN_PATH, queues=[BOOKING_JOBS], limit=10)
    return [*SITE.routes(desk), webhook.route(desk, kick), *papers.routes(desk), run]
