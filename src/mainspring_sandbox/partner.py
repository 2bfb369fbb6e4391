"""A partner who receives webhooks and writes down what came."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mainspring_sandbox.world import World

KEPT_HEADERS = ("webhook-id", "webhook-timestamp", "webhook-signature", "content-type", "user-agent")


def routes(world: World) -> list[BaseRoute]:
    """Where webhooks are sent: any path below."""

    async def receive(request: Request) -> Response:
        headers = {
            name: value for name, value in request.headers.items() if name in KEPT_HEADERS or name.startswith("x-")
        }
        kind = next((value for name, value in headers.items() if name.endswith("-event-type")), None)
        text = (await request.body()).decode(errors="replace")
        told = {"to": str(request.url), "type": kind, "headers": headers, "body": text}
        world.ledger.add("webhook", world.new_id("hook"), told)
        return Response(status_code=204)

    return [Route("/{path:path}", receive, methods=["POST"])]
