"""Stands in for a push gateway that speaks the protocol of `mainspring.contrib.notify.push`.

Every token is taken but `wrong`. A device whose token begins with `gone` has gone.
"""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from mainspring_sandbox.replay import replayed
from mainspring_sandbox.world import World


class _PushMessage(msgspec.Struct):
    to: str
    title: str
    text: str


def routes(world: World) -> list[BaseRoute]:
    """The pages of the provider."""

    async def create(request: Request) -> Response:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or token in ("", "wrong"):
            return JSONResponse({"error": "unauthorized"}, 401)
        raw = await request.body()
        try:
            note = msgspec.json.decode(raw, type=_PushMessage)
        except msgspec.MsgspecError as error:
            return JSONResponse({"error": "invalid", "message": str(error)}, 422)
        if note.to.startswith("gone"):
            return JSONResponse({"error": "unregistered"}, 410)
        key = request.headers.get("idempotency-key")

        def taken() -> tuple[int, dict[str, object]]:
            id = world.new_id("push")
            world.ledger.add("push", id, {"provider": "push", **msgspec.structs.asdict(note), "key": key})
            return 201, {"id": id}

        answer = replayed(world, "push", key, msgspec.structs.asdict(note), taken)
        return JSONResponse({"error": "key_reused"}, 409) if answer == "mismatch" else answer

    return [Route("/messages", create, methods=["POST"])]
