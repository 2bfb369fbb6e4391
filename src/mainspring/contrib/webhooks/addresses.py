"""Addresses that no webhook may reach: our own list, as `ipaddress.is_global` calls several of them global.

Pure: no resolver, no clock. An IPv6 address that carries an IPv4 one is judged by what it carries, and most of those
forms are refused whatever they carry: nobody receives webhooks there.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

Address = IPv4Address | IPv6Address

_METADATA: Final = frozenset(
    ip_address(text)
    for text in (
        "169.254.169.254",  # Amazon, Google, Azure, Oracle, DigitalOcean and others
        "169.254.170.2",  # Amazon's containers: credentials of a task
        "169.254.170.23",  # Amazon's pods: credentials of a pod
        "168.63.129.16",  # Azure's agent: looks like a public address
        "192.0.0.192",  # Oracle, of old
        "100.100.100.200",  # Alibaba
        "fd00:ec2::254",  # Amazon over IPv6
        "fd00:ec2::23",
        "fd20:ce::254",  # Google over IPv6
    )
)
_V4: Final = tuple(
    (IPv4Network(network), reason)
    for network, reason in (
        ("0.0.0.0/8", "unspecified"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "shared by a carrier"),
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "for documentation"),
        ("192.88.99.0/24", "reserved"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "for benchmarks"),
        ("198.51.100.0/24", "for documentation"),
        ("203.0.113.0/24", "for documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
    )
)
_V6: Final = tuple(
    (IPv6Network(network), reason)
    for network, reason in (
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("::ffff:0:0/96", "an IPv4 address inside"),  # mapped
        ("::/96", "an IPv4 address inside"),  # compatible
        ("64:ff9b:1::/48", "an IPv4 address inside"),  # a translator of one's own: nobody knows what it reaches
        ("2002::/16", "an IPv4 address inside"),  # 6to4
        ("2001::/32", "an IPv4 address inside"),  # Teredo
        ("2001::/23", "reserved"),
        ("2001:db8::/32", "for documentation"),
        ("3fff::/20", "for documentation"),
        ("100::/64", "discarded"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
    )
)
_GLOBAL: Final = IPv6Network("2000::/3")  # all that is handed out; the rest is not, whatever it may become
_TRANSLATED: Final = IPv6Network("64:ff9b::/96")  # where only IPv6 is spoken, public IPv4 receivers look so


def parse(text: str) -> Address | None:
    """The address that a text is in its one plain form; None for anything else.

    >>> parse("8.8.8.8"), parse("0x08.8.8.8")
    (IPv4Address('8.8.8.8'), None)
    """
    try:
        return ip_address(text)
    except ValueError:
        return None


def carried(address: Address) -> IPv4Address | None:
    """The IPv4 address that an IPv6 one carries, or None.

    >>> carried(IPv6Address("64:ff9b::7f00:1"))
    IPv4Address('127.0.0.1')
    """
    if isinstance(address, IPv4Address):
        return None
    low = IPv4Address(int(address) & 0xFFFF_FFFF)
    if address.ipv4_mapped or address in _TRANSLATED:
        return low
    if address.sixtofour:
        return address.sixtofour
    if address.teredo:
        return address.teredo[1]  # the client's: the server is the other
    return low if int(address) >> 32 == 0 and int(address) > 1 else None


def metadata(address: Address) -> str | None:
    """Why the address may never be reached, whatever a server's configuration allows; None for most."""
    plain = IPv6Address(int(address)) if isinstance(address, IPv6Address) else address  # without its zone
    return "cloud metadata" if plain in _METADATA or carried(plain) in _METADATA else None


def refusal(address: Address) -> str | None:
    """Why a webhook may not reach this address; None if it is a public one.

    >>> refusal(IPv4Address("10.1.2.3")), refusal(IPv6Address("64:ff9b::a01:203")), refusal(IPv4Address("8.8.8.8"))
    ('private', 'private', None)
    """
    if reason := metadata(address):
        return reason
    if isinstance(address, IPv4Address):
        return next((reason for network, reason in _V4 if address in network), None)
    if address.scope_id is not None:
        return "of one network card"
    inner = carried(address)
    if inner is not None and (reason := refusal(inner)):
        return reason
    if address in _TRANSLATED:
        return None
    reason = next((reason for network, reason in _V6 if address in network), None)
    return reason or (None if address in _GLOBAL else "reserved")
