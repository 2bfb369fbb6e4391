"""Error texts without secrets: masked, bounded, and fit for PostgreSQL.

Masking looks for names (`password=…`) and for shapes (`sk_live_…`), so it may hide too much; that is the safe side.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

LIMIT: Final = 8192  # bytes
MASK: Final = "***"

_WORDS: Final = (
    r"(?:password|passwd|passphrase|pwd|secret|token|credentials?"
    r"|(?:api|access|private|secret|signing|encryption)[_-]?key)"
)
_SECRET_NAME: Final = re.compile(rf"{_WORDS}$", re.IGNORECASE)
#: A value that has the shape of a credential: Stripe's keys, a JSON web token, an AWS key, a private key.
CREDENTIAL: Final = re.compile(
    r"(?<![A-Za-z0-9])(?:[sr]k_(?:live|test)_|whsec_)[A-Za-z0-9+/=_-]{8,}"
    r"|(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"
    r"|\bAKIA[0-9A-Z]{16}\b"
    r"|-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?:.*?-----END [A-Z ]{0,30}PRIVATE KEY-----|.*)",
    re.DOTALL,
)
# Every repetition is bounded or cannot overlap its neighbour, so a hostile text costs linear time.
_LOGIN: Final = re.compile(r"(?<=://)([^\s/:@]{0,256}):[^\s/]{1,256}@")
_SCHEME: Final = re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{6,}", re.IGNORECASE)
_NAMED: Final = re.compile(
    rf"""({_WORDS}|authorization)                   # the name, or its end
         (\\*["']?\s{{0,8}}[:=]\s{{0,8}})            # as in JSON, a Python dict, a header, a DSN or a query
         (?: (\\*["']).{{0,4096}}?\3                 # a quoted value
           | \\*["'][^\n]*                           # one whose end was cut off
           | (?!{re.escape(MASK)})[^\s,;&"'(){{}}\[\]]+ )""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_EMAIL: Final = re.compile(r"(?<![\w.%+-])([\w%+-])[\w.%+-]{0,63}@((?:[\w-]{1,63}\.){1,8}[A-Za-z]{2,24})\b")
# NUL and lone surrogates PostgreSQL cannot store; the other control characters would drive a terminal.
_UNFIT: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


def names_secret(name: str) -> bool:
    """Whether a field's name ends like the name of a secret.

    >>> [names_secret(name) for name in ("stripe_secret", "accessToken", "token_count")]
    [True, True, False]
    """
    return _SECRET_NAME.search(name) is not None


def sanitize(text: str, limit: int = LIMIT) -> str:
    """The text with secrets and addresses masked, at most `limit` bytes long.

    >>> sanitize("could not log in with password=hunter2 as jane@example.com")
    'could not log in with password=*** as j***@example.com'
    """
    # Looking through a huge text costs time. What is left out here lies far inside what is cut below.
    text = _cut(text, 16 * limit)
    text = mask(_UNFIT.sub("�", text))
    text = _EMAIL.sub(rf"\1{MASK}@\2", text)
    return _cut(text, limit)


def mask(text: str) -> str:
    """The text with secrets masked, else as it is.

    >>> mask("jane@example.com asked https://ada:pw@example.com")
    'jane@example.com asked https://ada:***@example.com'
    """
    text = CREDENTIAL.sub(MASK, text)
    text = _LOGIN.sub(rf"\1:{MASK}@", text)
    text = _SCHEME.sub(rf"\1 {MASK}", text)
    return _NAMED.sub(rf"\1\2{MASK}", text)


def masked(value: Any) -> Any:
    """A value as JSON holds it, with secrets masked: fields by their names, texts by their shapes.

    >>> masked({"user": "ada", "api_key": "xyz", "note": "use sk_live_0123456789"})
    {'user': 'ada', 'api_key': '***', 'note': 'use ***'}
    """
    match value:
        case str():
            return mask(value)
        case Mapping():
            return {
                name: MASK if names_secret(str(name)) and inner not in (None, "") else masked(inner)
                for name, inner in value.items()
            }
        case list() | tuple():
            return [masked(inner) for inner in value]
        case None | bool() | int() | float():
            return value
        case _:
            return masked(msgspec.to_builtins(value, str_keys=True))


def _cut(text: str, limit: int) -> str:
    """Keep the beginning and the end: a message begins with what happened, a stack ends with it."""
    if len(text) <= limit // 4:  # even at four bytes a character
        return text
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) <= limit:
        return text
    marker = f" […{len(raw) - limit} bytes cut…] "
    half = max((limit - len(marker.encode())) // 2, 0)
    head, tail = raw[:half], raw[len(raw) - half :]
    # A character that straddles the cut is dropped.
    return head.decode("utf-8", "ignore") + marker + tail.decode("utf-8", "ignore")
