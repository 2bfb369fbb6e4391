"""Stands in for a fiscal invoicing service, in the manner of Vendus: clients, a register, documents, their PDF.

It does not recognise a repeat: two documents under one `external_reference` are two invoices, as long as
`PUT /settings {"deduplicate": true}` does not say otherwise. So whoever calls it looks before asking again. The same
page closes the register: `{"register": "close"}`. Every API key is taken but `wrong`, as a bearer, as the user of
Basic, or as `api_key` in the query.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Final, Literal, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from mainspring_sandbox.pdf import pdf
from mainspring_sandbox.world import World

VAT: Final = {"NOR": Decimal(23), "INT": Decimal(13), "RED": Decimal(6), "ISE": Decimal(0)}
CENT: Final = Decimal("0.01")


class _InvoicingSettings(msgspec.Struct, forbid_unknown_fields=True):
    deduplicate: bool = False
    register: Literal["open", "close"] = "open"


class _InvoicingClient(msgspec.Struct):
    id: int | None = None
    fiscal_id: str | None = None
    name: str | None = None
    email: str | None = None


class _InvoiceItem(msgspec.Struct):
    title: str
    gross_price: Decimal
    qty: Decimal = Decimal(1)
    tax_id: Literal["NOR", "INT", "RED", "ISE"] = "NOR"


class _Document(msgspec.Struct):
    type: Literal["FR", "FT"]
    items: list[_InvoiceItem]
    client: _InvoicingClient = msgspec.field(default_factory=_InvoicingClient)
    external_reference: str | None = None
    register_id: int | None = None
    notes: str | None = None


class InvoicingRefused(Exception):
    """It is not done: status, code and text."""

    def __init__(self, status: int, code: str, message: str) -> None:
        self.status, self.code, self.message = status, code, message


T = TypeVar("T")
InvoicingPage = Callable[[Request], Awaitable[Response]]


def routes(world: World) -> list[BaseRoute]:
    """The pages of the provider."""
    book = Book(world)

    async def documents(request: Request) -> Response:
        if request.method == "GET":
            found = world.ledger.find("invoice", **_asked(request, "external_reference", "type"))
            return JSONResponse([one.body for one in found])
        return JSONResponse(book.issue(_read(await request.body(), _Document)), 201)

    async def document(request: Request) -> Response:
        return JSONResponse(book.document(request.path_params["id"]))

    async def printed(request: Request) -> Response:
        found = book.document(request.path_params["id"])
        return Response(pdf([found["number"], f"Total {found['amount_gross']} EUR"]), media_type="application/pdf")

    async def clients(request: Request) -> Response:
        if request.method == "GET":
            found = world.ledger.find("client", **_asked(request, "fiscal_id", "email"))
            return JSONResponse([one.body for one in found])
        return JSONResponse(book.enter(_read(await request.body(), _InvoicingClient)), 201)

    async def registers(request: Request) -> Response:
        return JSONResponse([{"id": 1, "title": "API", "status": book.settings().register}])

    async def settings(request: Request) -> Response:
        return JSONResponse(book.change(_read(await request.body(), _InvoicingSettings)))

    return [
        Route("/documents/", _keyed(documents), methods=["GET", "POST"]),
        Route("/documents/{id:int}.pdf", _keyed(printed)),
        Route("/documents/{id:int}/", _keyed(document)),
        Route("/clients/", _keyed(clients), methods=["GET", "POST"]),
        Route("/registers/", _keyed(registers)),
        Route("/settings", _keyed(settings), methods=["PUT"]),
    ]


class Book:
    """What the service holds."""

    def __init__(self, world: World) -> None:
        self._world, self._ledger = world, world.ledger

    def issue(self, asked: _Document) -> dict[str, Any]:
        """A document, under the next number of its type."""
        settings = self.settings()
        if settings.register != "open":
            raise InvoicingRefused(403, "A001", "The register is closed.")
        if not asked.items:
            raise InvoicingRefused(422, "P001", "items: is empty")
        if asked.client.fiscal_id is not None and not is_nif(asked.client.fiscal_id):
            raise InvoicingRefused(422, "P002", "client.fiscal_id: is not valid")
        if settings.deduplicate and asked.external_reference is not None:
            for known in self._ledger.find("invoice", external_reference=asked.external_reference):
                return known.body
        id, at = self._ledger.number(), self._world.now()
        serial = len(self._ledger.find("invoice", type=asked.type)) + 1
        gross = sum((_cents(item.gross_price * item.qty) for item in asked.items), Decimal(0))
        net = sum((_net(item) for item in asked.items), Decimal(0))
        document = {
            "id": id,
            "type": asked.type,
            "number": f"{asked.type} 01P{at.year}/{serial}",
            "date": at.date().isoformat(),
            "external_reference": asked.external_reference,
            "client": msgspec.to_builtins(asked.client),
            "items": msgspec.to_builtins(asked.items),
            "amount_gross": str(gross),
            "amount_net": str(net),
            "amount_tax": str(gross - net),
            "pdf": f"{self._world.url}/invoicing/documents/{id}.pdf",
        }
        return self._ledger.add("invoice", str(id), document).body

    def document(self, id: int) -> dict[str, Any]:
        """One document."""
        found = self._ledger.get("invoice", str(id))
        if found is None:
            raise InvoicingRefused(404, "A404", "There is no such document.")
        return found.body

    def enter(self, client: _InvoicingClient) -> dict[str, Any]:
        """A new client."""
        if client.fiscal_id is not None and not is_nif(client.fiscal_id):
            raise InvoicingRefused(422, "P002", "fiscal_id: is not valid")
        client.id = self._ledger.number()
        return self._ledger.add("client", str(client.id), msgspec.to_builtins(client)).body

    def settings(self) -> _InvoicingSettings:
        """How it behaves."""
        found = self._ledger.get("setting", "invoicing")
        return msgspec.convert(found.body, _InvoicingSettings) if found else _InvoicingSettings()

    def change(self, settings: _InvoicingSettings) -> dict[str, Any]:
        """Let it behave otherwise."""
        body: dict[str, Any] = msgspec.to_builtins(settings)
        if self._ledger.get("setting", "invoicing") is None:
            return self._ledger.add("setting", "invoicing", body).body
        return self._ledger.change("setting", "invoicing", **body).body


def is_nif(text: str) -> bool:
    """Whether a Portuguese tax number has its check digit.

    >>> is_nif("123456789"), is_nif("123456780")
    (True, False)
    """
    if len(text) != 9 or not text.isascii() or not text.isdigit():
        return False
    rest = sum(int(digit) * weight for digit, weight in zip(text, range(9, 1, -1), strict=False)) % 11
    return int(text[8]) == (0 if rest < 2 else 11 - rest)


def _net(item: _InvoiceItem) -> Decimal:
    return _cents(_cents(item.gross_price * item.qty) * 100 / (100 + VAT[item.tax_id]))


def _cents(amount: Decimal) -> Decimal:
    return amount.quantize(CENT, ROUND_HALF_UP)


def _asked(request: Request, *names: str) -> dict[str, Any]:
    return {name: request.query_params[name] for name in names if name in request.query_params}


def _read(raw: bytes, type: type[T]) -> T:
    try:
        return msgspec.json.decode(raw, type=type, strict=False)
    except msgspec.MsgspecError as error:
        raise InvoicingRefused(422, "P001", str(error)) from None


def _keyed(page: InvoicingPage) -> InvoicingPage:
    """A page for who has a key; what is refused is told in the service's form."""

    async def answer(request: Request) -> Response:
        try:
            if _key(request) in ("", "wrong"):
                raise InvoicingRefused(401, "A401", "The API key is missing or wrong.")
            return await page(request)
        except InvoicingRefused as no:
            return JSONResponse({"errors": [{"code": no.code, "message": no.message}]}, no.status)

    return answer


def _key(request: Request) -> str:
    scheme, _, said = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(said, validate=True).decode().partition(":")[0]
        except (binascii.Error, UnicodeDecodeError):
            return ""
    return said if scheme.lower() == "bearer" else request.query_params.get("api_key", "")
