"""A provider behind HTTP: one call with one deadline, and what its answer means for the job."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import re
import ssl
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from mainspring.contrib.codes import PROVIDER_CONFIGURATION
from mainspring.contrib.loops import PerLoop
from mainspring.contrib.secret import Secret
from mainspring.errors import ConfigurationError
from mainspring.extras import needs
from mainspring.outcome import Failure, Permanent, RetryAfter
from mainspring.text.span import Span, configured_span

if TYPE_CHECKING:
    import httpx2

HTTP_TIMEOUT_S: Final = 10.0  # seconds, for a whole call (PLAN-3.12)
MOST_REPLY_BYTES: Final = 1024 * 1024  # bytes of an answer that are read
_KEY: Final = re.compile(r"[!-~]{1,256}")


class ProviderReply(msgspec.Struct, frozen=True):
    """What a provider answered."""

    status: int
    body: Mapping[str, Any]  # empty if it is no JSON object
    retry_after: float | None = None
    raw: bytes = b""  # as it came, cut where it is too long

    @property
    def fine(self) -> bool:
        """Whether it did as asked."""
        return 200 <= self.status < 300


class NoReply(Failure):
    """No answer came; `sent` says whether the provider may have got the request, and acted on it."""

    sent: bool = True


class Http:
    """The calls to one provider: no redirects, no proxies of the environment, and never longer than the time-out."""

    def __init__(
        self,
        name: str,
        base: str,
        *,
        timeout: Span = HTTP_TIMEOUT_S,
        login: tuple[str, Secret] | None = None,
        most: int = MOST_REPLY_BYTES,
        extra: str = "notify",
    ) -> None:
        self.name, self.base = name, checked_base(base)
        self.timeout = configured_span("timeout", timeout).total_seconds()
        self._login, self._most = login, most
        needs(f"{name} needs", extra, "httpx2")
        self._client = PerLoop(self._make)

    def __repr__(self) -> str:
        return f"<Http {self.name} {self.base}>"

    async def ask(self, method: str, path: str, **request: Any) -> ProviderReply:
        """Call it; a broken line or silence is a Failure that is tried again: whether it acted is unknown then."""
        import httpx2

        client = await self._client.get()
        try:
            async with asyncio.timeout(self.timeout):
                async with client.stream(method, f"{self.base}{path}", **request) as response:
                    return await _read(response, self._most)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            failed = NoReply(f"{self.name}: cannot be reached ({type(error).__name__})", code="HttpException")
            failed.sent = False
            raise failed from None
        except (TimeoutError, httpx2.TimeoutException):
            raise NoReply(f"{self.name}: no answer within {self.timeout:g} s", code="TIMEOUT") from None
        except httpx2.HTTPError as error:  # its text may hold the request, which is personal
            raise NoReply(f"{self.name}: the connection broke ({type(error).__name__})", code="HttpException") from None

    async def close(self) -> None:
        """Let go of connections."""
        await self._client.close()

    def refused(self, answer: ProviderReply, what: str = "") -> Failure:
        """What an answer that is not fine means; `what` it said, where that holds nothing personal."""
        said = f"{self.name}: answered {answer.status}{f' ({what})' if what else ''}"
        if answer.retry_after is not None and (answer.status == 429 or answer.status >= 500):
            code = "RATE_LIMITED" if answer.status == 429 else "HttpException"
            return RetryAfter(answer.retry_after, said, code=code)
        if answer.status == 429:
            return Failure(said, code="RATE_LIMITED")
        if answer.status in (401, 403):  # nothing gets through: better that the breaker opens than that all fail
            return Permanent(said, code=PROVIDER_CONFIGURATION, counts=True)
        if answer.status in (408, 409, 425) or not 400 <= answer.status < 500:
            return Failure(said, code="HttpException")
        return Permanent(said, code="MESSAGE_REFUSED")

    def _make(self) -> httpx2.AsyncClient:
        import httpx2

        return httpx2.AsyncClient(
            headers={"accept-encoding": "identity"},  # an answer cannot grow when it is unpacked
            auth=httpx2.BasicAuth(self._login[0], self._login[1].reveal()) if self._login else None,
            timeout=self.timeout,
            verify=_authorities(),
            trust_env=False,
            follow_redirects=False,
        )


@cache
def _authorities() -> ssl.SSLContext:
    """Whose certificates we trust: read once, it takes 0.1 s."""
    import httpx2

    return httpx2.create_ssl_context(trust_env=False)


def checked_base(base: str) -> str:
    """A provider's address without a slash at its end; secrets travel in the clear to this machine alone.

    >>> checked_base("http://api.example.com")
    Traceback (most recent call last):
    mainspring.errors.ConfigurationError: base: must begin with https://, except on this machine
    """
    parts = urlsplit(base)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or "@" in base:
        raise ConfigurationError("base: is not an address such as https://api.example.com")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise ConfigurationError("base: must begin with https://, except on this machine")
    return base.rstrip("/")


def checked_secret(field: str, value: str | Secret) -> Secret:
    """A key that a header can hold, wrapped."""
    secret = Secret(value)
    if not re.fullmatch(r"[!-~]+", secret.reveal()):
        raise ConfigurationError(f"{field}: is empty, or holds blanks or characters that no key has")
    return secret


def is_loopback(host: str) -> bool:
    """Whether a host is this machine.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.1", "::1", "127.0.0.1.example.com")]
    [True, True, True, False]
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def header_key(key: str) -> str:
    """A message's key as a header may hold it: as it is, or its digest.

    >>> header_key("booking-7:confirmation"), len(header_key("Büro 7"))
    ('booking-7:confirmation', 64)
    """
    return key if _KEY.fullmatch(key) else hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


async def _read(response: httpx2.Response, most: int) -> ProviderReply:
    raw = b""
    async for part in response.aiter_bytes():
        raw += part
        if len(raw) > most:
            break
    try:
        body = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        body = None
    said = body if isinstance(body, dict) else {}
    return ProviderReply(response.status_code, said, _retry_after(response.headers), raw)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds, from either form of the header; a date is held against the provider's own clock.

    Who limits without that header says when the count begins anew.
    """
    hints = (headers.get(name, "").strip() for name in ("retry-after", "ratelimit-reset", "rate-limit-reset"))
    text = next(filter(None, hints), "")
    if re.fullmatch(r"[0-9]{1,9}", text):
        return float(text)
    try:
        ahead = parsedate_to_datetime(text) - parsedate_to_datetime(headers.get("date", ""))
    except (ValueError, TypeError):
        return None
    return max(ahead.total_seconds(), 0.0)
