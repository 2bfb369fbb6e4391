"""How Stripe is reached: by the official SDK, from plain functions and from async ones.

The SDK does not retry: the platform does, by one policy that people see, with the breaker told of each failure, and the
key is the same either way. Connections are kept for each event loop and each thread, and end with them.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from mainspring.contrib.stripe.asking import Body, StripeRequest
from mainspring.contrib.stripe.errors import failure
from mainspring.errors import ConfigurationError
from mainspring.extras import needs
from mainspring.text.span import Span, configured_span

if TYPE_CHECKING:
    from stripe import HTTPClient, StripeClient

#: The version of Stripe's API that this block was written for and is tested with, whatever the account's own is.
API_VERSION: Final = "2026-10-28.endive"
STRIPE_TIMEOUT_S: Final = 30.0  # seconds a call; what a bank takes to answer is less
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


class Api:
    """How Stripe is reached, and as whom."""

    def __init__(
        self, api_key: str, *, base: str | None, api_version: str, timeout: Span, account: str | None = None
    ) -> None:
        if not isinstance(api_key, str) or not api_key or not (api_key.isascii() and api_key.isprintable()):
            raise ConfigurationError("Stripe: api_key is not a text of printable letters")
        if " " in api_key:
            raise ConfigurationError("Stripe: api_key has a blank in it")
        patience = configured_span("Stripe: timeout", timeout).total_seconds()
        if not 0 < patience <= 300:
            raise ConfigurationError("Stripe: timeout: is not above 0 and up to 300 seconds")
        needs("payments need", "stripe", "stripe", "aiohttp")
        self.base, self.api_version, self.timeout, self.account = _checked(base), api_version, patience, account
        self._api_key = api_key
        self._plain: dict[int, tuple[StripeClient, HTTPClient]] = {}  # by process: one that was forked has its own
        self._open: dict[asyncio.AbstractEventLoop, tuple[StripeClient, AsyncGenerator[StripeClient]]] = {}

    def send(self, call: StripeRequest) -> Body:
        """Make a call from a plain function."""
        client = self._called()
        try:
            answer: Body = client.raw_request(call.method, call.path, **_sent(call)).data
            return answer
        except Exception as error:  # not only the SDK's: a connection that breaks in the answer raises its library's
            failed = failure(error)
        raise failed  # without what it was: that repeats what was sent

    async def send_async(self, call: StripeRequest) -> Body:
        """Make a call in the event loop."""
        client = await self._connected()
        try:
            answer: Body = (await client.raw_request_async(call.method, call.path, **_sent(call))).data
            return answer
        except Exception as error:
            failed = failure(error)
        raise failed

    def close(self) -> None:
        """Hang up in this thread."""
        if (found := self._plain.get(os.getpid())) is not None:
            found[1].close()  # type: ignore[no-untyped-call] # the SDK says nothing here

    async def close_async(self) -> None:
        """Hang up in this event loop; the end of the loop does it, too."""
        if (found := self._open.get(asyncio.get_running_loop())) is not None:
            await found[1].aclose()

    def _called(self) -> StripeClient:
        """The client of plain functions; it keeps connections for each thread."""
        if (found := self._plain.get(os.getpid())) is None:
            import stripe

            http = stripe.RequestsClient(timeout=self.timeout)
            found = self._plain[os.getpid()] = self._client(http), http
        return found[0]

    async def _connected(self) -> StripeClient:
        loop = asyncio.get_running_loop()
        if loop not in self._open:
            connection = self._connection()
            self._open[loop] = (await anext(connection), connection)
        return self._open[loop][0]

    async def _connection(self) -> AsyncGenerator[StripeClient]:
        """A client of this event loop. A generator: asyncio closes those when it ends the loop."""
        import aiohttp
        import stripe

        # On this machine nothing is encrypted, and the SDK reads the authorities anew for each loop: 25 ms.
        here = self.base is not None and self.base.startswith("http://")
        http = stripe.AIOHTTPClient(timeout=self.timeout, connector=aiohttp.TCPConnector() if here else None)
        try:
            yield self._client(http)
        finally:
            self._open.pop(asyncio.get_running_loop(), None)
            await http.close_async()  # type: ignore[no-untyped-call] # the SDK says nothing here

    def _client(self, http: HTTPClient) -> StripeClient:
        import stripe

        _hush(logging.getLogger("stripe"))
        return stripe.StripeClient(
            self._api_key,
            stripe_version=self.api_version,
            stripe_account=self.account,
            base_addresses={"api": self.base} if self.base is not None else {},
            max_network_retries=0,
            http_client=http,
        )


def _sent(call: StripeRequest) -> dict[str, Any]:
    return dict(call.params) if call.key is None else {**call.params, "idempotency_key": call.key}


def _hush(sdk: logging.Logger) -> None:
    """The SDK logs each call twice, and what Stripe says in words, which may repeat what was sent of people."""
    if sdk.level == logging.NOTSET:  # else the application has decided
        sdk.setLevel(logging.WARNING)


def _checked(base: str | None) -> str | None:
    if base is None:
        return None
    try:
        parts = urlsplit(base)
        fits = bool(parts.hostname) and parts.username is None and parts.port != 0
    except ValueError:
        fits = False
    if not fits:
        raise ConfigurationError("Stripe: base is not of the form https://host/path")
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
        raise ConfigurationError("Stripe: base is neither https nor on this machine: the key would be readable")
    return base.rstrip("/")
