"""The target of a webhook: the one place where its URL is read.

Strict and pure. What two parsers could read in two ways is refused, not repaired; a refusal says what is wrong and does
not repeat the value, which may carry a password.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Final, NoReturn

from mainspring.contrib.webhooks import addresses
from mainspring.contrib.webhooks.addresses import Address
from mainspring.contrib.webhooks.policy import Policy
from mainspring.errors import ValidationError

MAX_URL: Final = 2048
MAX_HOST: Final = 253

_URL: Final = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<host>\[[^\[\]/?]*\]|[^\[\]/?:]*)(?P<port>:[^/?]*)?(?P<rest>[/?].*)?"
)
_VISIBLE: Final = re.compile(r"[\x21-\x7e]*")
_REST: Final = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*")
_LABEL: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORTS: Final = {"https": 443, "http": 80}

#: Names that mean this machine or this network, wherever they are asked for.
_LOCAL: Final = {
    *("localhost", "localdomain", "local", "internal", "intranet", "private", "corp", "home", "lan", "arpa"),
}
_METADATA: Final = {
    *("metadata", "metadata.google.internal", "metadata.goog", "metadata.azure.internal"),
    *("instance-data", "instance-data.ec2.internal"),
}


class TargetRefused(ValidationError):
    """A webhook may not be sent there; nothing was."""

    code = "WEBHOOK_TARGET_REFUSED"

    def __init__(self, reason: str) -> None:
        super().__init__(f"url: {reason}", field="url")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class WebhookTarget:
    """Where a webhook goes, in parts that nobody needs to read again."""

    scheme: str
    host: str  # a name in lower case, or an address without brackets
    port: int
    path: str  # with the query; as it was written
    address: Address | None  # the host, if it is an address

    @property
    def tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if isinstance(self.address, IPv6Address) else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The whole, in its one form: the scheme and the host in lower case, no port that goes without saying."""
        return f"{self.scheme}://{self.authority}{self.path}"


def check(url: str, policy: Policy) -> WebhookTarget:
    """Read a URL, or refuse it.

    >>> check("https://hooks.example.com/in?x=1", Policy()).host
    'hooks.example.com'
    >>> check("https://127.1/", Policy())
    Traceback (most recent call last):
    mainspring.contrib.webhooks.target.TargetRefused: url: the host is a number, and no plain IPv4 address
    """
    if not isinstance(url, str) or not url:
        _refuse("is missing")
    if len(url) > MAX_URL:
        _refuse(f"is longer than {MAX_URL} characters")
    if not _VISIBLE.fullmatch(url):
        _refuse("has blanks, control characters or letters outside ASCII; a name can be written in its xn-- form")
    for sign, name in (("\\", "a backslash"), ("#", "a fragment")):
        if sign in url:
            _refuse(f"has {name}")
    found = _URL.fullmatch(url)
    if not found:
        _refuse("is not a URL such as https://example.com/webhooks")
    if "@" in found["host"] + (found["port"] or ""):
        _refuse("has a user name or password")
    scheme = found["scheme"].lower()
    if scheme not in (("https",) if policy.https else _PORTS):
        _refuse("must begin with https://" if policy.https else "must begin with https:// or http://")
    path = found["rest"] or "/"
    if not _REST.fullmatch(path):
        _refuse("has signs in its path or query that must be written with a percent sign")
    path = path if path.startswith("/") else f"/{path}"
    host, address = _host(found["host"], policy)
    return WebhookTarget(scheme, host, _port(found["port"], scheme, policy), path, address)


def _host(text: str, policy: Policy) -> tuple[str, Address | None]:
    if text.startswith("["):
        address = addresses.parse(text[1:-1]) if "%" not in text else None
        if not isinstance(address, IPv6Address):
            _refuse("the host in brackets is no plain IPv6 address")
        return _allowed(address, policy)
    name = text.lower()
    if not name or len(name) > MAX_HOST:
        _refuse(f"the host is missing or longer than {MAX_HOST} characters")
    if name.endswith("."):
        _refuse("the host ends with a dot")
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):  # what resolvers would read as an IPv4 address, in one of its many forms
        address = addresses.parse(name)
        if address is None:
            _refuse("the host is a number, and no plain IPv4 address")
        return _allowed(address, policy)
    if not all(_LABEL.fullmatch(label) for label in labels):
        _refuse("the host is no name of letters, digits, hyphens and dots")
    if name in _METADATA:
        _refuse("the host is a cloud's metadata service")
    # Where a server's configuration opens networks of its own, their addresses decide, not their names.
    if not policy.allow and (len(labels) == 1 or labels[-1] in _LOCAL):
        _refuse("the host is a name of a local network")
    return name, None


def _allowed(address: Address, policy: Policy) -> tuple[str, Address]:
    if reason := policy.refusal(address):
        _refuse(f"the address may not be reached: {reason}")
    return str(address), address


def _port(text: str | None, scheme: str, policy: Policy) -> int:
    if text is None:
        port = _PORTS[scheme]
    else:
        if not re.fullmatch(r":[1-9][0-9]{0,4}", text):
            _refuse("the port is no number from 1 to 65535")
        port = int(text[1:])
    if port not in policy.ports:
        _refuse(f"port {port} is not open to webhooks")
    return port


def _refuse(reason: str) -> NoReturn:
    raise TargetRefused(reason)
