"""Stripe's webhook: what it says is done before it is answered, and calls nobody (RENT-2.02 to 2.08)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import psycopg
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import mainspring as ms
from mainspring.declare.block import SignatureRefused
from mainspring.declare.route import DeclaredRoute, public
from mainspring_apps.frame.web import answered
from mainspring_apps.rental import checkout, holds, refunds, rounds
from mainspring_apps.rental.desk import Desk

WEBHOOK_PATH: Final = "/api/stripe/webhook"
#: What a task looks at anew.
HINTS: Final = frozenset({"checkout.session.expired", "checkout.session.async_payment_failed"})
REFUNDED: Final = frozenset({"refund.created", "refund.updated", "refund.failed"})


def route(desk: Desk, kick: Callable[[], None]) -> DeclaredRoute:
    """Where Stripe delivers. After the commit a kick is sent, and nobody waits for it."""

    def take(headers: dict[str, str], body: bytes) -> None:
        with desk.connection() as conn, ms.calling(ms.Caller()):
            event = desk.stripe.verify(headers, body, desk.now(conn))
            confirmed = checkout.take(desk, conn, event)
            if event.type in HINTS and event.checkout is not None:
                failed = event.type == "checkout.session.async_payment_failed"
                desk.enqueue(conn, holds.look_at_session.job(session_id=event.checkout.id, failed=failed))
            if event.type in REFUNDED and (refund := event.object.get("id")):
                desk.enqueue(conn, refunds.look_at_refund.job(refund=str(refund)))
        if confirmed is not None:
            rounds.created(confirmed.booking_id, *confirmed.jobs)
            kick()

    async def answer(request: Request) -> Response:
        headers = {name: ", ".join(request.headers.getlist(name)) for name in request.headers}
        try:
            await run_in_threadpool(take, headers, await request.body())
        except SignatureRefused:
            return answered({"received": False}, 400)
        except (psycopg.Error, ms.MainspringError):  # Stripe tries again
            return answered({"received": False}, 500)
        return answered({"received": True}, 200)

    return public(Route(WEBHOOK_PATH, answer, methods=["POST"]), accepts=())
