"""The PDF behind a signed link: for who holds the link, of one booking, for so long (RENT-7.05 to 7.08, 20.27)."""

from __future__ import annotations

from typing import Final

import msgspec
import psycopg
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

import mainspring as ms
from mainspring.declare.route import DeclaredRoute, public
from mainspring_apps.frame.refusal import Refused
from mainspring_apps.rental import new_links, store, texts
from mainspring_apps.rental.desk import Desk, log
from mainspring_apps.rental.mails import CREDIT_PATH, PDF_PATH
from mainspring_apps.rental.people import CUSTOMER
from mainspring_apps.rental.rules import links
from mainspring_apps.rental.store import Conn

#: Neither kept by anybody on the way, nor told to whoever is linked from it.
PRIVATE: Final = {"cache-control": "no-store", "referrer-policy": "no-referrer"}
_STATUS: Final = {"forged": 401, "expired": 401, "another": 403}
_OFFER: Final = '<form method="post"><button>{}</button></form>'
_PAGE: Final = "<!doctype html><meta charset=utf-8><title>Invoice</title><p>{0}</p>{1}"


class Issued(msgspec.Struct, frozen=True, kw_only=True):
    """A document, as far as its paper goes."""

    booking_id: int
    provider_id: int | None


def routes(desk: Desk) -> list[DeclaredRoute]:
    """Where links in mails lead: to the invoice of a booking, and to a credit note."""
    return [_route(desk, PDF_PATH, links.PURPOSE), _route(desk, CREDIT_PATH, links.CREDIT)]


def _route(desk: Desk, path: str, purpose: str) -> DeclaredRoute:

    def answer(request: Request) -> Response:
        id_, token = request.path_params["id"], request.query_params.get("t", "")
        with desk.connection() as conn, ms.calling(ms.Caller()):
            said = {"booking_id": id_} if purpose == links.PURPOSE else {"credit_id": id_}
            name = "invoice" if purpose == links.PURPOSE else "credit_by_id"
            document = store.one(conn, Issued, name, **said)
            facts = None if document is None else desk.bookings.facts(conn, document.booking_id)
            to, language = (facts.customer_email or "", facts.locale) if facts else ("", desk.settings.locale)
            why = links.wrong(desk.links.all, token, id_, desk.now(conn), purpose=purpose, to=to)
            if why == "expired" and purpose == links.PURPOSE:
                return _again(desk, conn, id_, language, asked=request.method == "POST")
            if why is not None:
                return _page(texts.LINK_ENDED, _STATUS[why], language)
            pdf = None if document is None else _paper(desk, conn, document)
        if pdf is None:
            return _page(texts.NOT_NOW, 503, language)
        return Response(pdf, 200, {**PRIVATE, "content-disposition": "inline"}, "application/pdf")

    async def page(request: Request) -> Response:
        try:
            return await run_in_threadpool(answer, request)
        except psycopg.OperationalError:
            return _page(texts.NOT_NOW, 503, desk.settings.locale)

    return public(Route(f"{path}/{{id:int}}/pdf", page, methods=["GET", "POST"]), accepts=())


def _again(desk: Desk, conn: Conn, booking_id: int, language: str, *, asked: bool) -> Response:
    """The page of a link that has expired: it offers a new mail, and only its button sends one (RENT-7.09)."""
    if not asked:
        return _page(texts.LINK_EXPIRED, 401, language, _OFFER.format(texts.said(texts.SEND_NEW, language)))
    try:
        new_links.ask_for_link(desk, conn, booking_id, by=CUSTOMER)
    except Refused:
        return _page(texts.ASK_LATER, 429, language)
    return _page(texts.ON_ITS_WAY, 200, language)


def _paper(desk: Desk, conn: Conn, document: Issued) -> bytes | None:
    """Kept, or fetched once and kept; None while Vendus has not given it."""
    if document.provider_id is None:
        return None
    kept: bytes | None = store.value(conn, "paper", provider_id=document.provider_id)
    if kept is not None:
        return kept
    try:
        pdf = desk.vendus.sync.pdf(document.provider_id)
    except (ms.Failure, ms.Permanent) as error:
        log.warning("the PDF of document %s cannot be fetched: %s", document.provider_id, error)
        return None
    if pdf is not None:
        store.do(conn, "keep_paper", provider_id=document.provider_id, pdf=pdf)
    return pdf


def _page(text: str, status: int, language: str, more: str = "") -> Response:
    return HTMLResponse(_PAGE.format(texts.said(text, language), more), status, PRIVATE)
