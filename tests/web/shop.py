"""The application that `mainspring serve` serves in these tests."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

import mainspring as ms
from mainspring.web import public

tasks = ms.Registry("shop")


@tasks.task
async def slow(*, seconds: float) -> None:
    """Take some time."""
    await asyncio.sleep(seconds)


async def hello(_: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


app = ms.App(tasks, maintenance=False, routes=[public(Route("/hello", hello))])
