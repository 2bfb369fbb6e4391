"""The four senders, each with the address that its stand-in takes, and what the tests ask of all of them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from mainspring.contrib.notify.push import Push
from mainspring.contrib.notify.resend import Resend
from mainspring.contrib.notify.sender import Outgoing, Sender
from mainspring.contrib.notify.smtp import Smtp
from mainspring.contrib.notify.twilio import Twilio
from mainspring_sandbox import Sandbox
from mainspring_sandbox.faults import Fault

#: Lines on loopback are plain: reading the authorities of the world takes 0.1 s each time.
NOBODY = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
SECRET = "canary-7f3a9c"
FROM = "Shöp & Söhne <shop@example.com>"
NUMBER = "+4930901820"


@dataclass(frozen=True)
class Kind:
    """One of the senders."""

    name: str
    kind: str  # of what the stand-in records
    to: str
    make: Callable[..., Sender]

    def message(self, key: str = "booking-7:confirmation", **fields: Any) -> Outgoing:
        text: dict[str, Any] = {"title": "Grüße", "text": "Your machine is ready.\n", "html": "<p>Ready</p>"}
        return Outgoing(**({"channel": "email", "to": self.to, "key": key} | text | fields))

    def __str__(self) -> str:
        return self.name


def _smtp(sandbox: Sandbox, **options: Any) -> Sender:
    return Smtp("127.0.0.1", sandbox.smtp_port, **({"tls": "none", "sender": FROM} | options))


def _resend(sandbox: Sandbox, key: str = SECRET, **options: Any) -> Sender:
    return Resend(key, **({"sender": FROM, "base": f"{sandbox.url}/resend"} | options))


def _twilio(sandbox: Sandbox, token: str = SECRET, **options: Any) -> Sender:
    return Twilio("AC1", token, **({"sender": NUMBER, "base": f"{sandbox.url}/twilio"} | options))


def _push(sandbox: Sandbox, token: str = SECRET, **options: Any) -> Sender:
    return Push(f"{sandbox.url}/push", token=token, **options)


SMTP = Kind("smtp", "mail", "jo@example.com", _smtp)
RESEND = Kind("resend", "mail", "jo@example.com", _resend)
TWILIO = Kind("twilio", "sms", "+49170123456", _twilio)
PUSH = Kind("push", "push", "device-1", _push)
ALL = (SMTP, RESEND, TWILIO, PUSH)
HTTP = (RESEND, TWILIO, PUSH)


def fault(sandbox: Sandbox, provider: object, kind: Any, **options: Any) -> None:
    """Let something go wrong."""
    sandbox.faults.set(Fault(provider=str(provider), kind=kind, **options))


@asynccontextmanager
async def answering(
    answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[str]:
    """A provider that nobody would want, and its address."""
    lines: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        with suppress(ConnectionError):
            await answer(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for line in lines:
            line.transport.abort()
        await asyncio.sleep(0)
