"""What people make happen at a provider, over HTTP: how it is read and answered, below `/sandbox/<provider>`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

AskedT = TypeVar("AskedT")
RequestHandler = Callable[[Request], Awaitable[Response]]


class ActRefused(Exception):
    """What a provider does not let happen, and the status that says so; providers' own refusals are of this kind."""

    status: int


async def asked_of(request: Request, kind: type[AskedT]) -> AskedT:
    """What is asked for."""
    return msgspec.json.decode(await request.body() or b"{}", type=kind)


def guarded(handler: RequestHandler) -> RequestHandler:
    """What cannot be read or done is said in one line."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return JSONResponse({"error": str(error)}, 422)
        except ActRefused as refused:
            return JSONResponse({"error": str(refused)}, refused.status)

    return answer


def answered(value: object) -> Response:
    """What became of it, as JSON."""
    return Response(msgspec.json.encode(value), media_type="application/json")
