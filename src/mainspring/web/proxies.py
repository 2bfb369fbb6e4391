"""Proxies that are named: whom they bring, and whether it was by TLS, is believed of them and of nobody else."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.types import Scope

from mainspring.errors import ConfigurationError

#: In the scope of a request that a named proxy has brought.
BY_PROXY = "mainspring.by_proxy"
#: Who brings one of these came through a proxy, which may stand on this very machine.
FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip")
_SECURE = {"http": "https", "ws": "wss"}


class TrustedProxies:
    """The addresses and networks of proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed.

    >>> proxies = TrustedProxies(["10.0.0.0/8"])
    >>> [proxies.trust(address) for address in ("10.1.2.3", "::ffff:10.1.2.3", "203.0.113.9", "a name")]
    [True, True, False, False]
    """

    def __init__(self, networks: Iterable[str] = ()) -> None:
        self._networks = [_network(text) for text in networks]

    def __bool__(self) -> bool:
        return bool(self._networks)

    def trust(self, host: str) -> bool:
        """Whether an address is one of theirs."""
        found = address_of(host)
        return found is not None and any(found in network for network in self._networks)

    def see_through(self, scope: Scope) -> None:
        """Show a request as the last hop made it that is no named proxy."""
        host = (scope.get("client") or ("",))[0]
        if BY_PROXY in scope:  # an application around ours has done it
            return
        scope[BY_PROXY] = self.trust(host)
        if not scope[BY_PROXY]:
            return
        headers = Headers(scope=scope)
        for hop in reversed(_listed(headers, "x-forwarded-for")):
            if (found := address_of(hop)) is None:
                break  # what stands there is nobody's address: the proxy before it is all that is known
            host = str(found)
            if not self.trust(host):
                break
        schemes = [one.lower() for one in _listed(headers, "x-forwarded-proto")]
        secure = bool(schemes) and all(one in ("https", "wss") for one in schemes)
        scope["client"] = (host, 0)
        if secure:
            scope["scheme"] = _SECURE.get(scope.get("scheme", "http"), scope.get("scheme", "http"))


def address_of(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """An address, with or without its port; None: it is none.

    >>> [str(address_of(text)) for text in ("203.0.113.9:80", "[2001:db8::1]:80", "::ffff:10.0.0.1", "unknown")]
    ['203.0.113.9', '2001:db8::1', '10.0.0.1', 'None']
    """
    bare = text.strip()
    if bare.startswith("["):
        bare = bare[1:].partition("]")[0]
    elif bare.count(":") == 1:
        bare = bare.partition(":")[0]
    try:
        found = ipaddress.ip_address(bare)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def network_of(address: str) -> str:
    """By what requests of an address are counted: one house has a whole /64 of version 6.

    >>> network_of("2001:db8::1:2:3"), network_of("203.0.113.9")
    ('2001:db8::/64', '203.0.113.9')
    """
    found = address_of(address)
    return str(ipaddress.ip_network((found, 64), strict=False)) if found and found.version == 6 else address


def is_direct(scope: Scope) -> bool:
    """Whether a request comes from this machine, and through no proxy, named or not."""
    headers = Headers(scope=scope)
    found = address_of((scope.get("client") or ("",))[0])
    by_somebody = scope.get(BY_PROXY, False) or any(name in headers for name in FORWARDED)
    return found is not None and found.is_loopback and not by_somebody


def _listed(headers: Headers, name: str) -> list[str]:
    return [part.strip() for value in headers.getlist(name) for part in value.split(",") if part.strip()]


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text.strip())
    except ValueError:
        raise ConfigurationError("proxy-headers: is not a list of addresses and networks, such as 10.0.0.0/8") from None
