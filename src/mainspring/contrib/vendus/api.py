"""How Vendus is reached: HTTP basic with the key, JSON, one deadline a call, and only so many calls a second."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, TypeVar

import msgspec

from mainspring.contrib.http import Http, ProviderReply, checked_secret
from mainspring.contrib.secret import Secret
from mainspring.errors import ConfigurationError
from mainspring.text.span import Span

VENDUS_URL: Final = "https://www.vendus.pt/ws"
VENDUS_TIMEOUT_S: Final = 20.0  # seconds, for a whole call
LARGEST_PDF: Final = 10 * 1024 * 1024  # bytes
_encode: Final = msgspec.json.Encoder(decimal_format="number").encode

T = TypeVar("T")
VendusMode = Literal["normal", "tests"]


@dataclass(frozen=True, slots=True)
class VendusRequest:
    """One request, as a value."""

    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None

    def perform(self, api: VendusApi) -> ProviderReply:
        """From a plain function."""
        return api.send(self)

    def perform_async(self, api: VendusApi) -> Awaitable[ProviderReply]:
        """In the event loop."""
        return api.send_async(self)


VendusCalls: TypeAlias = Generator[VendusRequest, ProviderReply, T]


def running() -> bool:
    """Whether this is called in an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class VendusApi:
    """How Vendus is reached, and as whom."""

    def __init__(
        self, api_key: str | Secret, *, base: str, timeout: Span, per_second: float | None, mode: VendusMode | None
    ) -> None:
        if mode not in ("normal", "tests", None):
            raise ConfigurationError("Vendus: mode is neither 'normal' nor 'tests'")
        if per_second is not None and per_second <= 0:
            raise ConfigurationError("Vendus: per_second is not positive")
        login = checked_secret("Vendus: api_key", api_key), Secret("")
        self._http = Http(
            "vendus", base, timeout=timeout, login=(login[0].reveal(), login[1]), most=LARGEST_PDF, extra="vendus"
        )
        self.mode, self._gap = mode, 0.0 if per_second is None else 1 / per_second
        self._lock, self._next = threading.Lock(), 0.0  # by the clock of the machine, for this process

    @property
    def base(self) -> str:
        """Its address."""
        return self._http.base

    def send(self, call: VendusRequest) -> ProviderReply:
        """Make a call from a plain function, in an event loop of its own: no connection is kept."""
        if running():
            raise ConfigurationError("Vendus: this is async code: await the block's own verb, not that of its `sync`")
        return asyncio.run(self.send_async(call))

    async def send_async(self, call: VendusRequest) -> ProviderReply:
        """Make a call in the event loop."""
        await asyncio.sleep(self._wait())
        params = dict(call.params) | ({"mode": self.mode} if self.mode and call.method == "GET" else {})
        sent: dict[str, Any] = {"params": params, "headers": {"accept": "application/json, application/pdf"}}
        if call.body is not None:
            of_document = self.mode is not None and call.path.startswith("/v1.1/documents")
            sent["content"] = _encode({**call.body, "mode": self.mode} if of_document else call.body)
            sent["headers"] |= {"content-type": "application/json"}
        return await self._http.ask(call.method, call.path, **sent)

    async def close(self) -> None:
        """Hang up in this event loop; the end of the loop does it, too."""
        await self._http.close()

    def _wait(self) -> float:
        """How long until the next call may be made; it is taken."""
        with self._lock:
            now = time.monotonic()
            at = max(now, self._next)
            self._next = at + self._gap
        return at - now
