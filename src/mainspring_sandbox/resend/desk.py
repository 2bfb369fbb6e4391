"""What people and tests make happen at Resend, over HTTP, below `/sandbox/resend`."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mainspring_sandbox.acts import answered, asked_of, guarded
from mainspring_sandbox.resend.state import BounceKind, ResendStandIn
from mainspring_sandbox.world import World


class ResendEndpoint(msgspec.Struct, forbid_unknown_fields=True):
    """A webhook endpoint on this machine, and the secret that its webhooks are signed with."""

    url: str
    secret: str
    events: list[str] = []


class Bounce(msgspec.Struct, forbid_unknown_fields=True):
    """A mail that comes back, for good or for now."""

    type: BounceKind = "Permanent"


def routes(world: World) -> list[BaseRoute]:
    """The pages."""
    resend = world.part(ResendStandIn)

    async def register(request: Request) -> Response:
        asked = await asked_of(request, ResendEndpoint)
        made = resend.register(asked.url, *asked.events, secret=asked.secret)
        return answered({name: value for name, value in made.items() if not name.startswith("_")})

    async def bounce(request: Request) -> Response:
        return answered(resend.bounce(request.path_params["id"], (await asked_of(request, Bounce)).type))

    async def complain(request: Request) -> Response:
        return answered(resend.complain(request.path_params["id"]))

    return [
        Route("/webhooks", guarded(register), methods=["POST"]),
        Route("/emails/{id}/bounce", guarded(bounce), methods=["POST"]),
        Route("/emails/{id}/complain", guarded(complain), methods=["POST"]),
    ]
