"""The secrets that callers show: that of the run endpoint, and the tokens of an application's routes."""

from __future__ import annotations

import hmac
import os
from collections.abc import Mapping
from hashlib import sha256

from mainspring.config import cron_secret
from mainspring.contrib.secret import Secret
from mainspring.errors import ConfigurationError

SHORTEST_SECRET = 16


class HeaderSecret(Secret):
    """A secret that is long enough, fits into a header, and is compared in constant time.

    >>> secret = HeaderSecret("correct horse battery")
    >>> secret.matches("correct horse battery"), secret.matches(""), secret.matches(None)
    (True, False, False)
    """

    __slots__ = ("_digest",)

    def __init__(self, value: str, name: str = "secret") -> None:
        if len(value) < SHORTEST_SECRET:
            raise ConfigurationError(f"{name}: must have at least {SHORTEST_SECRET} characters")
        if not value.isascii() or not value.isprintable() or value != value.strip():
            raise ConfigurationError(
                f"{name}: must be printable ASCII without spaces around it: it travels in a header"
            )
        super().__init__(value)
        self._digest = _digest(value)

    def matches(self, given: str | None) -> bool:
        """Whether somebody knows it. Digests are compared: not even its length can be measured."""
        return hmac.compare_digest(self._digest, _digest(given or ""))


def known_secret(given: str | None = None) -> HeaderSecret | None:
    """The secret that is given, or CRON_SECRET; None where nobody has set one."""
    if given is not None:
        return HeaderSecret(given)
    found = cron_secret()
    return None if found is None else HeaderSecret(found, "CRON_SECRET")


def known_token(setting: str, given: Mapping[str, str], path: str, *, needed: bool = True) -> HeaderSecret | None:
    """The token that opens a route: given, or from the environment; where one is needed, nothing is served without."""
    found = given.get(setting, os.environ.get(setting))
    if found is None and needed:
        raise ConfigurationError(f"{setting}: is not set, and {path} is for callers that know it")
    return None if found is None else HeaderSecret(found, setting)


def _digest(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogatepass")).digest()
