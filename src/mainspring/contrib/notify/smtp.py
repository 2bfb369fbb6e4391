"""Mail over SMTP.

SMTP knows no idempotency key. A connection that breaks after the text was sent leaves it open whether the server took
it: the mail is sent again, with the same Message-ID, by which most mailboxes show it once.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal, Self, get_args
from urllib.parse import parse_qs, unquote, urlsplit

from mainspring.contrib.codes import PROVIDER_CONFIGURATION
from mainspring.contrib.http import HTTP_TIMEOUT_S, is_loopback
from mainspring.contrib.loops import PerLoop
from mainspring.contrib.notify.address import sender_address
from mainspring.contrib.notify.mail import Mail, mail
from mainspring.contrib.notify.sender import Outgoing, Receipt, Undeliverable
from mainspring.contrib.secret import Secret
from mainspring.db.recipients import Channel
from mainspring.errors import ConfigurationError
from mainspring.extras import needs
from mainspring.outcome import Failure, Permanent
from mainspring.text.span import Span, configured_span

if TYPE_CHECKING:
    import aiosmtplib

Tls = Literal["starttls", "implicit", "none"]
SMTP_CONNECTIONS: Final = 10  # at once; servers count them, and may refuse more
SMTP_IDLE_S: Final = 30.0  # seconds; servers and firewalls forget older lines, some without a word
SMTP_AWAKE_S: Final = 2.0  # seconds in which a connection that was kept must answer
LOGIN: Final = frozenset({530, 534, 535, 538})  # who we are is refused, wherever it is said


class Smtp:
    """Sends mail over an SMTP server.

    ::

        smtp = Smtp("mail.example.com", 587, username="shop", password=..., sender="Shop <shop@example.com>")

    `tls="starttls"` encrypts from the first command on, `"implicit"` from the first byte (port 465); both check the
    certificate, by `context` where you have authorities of your own.
    """

    name = "smtp"
    channel: Channel = "email"

    def __init__(
        self,
        host: str,
        port: int,
        *,
        username: str | None = None,
        password: str | Secret | None = None,
        tls: Tls = "starttls",
        sender: str,
        timeout: Span = HTTP_TIMEOUT_S,
        context: ssl.SSLContext | None = None,
        connections: int = SMTP_CONNECTIONS,
    ) -> None:
        needs("senders need", "notify", "aiosmtplib")
        if connections < 1:
            raise ConfigurationError("connections: must be at least 1")
        if tls not in get_args(Tls):
            raise ConfigurationError(f"tls: is not one of {', '.join(get_args(Tls))}")
        if (username is None) != (password is None):
            raise ConfigurationError("password: username and password go together")
        if password is not None and tls == "none" and not is_loopback(host):
            raise ConfigurationError("tls: a password is not sent in the clear, except to this machine")
        self._name, self._address = sender_address(sender)
        self._host, self._port, self._tls, self._context = host, port, tls, context
        self._timeout = configured_span("timeout", timeout).total_seconds()
        self._username, self._password = username, password and Secret(password)
        self._pool = PerLoop(lambda: _SmtpPool(self._connection, connections))

    @classmethod
    def from_url(cls, url: str, *, sender: str, timeout: Span = HTTP_TIMEOUT_S) -> Self:
        """From `smtp://user:password@host:587`, `smtps://…` for implicit TLS, or `smtp://…?tls=none`.

        >>> Smtp.from_url("smtp://shop:secret@mail.example.com", sender="shop@example.com")
        <Smtp mail.example.com:587>
        """
        try:
            parts = urlsplit(url)
            port, options = parts.port, parse_qs(parts.query, strict_parsing=True) if parts.query else {}
        except ValueError:
            raise ConfigurationError("url: is not of the form smtp://user:password@host:587") from None
        if parts.scheme not in ("smtp", "smtps") or not parts.hostname or options.keys() - {"tls"}:
            raise ConfigurationError("url: is not of the form smtp://user:password@host:587")
        tls = options.get("tls", ["implicit" if parts.scheme == "smtps" else "starttls"])[-1]
        return cls(
            parts.hostname,
            port or (465 if tls == "implicit" else 587),
            username=unquote(parts.username) if parts.username else None,
            password=unquote(parts.password) if parts.password else None,
            tls=tls,  # type: ignore[arg-type] # the constructor refuses others
            sender=sender,
            timeout=timeout,
        )

    def __repr__(self) -> str:
        return f"<Smtp {self._host}:{self._port}>"

    async def send(self, message: Outgoing) -> Receipt:
        """Hand it to the server."""
        import aiosmtplib

        written = mail(message, self._name, self._address)
        try:
            async with asyncio.timeout(self._timeout):
                await self._deliver(written)
        except TimeoutError:
            raise Failure(f"smtp: no answer within {self._timeout:g} s", code="TIMEOUT") from None
        except aiosmtplib.SMTPRecipientsRefused as error:
            raise _refused(error.recipients[0].code, "the recipient", to=True) from None
        except aiosmtplib.SMTPResponseException as error:
            raise _refused(error.code, _stage(error)) from None
        except (aiosmtplib.SMTPConnectError, aiosmtplib.SMTPServerDisconnected, OSError) as error:
            raise Failure(f"smtp: the connection broke ({type(error).__name__})", code="HttpException") from None
        except (aiosmtplib.SMTPException, ValueError) as error:  # no STARTTLS, no AUTH, no SMTPUTF8
            said = f"smtp: the server cannot do what we ask ({type(error).__name__})"
            raise Permanent(said, code=PROVIDER_CONFIGURATION, counts=not written.international) from None
        return Receipt(provider=self.name, provider_id=written.id)

    async def find(self, message: Outgoing, since: datetime) -> Receipt | None:
        """None: SMTP cannot say."""
        return None

    async def close(self) -> None:
        """Let go of connections."""
        await self._pool.close()

    async def _deliver(self, written: Mail) -> None:
        pool = await self._pool.get()
        options = ["SMTPUTF8"] if written.international else []
        async with pool.connection() as line:
            await line.sendmail(self._address, [written.to], written.content, mail_options=options)

    def _connection(self) -> aiosmtplib.SMTP:
        import aiosmtplib

        return aiosmtplib.SMTP(
            hostname=self._host,
            port=self._port,
            username=self._username,
            password=self._password.reveal() if self._password else None,
            use_tls=self._tls == "implicit",
            start_tls=self._tls == "starttls",
            tls_context=self._context,
            timeout=self._timeout,
            local_hostname=self._address.rpartition("@")[2],  # else it asks the name service who we are
        )


class _SmtpPool:
    """A few connections, each used by one mail at a time, and kept for the next one."""

    def __init__(self, make: Callable[[], aiosmtplib.SMTP], most: int) -> None:
        self._make = make
        self._idle: list[tuple[float, aiosmtplib.SMTP]] = []
        self._turn = asyncio.Semaphore(most)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[aiosmtplib.SMTP]:
        """One that answers; it is kept unless something went wrong with it."""
        async with self._turn:
            line = await self._awake() or self._make()
            try:
                if not line.is_connected:
                    await line.connect()
                yield line
            except BaseException:
                line.close()
                raise
            self._idle.append((time.monotonic(), line))

    async def _awake(self) -> aiosmtplib.SMTP | None:
        """The one that was used last, if that is not long ago and the server has not hung up since."""
        import aiosmtplib

        while self._idle:
            since, line = self._idle.pop()
            if time.monotonic() - since > SMTP_IDLE_S:
                line.close()
                continue
            try:
                await line.rset(timeout=SMTP_AWAKE_S)
            except (aiosmtplib.SMTPException, OSError):
                line.close()
            except BaseException:
                line.close()
                raise
            else:
                return line
        return None

    async def aclose(self) -> None:
        """Hang up."""
        while self._idle:
            self._idle.pop()[1].close()


def _refused(code: int, what: str, *, to: bool = False) -> Failure:
    """What an answer of the server means: 4 is later, 5 is never."""
    said = f"smtp: {what} was answered with {code}"
    if code in LOGIN:
        return Permanent(said, code=PROVIDER_CONFIGURATION, counts=True)
    if not 500 <= code < 600:
        return Failure(said, code="HttpException")
    if to:
        return Undeliverable("to: the mail server does not accept the address", code="EMAIL_ADDRESS_INVALID")
    return Permanent(said, code="MESSAGE_REFUSED")


def _stage(error: aiosmtplib.SMTPResponseException) -> str:
    return {"SMTPSenderRefused": "the sender", "SMTPDataError": "the text"}.get(type(error).__name__, "a command")
