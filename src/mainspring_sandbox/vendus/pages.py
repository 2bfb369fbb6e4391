"""Vendus over HTTP: who asks, what is answered, and every request written down."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from mainspring_sandbox.pdf import pdf
from mainspring_sandbox.vendus.asked import PAYMENT_WAYS, AskedClient, AskedDocument
from mainspring_sandbox.vendus.documents import brief, printed, whole
from mainspring_sandbox.vendus.refused import VendusRefused, no_data, wrong
from mainspring_sandbox.vendus.state import VendusStandIn
from mainspring_sandbox.world import World

AskedPart = TypeVar("AskedPart")
VendusPage = Callable[[Request], Awaitable[Response]]


def routes(world: World) -> list[BaseRoute]:
    """The pages of the provider."""
    vendus = world.part(VendusStandIn)

    async def documents(request: Request) -> Response:
        if request.method == "GET":
            wanted = _asked(request, "external_reference", "type", "register_id", "date")
            return _list(vendus.find_documents(request.query_params.get("mode", "normal"), **wanted))
        asked = _read(await request.body(), AskedDocument)
        return JSONResponse(brief(vendus.issue(asked), qrcode=bool(asked.return_qrcode)), 201)

    async def document(request: Request) -> Response:
        return JSONResponse(
            whole(vendus.document(request.path_params["id"], request.query_params.get("mode", "normal")))
        )

    async def on_paper(request: Request) -> Response:
        found = vendus.document(request.path_params["id"], request.query_params.get("mode", "normal"))
        return Response(pdf(printed(found)), media_type="application/pdf")

    async def clients(request: Request) -> Response:
        if request.method == "GET":
            return _list(vendus.find_clients(**_asked(request, "fiscal_id", "email", "name", "status")))
        return JSONResponse(vendus.enter(_read(await request.body(), AskedClient)), 201)

    async def registers(request: Request) -> Response:
        return JSONResponse([vendus.register()])

    async def register(request: Request) -> Response:
        found = vendus.register()
        if request.path_params["id"] != found["id"]:
            raise no_data()
        return JSONResponse(found)

    async def ways_to_pay(request: Request) -> Response:
        ways = [{"id": id, "title": title, "type": type, "status": "on"} for id, (title, type) in PAYMENT_WAYS.items()]
        return JSONResponse(ways)

    def page(path: str, answer: VendusPage, *methods: str) -> Route:
        return Route(path, _admitted(vendus, answer), methods=list(methods or ("GET",)))

    return [
        Mount(
            "/v1.1",
            routes=[
                page("/documents/", documents, "GET", "POST"),
                page("/documents/{id:int}.pdf", on_paper),
                page("/documents/{id:int}/", document),
                page("/clients/", clients, "GET", "POST"),
                page("/registers/", registers),
                page("/registers/{id:int}/", register),
            ],
        ),
        page("/v1.0/payments/", ways_to_pay),
    ]


def _admitted(vendus: VendusStandIn, page: VendusPage) -> VendusPage:
    """A page for who has a key; what is refused is told in Vendus' form."""

    async def answer(request: Request) -> Response:
        try:
            if _key(request) in ("", "wrong"):
                raise VendusRefused(401, "A401", "The API key is missing or wrong.")
            if not vendus.admits():
                raise VendusRefused(429, "A429", "Too many requests.")
            answered = await page(request)
        except VendusRefused as no:
            headers = {"Rate-Limit-Remaining": "0", "Rate-Limit-Reset": "1"} if no.status == 429 else {}
            answered = JSONResponse({"errors": [{"code": no.code, "message": no.message}]}, no.status, headers)
        path = str(request.scope["path"]).partition("/vendus")[2]
        seen = {"method": request.method, "path": path, "query": request.url.query, "status": answered.status_code}
        vendus.world.ledger.add("vendus.request", vendus.world.new_id("req"), seen)
        return answered

    return answer


def _key(request: Request) -> str:
    scheme, _, said = request.headers.get("authorization", "").partition(" ")
    try:
        return base64.b64decode(said, validate=True).decode().partition(":")[0] if scheme.lower() == "basic" else ""
    except (binascii.Error, UnicodeDecodeError):
        return ""


def _list(found: list[dict[str, Any]]) -> Response:
    if not found:
        raise no_data()
    return JSONResponse(found)


def _asked(request: Request, *names: str) -> dict[str, Any]:
    return {name: request.query_params[name] for name in names if name in request.query_params}


def _read(raw: bytes, type: type[AskedPart]) -> AskedPart:
    try:
        return msgspec.json.decode(raw, type=type)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise wrong("body", str(error)) from None
