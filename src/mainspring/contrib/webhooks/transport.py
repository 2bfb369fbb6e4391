"""How a webhook travels: its name is looked up once, every answer is checked, and the connection goes to that address.

The connector gets the checked address, so nothing that a name server says later can lead it elsewhere. No proxy,
no `.netrc`, no redirect, no cookie, no second use of a connection. One deadline covers everything.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Final

from mainspring.contrib.webhooks import addresses
from mainspring.contrib.webhooks import headers as request_headers
from mainspring.contrib.webhooks import target as targets
from mainspring.contrib.webhooks.addresses import Address
from mainspring.contrib.webhooks.policy import Policy
from mainspring.contrib.webhooks.response import Response
from mainspring.contrib.webhooks.target import TargetRefused, WebhookTarget
from mainspring.errors import ConfigurationError
from mainspring.extras import needs
from mainspring.outcome import Failure

#: Every address of a name, as texts; raises OSError when there is none.
Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
#: A connected socket to this address and port, and to no other.
Connector = Callable[[Address, int], Awaitable[socket.socket]]

WEBHOOK_TIMEOUT_S: Final = 30.0
_CONNECT: Final = 5.0  # for one address: a name may have others
_TRIED: Final = 4  # addresses of one name
_LOOKUPS: Final = 32  # at once: a slow name server holds these threads, and nobody else's


class Transport:
    """Sends webhooks where the policy lets them go.

    ::

        transport = Transport(Policy.from_env(), own=["db.example.com:5432"])
        await transport.check(url)  # when an endpoint is saved
        answer = await transport.post(url, headers, body)  # checks again, each time

    `own` are hosts of ours, with or without a port, that are refused although their addresses may be public.
    """

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        resolver: Resolver | None = None,
        connector: Connector | None = None,
        own: Iterable[str] = (),
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self.policy = policy or Policy()
        self._resolver = resolver or SystemResolver()
        self._connector = connector or connect
        self._own = [_own(text) for text in own]
        if ssl_context and (not ssl_context.check_hostname or ssl_context.verify_mode != ssl.CERT_REQUIRED):
            raise ConfigurationError("ssl_context: does not check certificates")
        self._ssl = ssl_context

    async def check(self, url: str) -> WebhookTarget:
        """Refuse a URL that cannot be reached, or may not; nothing is sent."""
        target = targets.check(url, self.policy)
        try:
            async with asyncio.timeout(WEBHOOK_TIMEOUT_S):
                await self._checked(target)
        except (Failure, TimeoutError):
            raise TargetRefused("the host has no address now") from None
        return target

    async def post(
        self, url: str, headers: Mapping[str, str], body: bytes, *, timeout: float = WEBHOOK_TIMEOUT_S
    ) -> Response:
        """Send a request and give what was answered, whatever its status.

        TargetRefused when it may not go there: nothing was sent. Failure `WebhookTimeout` when time was over, and
        `HttpException` when there was no line or no proper answer: whether it arrived is not known then.
        """
        needs("webhooks need", "webhooks", "h11")
        from mainspring.contrib.webhooks.exchange import exchange

        request_headers.check(headers)
        began = time.monotonic()
        deadline = asyncio.timeout(timeout)
        try:
            async with deadline:
                target = targets.check(url, self.policy)
                async with self._line(target, await self._checked(target)) as (reader, writer):
                    answer = await exchange(reader, writer, target, headers, body)
        except TimeoutError:
            if not deadline.expired():
                raise
            raise Failure(f"no whole answer within {timeout:g} s", code="WebhookTimeout") from None
        return replace(answer, seconds=time.monotonic() - began)

    async def _checked(self, target: WebhookTarget) -> list[Address]:
        """Every address of the target; one that may not be reached refuses them all."""
        found = [target.address] if target.address else await self._resolve(target.host, target.port)
        for address in found:
            if reason := self.policy.refusal(address):
                raise TargetRefused(f"the host has an address that may not be reached: {reason}")
        for host, port in self._own:
            if port in (None, target.port):
                ours = addresses.parse(host)
                taken = [ours] if ours else await self._resolve(host, target.port, missing_ok=True)
                if host == target.host or any(address in taken for address in found):
                    raise TargetRefused("the host has an address that may not be reached: one of ours")
        return found

    async def _resolve(self, host: str, port: int, *, missing_ok: bool = False) -> list[Address]:
        try:
            texts = await self._resolver(host, port)
        except (OSError, UnicodeError):
            texts = ()
        found = [addresses.parse(text) for text in texts]
        if None in found:
            raise TargetRefused("the host has an address that cannot be read")
        if not found and not missing_ok:
            raise Failure("the host name has no address now", code="HttpException")
        return [address for address in found if address]

    @asynccontextmanager
    async def _line(
        self, target: WebhookTarget, found: Sequence[Address]
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """A line to one of the checked addresses, that is gone after the block."""
        sock = await self._connect(found[:_TRIED], target.port)
        context = self._context() if target.tls else None
        try:
            reader, writer = await asyncio.open_connection(
                sock=sock, ssl=context, server_hostname=target.host if context else None, limit=2**15
            )
        except ssl.SSLCertVerificationError as error:
            raise Failure(f"the certificate is refused: {error.verify_message}", code="HttpException") from None
        except ssl.SSLError as error:
            raise Failure(f"no TLS with the receiver: {error.reason}", code="HttpException") from None
        except OSError:
            raise Failure("the connection was closed before TLS stood", code="HttpException") from None
        try:
            yield reader, writer
        except OSError as error:
            raise Failure(f"the connection broke: {_cause(error)}", code="HttpException") from None
        finally:
            writer.transport.abort()  # a polite end would wait for a receiver who need not answer
            with suppress(OSError):
                await writer.wait_closed()

    async def _connect(self, found: Sequence[Address], port: int) -> socket.socket:
        """A socket to the first that takes it."""
        problem = ""
        for address in found:
            try:
                async with asyncio.timeout(_CONNECT):
                    sock = await self._connector(address, port)
            except OSError as error:
                problem = _cause(error)
                continue
            try:
                peer = addresses.parse(sock.getpeername()[0])
            except OSError as error:  # it was hung up at once
                sock.close()
                problem = _cause(error)
                continue
            if peer == address:
                return sock
            sock.close()
            raise TargetRefused("the connection leads to another address than the checked one")
        raise Failure(f"no line to the receiver: {problem}", code="HttpException")

    def _context(self) -> ssl.SSLContext:
        if self._ssl is None:
            self._ssl = ssl.create_default_context()  # takes a while: it reads the certificates of the system
        return self._ssl


class SystemResolver:
    """Asks the system, in threads of its own."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_LOOKUPS, thread_name_prefix="mainspring-lookup")

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """Every address of a name."""
        loop = asyncio.get_running_loop()
        # As bytes: the name is ASCII already, and no codec shall have an opinion about it.
        answers = await loop.run_in_executor(
            self._threads, lambda: socket.getaddrinfo(host.encode("ascii"), port, type=socket.SOCK_STREAM)
        )
        return list(dict.fromkeys(str(answer[4][0]) for answer in answers))


async def connect(address: Address, port: int) -> socket.socket:
    """A socket that is connected to this address."""
    sock = socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, (str(address), port))
    except BaseException:
        sock.close()
        raise
    return sock


def _own(text: str) -> tuple[str, int | None]:
    """`host`, `host:port`, `[address]:port` or an address."""
    if addresses.parse(text):
        return text, None
    host, colon, port = text.rpartition(":")
    if not colon:
        return text.lower(), None
    if not host or not port.isdecimal():
        raise ConfigurationError("own: is not a list of hosts such as db.example.com:5432")
    return host.strip("[]").lower(), int(port)


def _cause(error: OSError) -> str:
    """Why a connection failed, without addresses."""
    if isinstance(error, TimeoutError):
        return "it took too long"
    return os.strerror(error.errno) if error.errno else "it was closed"
