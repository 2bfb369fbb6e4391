"""The run endpoint, seen by those who call it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx2
import msgspec

from mainspring.errors import ConfigurationError
from mainspring.web.secret import HeaderSecret

MOST_ANSWER_BYTES = 64 * 1024  # bytes of an answer


class RunReply(msgspec.Struct, frozen=True):
    """What a run endpoint says."""

    ok: bool
    processed: int
    remaining: int = msgspec.field(name="remainingPending")
    as_of: str = msgspec.field(name="asOfUtc")


@dataclass(frozen=True, slots=True)
class CallResult:
    """What came of a call: a reply, or what was wrong."""

    problem: str | None = None
    reply: RunReply | None = None
    late: bool = False  # no answer in time; the run may be under way all the same


@dataclass(frozen=True, slots=True)
class RunTarget:
    """An address and the secret for it. Both come from settings: nothing that a request says leads elsewhere."""

    url: str
    secret: HeaderSecret

    @classmethod
    def of(cls, base: str, path: str, secret: HeaderSecret, name: str) -> RunTarget:
        """The endpoint below a base address such as `https://shop.example`; `name` is the setting that it stands in."""
        try:
            parts = urlsplit(base)
            fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            fits = False
        if not fits or parts.username is not None or parts.query or parts.fragment or not base.isprintable():
            raise ConfigurationError(f"{name}: is not of the form https://host/path")
        if not path.startswith("/"):
            raise ConfigurationError("path: does not begin with /")
        return cls(base.rstrip("/") + path, secret)

    async def call(self, limit: float) -> CallResult:
        """Call, for at most so many seconds in all."""
        try:
            async with asyncio.timeout(limit):
                status, body = await self._post(limit)
        except TimeoutError:
            return CallResult(f"no answer within {limit:g} s", late=True)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, RuntimeError) as error:
            return CallResult(str(error) or type(error).__name__)
        if status == 404:
            return CallResult("answered 404: no run endpoint is there; without CRON_SECRET a server has none")
        if not 200 <= status < 300:
            return CallResult(f"answered {status}")
        try:
            return CallResult(reply=msgspec.json.decode(body, type=RunReply))
        except msgspec.MsgspecError:
            return CallResult(f"answered {status}, but not as a run endpoint does")

    async def _post(self, limit: float) -> tuple[int, bytes]:
        about: dict[str, Any] = {"timeout": limit, "trust_env": False, "follow_redirects": False}
        headers = {"x-cron-secret": self.secret.reveal(), "accept": "application/json"}
        body = bytearray()
        async with httpx2.AsyncClient(**about) as client, client.stream("POST", self.url, headers=headers) as response:
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > MOST_ANSWER_BYTES:
                    break
        return response.status_code, bytes(body[:MOST_ANSWER_BYTES])
