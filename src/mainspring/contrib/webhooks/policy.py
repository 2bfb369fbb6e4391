"""What outgoing webhooks may reach. The server's configuration says it, never an organisation."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network

from mainspring.contrib.webhooks import addresses
from mainspring.contrib.webhooks.addresses import Address
from mainspring.errors import ConfigurationError

Network = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class Policy:
    """What a webhook may reach: HTTPS on port 443 at public addresses, unless it says otherwise.

    >>> Policy(allow=("10.20.0.0/16",)).refusal(addresses.parse("10.20.0.7")) is None
    True
    """

    https: bool = True  # False: plain HTTP as well
    ports: Collection[int] = (443,)
    allow: Sequence[Network | str] = ()  # networks that are not public, and yet may be reached
    deny: Sequence[Network | str] = ()  # networks that are public, and yet may not: say, those of the own house

    def __post_init__(self) -> None:
        if not self.ports or not all(isinstance(port, int) and 1 <= port <= 65535 for port in self.ports):
            raise ConfigurationError("ports: is not a list of numbers from 1 to 65535")
        for name in ("allow", "deny"):
            try:
                networks = tuple(ip_network(network) for network in getattr(self, name))
            except ValueError:
                raise ConfigurationError(f"{name}: is not a list of networks such as 10.20.0.0/16") from None
            object.__setattr__(self, name, networks)
        if any(network.prefixlen == 0 for network in _networks(self.allow)):
            raise ConfigurationError("allow: a network of every address would open everything")

    @classmethod
    def local(cls) -> Policy:
        """For development and tests: this machine only becomes reachable too, by HTTP and at any port."""
        return cls(https=False, ports=range(1, 65536), allow=("127.0.0.0/8", "::1/128"))

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> Policy:
        """What the environment says, or the strict default.

        >>> Policy.from_env({"MAINSPRING_WEBHOOK_PORTS": "443,8443"}).ports
        (443, 8443)
        """
        env = os.environ if env is None else env
        said = (env.get("MAINSPRING_WEBHOOK_HTTPS") or "on").strip().lower()
        if said not in ("on", "off"):
            raise ConfigurationError("MAINSPRING_WEBHOOK_HTTPS: is not on or off")
        https = said == "on"
        ports: Collection[int] = (443,) if https else (443, 80)
        if text := env.get("MAINSPRING_WEBHOOK_PORTS"):
            parts = [part.strip() for part in text.split(",")]
            if not all(part.isascii() and part.isdecimal() and len(part) <= 5 for part in parts):
                raise ConfigurationError("MAINSPRING_WEBHOOK_PORTS: is not a list of numbers such as 443,8443")
            ports = tuple(int(part) for part in parts)
        allow, deny = (
            tuple(part.strip() for part in (env.get(name) or "").split(",") if part.strip())
            for name in ("MAINSPRING_WEBHOOK_ALLOW", "MAINSPRING_WEBHOOK_DENY")
        )
        try:
            return cls(https=https, ports=ports, allow=allow, deny=deny)
        except ConfigurationError as error:
            name, _, problem = str(error).partition(":")
            raise ConfigurationError(f"MAINSPRING_WEBHOOK_{name.upper()}:{problem}") from None

    def refusal(self, address: Address) -> str | None:
        """Why this address may not be reached, or None; cloud metadata never may, whatever is allowed."""
        inner = addresses.carried(address)
        if any(one in network for network in _networks(self.deny) for one in (address, inner) if one):
            return "closed by configuration"
        if any(address in network for network in _networks(self.allow)):
            return addresses.metadata(address)
        return addresses.refusal(address)


def _networks(given: Sequence[Network | str]) -> Iterator[Network]:
    return (network for network in given if not isinstance(network, str))  # once it is made, none is a text
