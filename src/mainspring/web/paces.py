"""Paces: how many requests an address, somebody who is known, and an organisation may send in a time.

They are counted in this process, so that it costs no database; several servers count each for itself.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import Scope

from mainspring.config import changes
from mainspring.declare.principal import Principal
from mainspring.errors import ConfigurationError
from mainspring.web.answers import refusal
from mainspring.web.authenticator import Authenticator
from mainspring.web.proxies import network_of

#: So many seconds' worth may come at once, after as long a silence.
REQUEST_BURST_S: Final = 10.0
#: So many are remembered; beyond them whoever was silent for the longest time is forgotten, and begins anew.
MOST_SENDERS: Final = 20_000
TOO_FAST: Final = "Too many requests came from you; wait"
MOST_REQUEST_RATE: Final = 1_000_000
_SETTINGS: Final = {
    "address": ("MAINSPRING_REQUESTS_PER_ADDRESS", float),
    "caller": ("MAINSPRING_REQUESTS_PER_CALLER", float),
    "org": ("MAINSPRING_REQUESTS_PER_ORG", float),
}


@dataclass(frozen=True, slots=True)
class RequestRates:
    """How many requests a second somebody may send for long; 0: as many as they like."""

    address: float = 200.0  # one that asks, whoever it is; a proxy that is not named is one address
    caller: float = 50.0  # one user or token
    org: float = 200.0  # all users and tokens that are bound to one organisation

    def __post_init__(self) -> None:
        for name, rate in (("address", self.address), ("caller", self.caller), ("org", self.org)):
            if not 0 <= rate <= MOST_REQUEST_RATE:
                raise ConfigurationError(f"{_SETTINGS[name][0]}: is not between 0 and {MOST_REQUEST_RATE:,}")

    @classmethod
    def configured(cls, env: Mapping[str, str] | None = None) -> RequestRates:
        """As the environment says.

        >>> RequestRates.configured({"MAINSPRING_REQUESTS_PER_CALLER": "5"}).caller
        5.0
        """
        return cls(**changes(_SETTINGS, env))


class RequestPace:
    """So many requests a second for each name, with bursts; 0: as many as they like.

    >>> now = 0.0
    >>> pace = RequestPace(1, clock=lambda: now)
    >>> [pace.wait("ana") for _ in range(12)], pace.wait("ben")
    ([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1], 0)
    >>> now = 1.0
    >>> pace.wait("ana"), pace.wait("ana")
    (0, 1)
    """

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._each = 1 / per_second if per_second else 0.0
        self._clock = clock
        self._free: OrderedDict[Hashable, float] = OrderedDict()  # when what somebody has sent is forgotten

    def wait(self, name: Hashable) -> int:
        """Count a request; for how many seconds its sender should wait instead, or 0."""
        if not self._each:
            return 0
        now = self._clock()
        free = max(self._free.pop(name, now), now)
        over = round(free + self._each - now - REQUEST_BURST_S, 6)
        self._free[name] = free if over > 0 else free + self._each
        if len(self._free) > MOST_SENDERS:
            self._free.popitem(last=False)
        return math.ceil(over) if over > 0 else 0


class RequestPaces:
    """The paces of one server."""

    def __init__(self, rates: RequestRates) -> None:
        self._addresses, self._callers, self._orgs = map(RequestPace, (rates.address, rates.caller, rates.org))

    def of_address(self, scope: Scope) -> Response | None:
        """The answer to an address that sends too much, before anybody is asked who it is; None to others."""
        wait = self._addresses.wait(network_of((scope.get("client") or ("",))[0]))
        return refusal(429, "TOO_MANY_REQUESTS", f"{TOO_FAST}.", {"retry-after": str(wait)}) if wait else None

    def of_principal(self, who: Principal) -> int:
        """For how many seconds somebody should wait who sends too much, alone or with others of their organisation."""
        alone = self._callers.wait((who.actor_type, who.org, who.name))
        return alone or (0 if who.org is None else self._orgs.wait(who.org))


class Paced:
    """Knows whom another knows, and tells those to wait who ask too often."""

    def __init__(self, access: Authenticator, paces: RequestPaces) -> None:
        self._access, self._paces = access, paces

    async def principal(self, request: HTTPConnection) -> Principal | None:
        """Who asks; a 429 where they ask too often."""
        found = await self._access.principal(request)
        if found is not None and (wait := self._paces.of_principal(found)):
            raise HTTPException(429, TOO_FAST, {"retry-after": str(wait)})
        return found
