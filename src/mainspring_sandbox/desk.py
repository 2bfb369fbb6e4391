"""What people and tests ask of the sandbox itself: what happened in it, and what shall go wrong."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from mainspring_sandbox.faults import Fault
from mainspring_sandbox.ledger import LedgerEntry
from mainspring_sandbox.providers import PROVIDERS
from mainspring_sandbox.resend import desk as resend
from mainspring_sandbox.stripe import desk as stripe
from mainspring_sandbox.vendus import desk as vendus
from mainspring_sandbox.world import World

#: What the outbox shows: what left the house. The other kinds are what providers hold besides.
OUTBOX = ("mail", "sms", "push", "charge", "decline", "transfer", "reversal", "refund", "webhook", "invoice")
#: What may have faults.
FAULTY = (*PROVIDERS, "smtp", "smtp.connect", "smtp.data")
MOST_LEDGER_ENTRIES = 1000


def shown(entry: LedgerEntry) -> dict[str, object]:
    """An entry as JSON, without what providers keep to themselves."""
    body = {name: value for name, value in entry.body.items() if not name.startswith("_")}
    return {"serial": entry.serial, "kind": entry.kind, "id": entry.id, "at": entry.at.isoformat(), **body}


def routes(world: World) -> list[BaseRoute]:
    """The desk's pages."""

    async def outbox(request: Request) -> Response:
        if request.method == "DELETE":
            world.ledger.clear()
        kinds = request.query_params.getlist("kind") or OUTBOX
        limit, before = request.query_params.get("limit", "50"), request.query_params.get("before")
        for name, value in (("limit", limit), ("before", before)):
            if value is not None and not (value.isascii() and value.isdecimal() and len(value) < 16):
                return JSONResponse({"error": f"{name} is a number"}, 422)
        found = world.ledger.find(
            *kinds, limit=min(int(limit), MOST_LEDGER_ENTRIES), before=int(before) if before else None
        )
        return JSONResponse([shown(entry) for entry in found])

    async def one(request: Request) -> Response:
        found = world.ledger.get(request.path_params["kind"], request.path_params["id"])
        return JSONResponse(shown(found)) if found else JSONResponse({"error": "there is no such entry"}, 404)

    async def anywhere(request: Request) -> Response:
        places = (world.ledger.get(kind, request.path_params["id"]) for kind in OUTBOX)
        found = next(filter(None, places), None)
        return JSONResponse(shown(found)) if found else JSONResponse({"error": "there is no such entry"}, 404)

    async def faults(request: Request) -> Response:
        if request.method == "POST":
            try:
                fault = msgspec.json.decode(await request.body(), type=Fault)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                what, _, field = str(error).partition(" - at `$.")
                return JSONResponse({"error": f"{field.rstrip('`')}: {what}" if field else what}, 422)
            if fault.provider not in FAULTY:
                return JSONResponse({"error": f"provider: is not one of {', '.join(FAULTY)}"}, 422)
            world.faults.set(fault)
        elif request.method == "DELETE":
            world.faults.clear(request.query_params.get("provider"))
        return Response(msgspec.json.encode(world.faults.on), media_type="application/json")

    return [
        Route("/outbox", outbox, methods=["GET", "DELETE"]),
        Route("/outbox/{id}", anywhere),
        Route("/outbox/{kind}/{id}", one),
        Route("/faults", faults, methods=["GET", "POST", "DELETE"]),
        Mount("/resend", routes=resend.routes(world)),
        Mount("/stripe", routes=stripe.routes(world)),
        Mount("/vendus", routes=vendus.routes(world)),
    ]
