"""The marketplace over HTTP: its events, what people see, and the page behind a link in a message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import psycopg
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

import mainspring as ms
from mainspring.declare.route import DeclaredRoute, Principal, public
from mainspring_apps.frame.body import number
from mainspring_apps.frame.refusal import NotAllowed
from mainspring_apps.frame.web import Endpoint, Look, Site, Visit
from mainspring_apps.staffing import bookings, insurance, people, shifts, show, wishes, withdrawal
from mainspring_apps.staffing.conflicts import disputes, incidents
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.payments import accounts, arrears, movements, reversals, weekly
from mainspring_apps.staffing.rules.wishes import Wish
from mainspring_apps.staffing.searches import listings, search
from mainspring_apps.staffing.store import Conn

TOKEN: Final = "STAFFING_TOKEN"  # noqa: S105 (the name of a variable)
PEOPLE: Final = "staffing"  # the organisation of those who come in
ABOUT: Final = """A staffing marketplace lives here; its people are jobs. Look at one of its bookings:

  in words        {mainspring} staffing booking show 1{elsewhere}
  as JSON         {curl.platform} {url}/staffing/bookings/1
  what is there   {curl.platform} {url}/staffing
  as another      curl.borrower, curl.supervisor, curl.worker and curl.lender lie beside it
"""
_CALLED: Final[Mapping[str, str]] = {
    "digest": "digests of your saved searches",
    "instant_alert": "alerts about new workers",
}
_PAGE: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Messages</title>
<p>{}</p></html>
"""
_ASKS: Final = """Unsubscribe from {}?</p><form method="post"><button>Unsubscribe</button></form><p>
You will still receive messages about your bookings."""
_DONE: Final = "You have been unsubscribed from these messages."

ENDPOINTS: Final[Sequence[Endpoint]] = (
    Endpoint("/operators", bookings.add_operator),
    Endpoint("/companies", bookings.add_company),
    Endpoint("/companies/{company_id:int}/card", bookings.put_card),
    Endpoint("/companies/{company_id:int}/account", accounts.connect_account),
    Endpoint("/users", bookings.add_user),
    Endpoint("/users/{user_id:int}/principal", bookings.let_in),
    Endpoint("/users/{user_id:int}/language", bookings.choose_language),
    Endpoint("/projects", bookings.add_project),
    Endpoint("/workers", bookings.add_worker),
    Endpoint("/workers/{worker_id:int}/list", listings.list_worker),
    Endpoint("/workers/{worker_id:int}/unlist", listings.unlist_worker),
    Endpoint("/searches", search.save_search),
    Endpoint("/users/{user_id:int}/opt-out", wishes.opt_out),
    Endpoint("/users/{user_id:int}/opt-in", wishes.opt_in),
    Endpoint("/policies", bookings.add_policy),
    Endpoint("/policies/{policy_id:int}/renew", insurance.renew_insurance),
    Endpoint("/policies/{policy_id:int}/deactivate", insurance.deactivate_insurance),
    Endpoint("/bookings", bookings.confirm_booking),
    Endpoint("/bookings/{booking_id:int}/pay", weekly.pay_by_hand),
    Endpoint("/bookings/{booking_id:int}/pay-arrears", arrears.pay_arrears),
    Endpoint("/bookings/{booking_id:int}/divide", reversals.divide_set_aside),
    Endpoint("/bookings/{booking_id:int}/end", shifts.change_scheduled_end),
    Endpoint("/bookings/{booking_id:int}/cancel", withdrawal.cancel_booking),
    Endpoint("/bookings/{booking_id:int}/incidents", incidents.file_incident),
    Endpoint("/incidents/{incident_id:int}/resolve", incidents.resolve_incident),
    Endpoint("/shifts/{time_log_id:int}/end", shifts.change_shift_end),
    Endpoint("/shifts/{time_log_id:int}/clock-in", shifts.clock_in),
    Endpoint("/shifts/{time_log_id:int}/draft", shifts.save_draft),
    Endpoint("/shifts/{time_log_id:int}/submit", shifts.submit_timesheet),
    Endpoint("/shifts/{time_log_id:int}/force-clock-out", shifts.force_clock_out),
    Endpoint("/shifts/{time_log_id:int}/edit", shifts.edit_timesheet),
    Endpoint("/shifts/{time_log_id:int}/verify", shifts.verify_timesheet),
    Endpoint("/shifts/{time_log_id:int}/confirm-extra-time", shifts.confirm_extra_time),
    Endpoint("/shifts/{time_log_id:int}/was-worked", shifts.was_worked),
    Endpoint("/shifts/{time_log_id:int}/cancel", withdrawal.cancel_shift),
    Endpoint("/shifts/{time_log_id:int}/dispute", disputes.file_dispute),
    Endpoint("/transfers/{transfer_id:int}/reverse", reversals.reverse_transfer),
    Endpoint("/refunds/{refund_id:int}/repeat", movements.repeat_refund),
    Endpoint("/disputes/{dispute_id:int}/propose", disputes.propose_settlement),
    Endpoint("/disputes/{dispute_id:int}/resolve", disputes.resolve_dispute),
)


