"""What people and tests ask of the sandbox itself: what happened in it, and what shall go wrong."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from mainspring.sandbox.faults import Fault
from mainspring.sandbox.ledger import Entry
from mainspring.sandbox.world import World

#: What the outbox shows: what left the house. The other kinds are what providers hold besides.
OUTBOX = ("mail", "sms", "push", "charge", "transfer", "refund", "webhook", "invoice")


def shown(entry: Entry) -> dict[str, object]:
    """An entry as JSON."""
    return {"serial": entry.serial, "kind": entry.kind, "id": entry.id, "at": entry.at.isoformat(), **entry.body}


def routes(world: World) -> list[BaseRoute]:
    """The desk's pages."""

    async def outbox(request: Request) -> Response:
        kinds = request.query_params.getlist("kind") or OUTBOX
        limit, before = int(request.query_params.get("limit", 50)), request.query_params.get("before")
        found = world.ledger.find(*kinds, limit=limit, before=int(before) if before else None)
        return JSONResponse([shown(entry) for entry in found])

    async def one(request: Request) -> Response:
        found = world.ledger.get(request.path_params["kind"], request.path_params["id"])
        return JSONResponse(shown(found)) if found else JSONResponse({"error": "there is no such entry"}, 404)

    async def faults(request: Request) -> Response:
        if request.method == "POST":
            try:
                world.faults.set(msgspec.json.decode(await request.body(), type=Fault))
            except msgspec.MsgspecError as error:
                return JSONResponse({"error": str(error)}, 422)
        elif request.method == "DELETE":
            world.faults.clear(request.query_params.get("provider"))
        return Response(msgspec.json.encode(world.faults.on), media_type="application/json")

    return [
        Route("/outbox", outbox),
        Route("/outbox/{kind}/{id}", one),
        Route("/faults", faults, methods=["GET", "POST", "DELETE"]),
    ]
