"""What people and tests make happen at Vendus, over HTTP, below `/sandbox/vendus`."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mainspring_sandbox.acts import answered, asked_of, guarded
from mainspring_sandbox.vendus.state import RegisterStatus, VendusSettings, VendusStandIn
from mainspring_sandbox.world import World


class Turn(msgspec.Struct, forbid_unknown_fields=True):
    """Somebody opens the register, or closes it."""

    status: RegisterStatus


def routes(world: World) -> list[BaseRoute]:
    """The pages."""
    vendus = world.part(VendusStandIn)

    async def settings(request: Request) -> Response:
        if request.method == "POST":
            now = msgspec.to_builtins(vendus.settings)
            vendus.settings = msgspec.convert(now | await asked_of(request, dict[str, Any]), VendusSettings)
        return answered(vendus.settings)

    async def register(request: Request) -> Response:
        asked = await asked_of(request, Turn) if request.method == "POST" else None
        return answered(vendus.register(None if asked is None else asked.status))

    return [
        Route("/settings", guarded(settings), methods=["GET", "POST"]),
        Route("/register", guarded(register), methods=["GET", "POST"]),
    ]
