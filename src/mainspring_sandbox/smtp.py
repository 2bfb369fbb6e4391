"""A mailbox that speaks SMTP.

Its faults are those of `smtp`, drawn once a recipient with its address as the path, so that
`Fault(provider="smtp", kind="error", status=550, path="bounce@")` refuses some. Those of `smtp.connect` strike at the
greeting, and `smtp.data` refuses the text. Without any fault, mail to `bounce@…` is refused, and so is the password
`wrong`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any, Final

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from mainspring_sandbox.faults import Fault
from mainspring_sandbox.world import World

SILENT_SMTP_S: Final = 3600.0  # how long silence lasts; whoever waits gives up sooner
#: What a fault may answer with; any other status means trouble that passes.
SMTP_STATUSES: Final = frozenset({421, 450, 451, 452, 454, 530, 535, 550, 551, 552, 553, 554})
_PASSING_REPLY: Final = 451


class Mailbox:
    """The listening server and the connections that are open."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._server: asyncio.Server | None = None
        self._lines: set[asyncio.Transport] = set()

    @property
    def sockets(self) -> Sequence[Any]:
        """Where it listens."""
        return self._server.sockets if self._server else ()

    async def listen(self, host: str, port: int) -> None:
        """Take mail from here on."""
        self._server = await asyncio.get_running_loop().create_server(self._answer, host, port)

    def close(self) -> None:
        """Hang up on everybody."""
        if self._server is not None:
            self._server.close()
        for line in list(self._lines):
            line.abort()

    def opened(self, line: asyncio.BaseTransport) -> None:
        """A line was opened."""
        assert isinstance(line, asyncio.Transport)
        self._lines.add(line)

    def closed(self, line: asyncio.BaseTransport | None) -> None:
        """It is closed."""
        self._lines -= {line}

    def _answer(self) -> asyncio.BaseProtocol:
        fault = self._world.faults.strike("smtp.connect", "connect", kinds=("error", "timeout", "drop"))
        return _Hostile(self, fault) if fault else _SmtpSession(self, SmtpHandler(self._world))


async def smtp_server(world: World, host: str, port: int) -> Mailbox:
    """Listen for mail in this event loop."""
    mailbox = Mailbox(world)
    await mailbox.listen(host, port)
    return mailbox


class _SmtpSession(SMTP):
    """A caller."""

    def __init__(self, mailbox: Mailbox, handler: SmtpHandler) -> None:
        super().__init__(
            handler,
            hostname="sandbox",
            ident="Mainspring sandbox",
            enable_SMTPUTF8=True,
            authenticator=_login,
            auth_require_tls=False,
            loop=asyncio.get_running_loop(),
        )
        self._mailbox = mailbox
        self._own: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._own = transport
        self._mailbox.opened(transport)
        super().connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._mailbox.closed(self._own)
        super().connection_lost(error)


class _Hostile(asyncio.Protocol):
    """What a caller meets whom a fault of `smtp.connect` struck."""

    def __init__(self, mailbox: Mailbox, fault: Fault) -> None:
        self._mailbox, self._fault = mailbox, fault
        self._line: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._line = transport
        self._mailbox.opened(transport)
        if self._fault.kind == "error":
            transport.write(b"421 too many connections\r\n")
            transport.close()
        elif self._fault.kind == "drop":
            transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._mailbox.closed(self._line)


class SmtpHandler:
    """What happens to mail, as aiosmtpd calls it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._fault: Fault | None = None

    async def handle_RCPT(  # noqa: N802 (aiosmtpd's name)
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        """Take a recipient, or refuse it."""
        self._fault = fault = self._world.faults.strike("smtp", address)
        if fault is not None and fault.kind == "error" and not fault.accepted:
            return _status(fault)
        if address.startswith("bounce@"):
            return "550 5.1.1 there is no such mailbox"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802 (as above)
        """Take a mail."""
        refusal = self._world.faults.strike("smtp.data", envelope.rcpt_tos[0], kinds=("error",))
        if refusal is not None:
            return _status(refusal)
        fault, self._fault = self._fault, None
        if fault is None:
            return f"250 OK {self._store(envelope)}"
        if fault.kind == "slow":
            await asyncio.sleep(fault.seconds)
            return f"250 OK {self._store(envelope)}"
        if fault.kind == "drop" or fault.accepted:
            self._store(envelope)
        if fault.kind == "error":
            return _status(fault)
        if fault.kind == "drop":
            assert isinstance(server.transport, asyncio.Transport)
            server.transport.abort()
        await asyncio.sleep(SILENT_SMTP_S)  # ends with the connection
        return ""

    def _store(self, envelope: Envelope) -> str:
        content = envelope.content
        parsed = message_from_bytes(content if isinstance(content, bytes) else b"", policy=policy.default)
        assert isinstance(parsed, EmailMessage)
        id = self._world.new_id("mail")
        headers: dict[str, str] = {}  # each is parsed when it is asked for, which takes most of the time
        for name, value in parsed.items():
            headers.setdefault(name.lower(), str(value))
        body = {
            "provider": "smtp",
            "from": headers.get("from", ""),
            "to": list(envelope.rcpt_tos),
            "subject": headers.get("subject", ""),
            "text": _part(parsed, "plain"),
            "html": _part(parsed, "html"),
            "message_id": headers.get("message-id", "").strip(),
            "mail_from": envelope.mail_from,
            "headers": headers,
        }
        self._world.ledger.add("mail", id, body)
        return id


def _part(mail: EmailMessage, kind: str) -> str | None:
    part = mail.get_body(preferencelist=(kind,))
    if part is None:
        return None
    try:
        text = str(part.get_content())
    except LookupError:  # a charset that does not exist
        text = (part.get_payload(decode=True) or b"").decode("utf-8", "replace")  # type: ignore[union-attr] # bytes
    return text.replace("\r\n", "\n")


def _login(server: SMTP, session: Session, envelope: Envelope, mechanism: str, login: object) -> AuthResult:
    fits = isinstance(login, LoginPassword) and login.password != b"wrong"
    return AuthResult(success=fits, handled=False)  # the server itself answers


def _status(fault: Fault) -> str:
    return f"{fault.status if fault.status in SMTP_STATUSES else _PASSING_REPLY} a fault of the sandbox"
