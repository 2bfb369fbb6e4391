"""A receiver on loopback that plays any answer, however wrong, and name servers and lines that tests invent."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import pytest

from mainspring.contrib.webhooks.addresses import Address
from mainspring.contrib.webhooks.transport import connect

Play = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Raw:
    """What came to a receiver, and where it listens."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.lines = 0
        self.port = 0
        self.came = asyncio.Event()

    def url(self, host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}/in"


@asynccontextmanager
async def raw(play: Play | bytes, *, context: ssl.SSLContext | None = None, reads: bool = True) -> AsyncIterator[Raw]:
    """A receiver that reads each request, unless told not to, and plays its answer; given bytes, it says just those."""
    receiver = Raw()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        receiver.lines += 1
        try:
            if reads:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    int(one[15:]) for one in head.lower().split(b"\r\n") if one.startswith(b"content-length:")
                )
                receiver.requests.append(head + await reader.readexactly(length))
                receiver.came.set()
            if isinstance(play, bytes):
                writer.write(play)
                await writer.drain()
                writer.close()
            else:
                await play(reader, writer)
        except (OSError, EOFError):
            pass  # whoever called has seen enough
        finally:
            if not writer.is_closing():
                writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.create_task(serve(reader, writer)))

    server = await asyncio.start_server(begin, "127.0.0.1", 0, ssl=context)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        await asyncio.sleep(0.01)  # a line that was just taken, or whose handshake failed, is the loop's until now
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Names:
    """A name server: what a test says, in turn; the last answer stays."""

    def __init__(self, *answers: Sequence[str] | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


class Lines:
    """A connector that remembers whom it was asked for, and reaches loopback only."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, address: Address, port: int) -> socket.socket:
        self.asked.append((str(address), port))
        if not address.is_loopback:
            raise ConnectionRefusedError(111, "a test reaches nobody")
        return await connect(address, port)


async def no_names(host: str, port: int) -> Sequence[str]:
    pytest.fail("a name was looked up")


async def no_lines(address: Address, port: int) -> socket.socket:
    pytest.fail("a line was asked for")