def _clock(desk: Desk, visit: Visit) -> Any:
    return show.clocks(desk, visit.conn)


def _bookings(_: Desk, visit: Visit) -> Any:
    after = number("after", visit.request.query_params.get("after", "0"))
    return show.bookings(visit.conn, after=after, by=visit.by)


def _booking(desk: Desk, visit: Visit) -> Any:
    return show.story(desk, visit.conn, visit.request.path_params["booking_id"], by=visit.by)


def _known_as(conn: Conn, who: Principal) -> int:
    principal = f"{'token' if who.actor_type == 'api_key' else 'user'}:{who.name}"  # they may have the same name
    user = people.known_as(conn, principal)
    if user is None:
        raise NotAllowed(f"by: {principal} is no user of this marketplace: see `let_in`", field="by")
    return user


LOOKS: Final[Sequence[Look[Desk]]] = (
    Look("/clock", "What the clocks of the projects show now, and UTC.", _clock),
    Look("/bookings", "Your bookings by number; ?after=100 for those that follow.", _bookings),
    Look(
        "/bookings/{booking_id:int}",
        "What has happened to a booking, what comes next, its shifts and its money.",
        _booking,
    ),
)
SITE: Final = Site[Desk](
    base="/staffing", endpoints=ENDPOINTS, looks=LOOKS, known_as=_known_as, org=PEOPLE, token=TOKEN
)  # fmt: skip


def routes(desk: Desk, links: wishes.OptOutLinks | None) -> list[DeclaredRoute]:
    """All addresses of the marketplace; None: there are no links in messages."""
    return [*SITE.routes(desk), *([] if links is None else [_opting_out(desk, links)])]


def _opting_out(desk: Desk, links: wishes.OptOutLinks) -> DeclaredRoute:
    """The page behind a link in a message. It only asks: scanners of mail follow links; what it posts is done."""

    def done(user_id: int, kind: Wish) -> str:
        with desk.connection() as conn, ms.calling(ms.Caller()):
            wishes.opt_out(desk, conn, user_id, kind=kind, by=user_id)
        return _DONE

    async def page(request: Request) -> Response:
        user_id, kind, signature = (request.path_params[name] for name in ("user_id", "kind", "signature"))
        asked: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
        written = f"{wishes.PATH}/{user_id}/{kind}/{signature}".encode()  # and not 09, or a slash as %2F
        if not asked.endswith(written) or not links.knows(user_id, kind, signature):
            return _page("There is nothing here.", 404)
        if request.method != "POST":
            return _page(_ASKS.format(_CALLED[kind]), 200)
        try:
            return _page(await run_in_threadpool(done, user_id, kind), 200)
        except ms.ValidationError:
            return _page("There is nothing here.", 404)
        except psycopg.OperationalError:
            return _page("Please try again later.", 503)

    route = Route(wishes.PATH + "/{user_id:int}/{kind}/{signature}", page, methods=["GET", "POST"])
    return public(route, accepts=())  # what it posts has no body; what mail programs post says so in one


def _page(text: str, status: int) -> Response:
    """A page of a few words. It may post to where it is from: without a referrer a browser would not say from where."""
    return HTMLResponse(_PAGE.format(text), status, {"referrer-policy": "same-origin"})
