"""Error texts without secrets: masked, bounded, and fit for PostgreSQL.

Masking looks for names (`password=…`) and for shapes (`sk_live_…`), so it may hide too much; that is the safe side.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

MOST_TEXT_BYTES: Final = 8192  # bytes
SECRET_MARGIN: Final = (
    4096  # characters beyond what is kept that are looked through: as long as a secret in quotes may be
)
MASK: Final = "***"

_WORDS: Final = (
    r"(?:password|passwd|passphrase|pwd|secret|token|credentials?"
    r"|(?:api|access|private|secret|signing|encryption|master)[_-]?key)"
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
#: Those of other providers: masked wherever they are read, but not looked for in every payload, which costs time.
_OTHERS: Final = re.compile(
    r"(?<![A-Za-z0-9])(?:gh[oprsu]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abeoprs]-[\w-]{10,}"
    r"|AIza[\w-]{30,}|ya29\.[\w-]{20,}|SG\.[\w-]{16,}\.[\w-]{16,}|npm_[A-Za-z0-9]{30,}|ASIA[0-9A-Z]{16}\b"
    r"|mst_[0-9a-f]{12}\.[\w-]{20,}|sk-(?:proj|ant)-[\w-]{16,}|sk-[A-Za-z0-9]{32,}|AWS4-HMAC-SHA256 [^\r\n\"']+)"
    r"|-----BEGIN PGP PRIVATE KEY BLOCK-----(?:.*?-----END PGP PRIVATE KEY BLOCK-----|.*)",
    re.DOTALL,
)
# Every repetition is bounded or cannot overlap its neighbour, so a hostile text costs linear time. Where nothing that
# was passed can be what is looked for, a repetition gives nothing back (`++`): else it would be tried at every length.
# A password with a slash is no address any more, but is repeated by who refuses it; a port is no password.
_LOGIN: Final = re.compile(r"(?<=://)([^\s/:@]{0,256}):(?:[^\s/]{1,256}@|(?!\d{1,5}/)[^\s\"'][^\s\"'@]{0,255}+@)")
_SCHEME: Final = re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{6,}", re.IGNORECASE)
#: Headers that are secret as a whole, whatever their parts are called.
_AUTHORIZATION: Final = re.compile(
    rf"""(authorization\s{{0,8}}[:=]\s{{0,8}})(?!{re.escape(MASK)}|[\\"'(\[{{])
         (?: (?:digest|signature|aws4-hmac-sha256)\b[^\r\n]+ | (?:[\w-]{{1,40}}[ ]{{1,8}})?[^\s"',;]+ )""",
    re.IGNORECASE | re.VERBOSE,
)
_COOKIE: Final = re.compile(
    rf"(\bcookie\s{{0,8}}[:=]\s{{0,8}})(?!{re.escape(MASK)})[^\s\"'(\[{{][^\r\n\"']*", re.IGNORECASE
)
_NAMED: Final = re.compile(
    rf"""({_WORDS}|authorization|cookie|sess(?:ion)?id)  # the name, or its end
         # as in JSON, a Python dict, a header, a DSN or a query
         (\\*["']?\s{{0,8}}[:=]\s{{0,8}}(?:[bru]{{1,2}}(?=\\*["']))?)
         (?: (\\*["']).{{0,4096}}?(?<!\\)\3         # a quoted value; a quote inside it has a backslash more
           | \\*["'][^\n]*                           # one whose end was cut off
           | [\w.]{{0,40}}+[(\[{{][^\n)\]}}]{{0,512}}+[)\]}}]+  # several, or one inside of an object that hides it
           | [\w.]{{0,40}}+[(\[{{]\s{{0,8}}[bru]{{0,2}}\\*["'][^\n]*
           # an unquoted one; a comma is a part of it unless another name follows
           | (?!{re.escape(MASK)})(?:[^\s,;&"'(){{}}\[\]]|[,;&"'(\[{{](?=\w)(?![\w.%-]{{0,64}}\s{{0,3}}[:=]))+ )""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
#: The same as a browser sends it, as a pair of a list of headers, as an element, and as an option of a command.
_ENCODED: Final = re.compile(
    rf"({_WORDS}(?:%22|%27)?(?:%20|\+){{0,4}}%3[ad](?:%20|\+){{0,4}}(?:%22|%27)?)(?!{re.escape(MASK)})"
    r"(?:(?!%2[267c])[^\s&\"'])+",
    re.IGNORECASE,
)
_PAIR: Final = re.compile(
    rf"""([(\[][bru]{{0,2}}(\\*["'])[\w-]{{0,40}}(?:{_WORDS}|authorization|cookie)\2,\s{{0,8}}[bru]{{0,2}})(\\*["'])"""
    r".{0,4096}?(?<!\\)\3",
    re.IGNORECASE | re.DOTALL,
)
_ELEMENT: Final = re.compile(rf"(<[\w:.-]{{0,40}}{_WORDS}>)[^<]{{1,4096}}", re.IGNORECASE)
_OPTION: Final = re.compile(rf"((?<![\w-])--[\w-]{{0,40}}{_WORDS}\s)[^\s-]\S*", re.IGNORECASE)
#: What makes a signed link one.
_SIGNED: Final = re.compile(
    rf"([?&](?:x-(?:amz|goog)-(?:signature|credential|security-token)|sig|signature)=)(?!{re.escape(MASK)})[^&\s\"']+",
    re.IGNORECASE,
)
_EMAIL: Final = re.compile(r"(?<![\w.%+-])([\w%+-])[\w.%+-]{0,63}@((?:[\w-]{1,63}\.){1,8}[A-Za-z]{2,24})\b")
# NUL and lone surrogates PostgreSQL cannot store; the other control characters would drive a terminal.
#: What a secret may go on with that is longer than the margin: the end of a token, or of a key in lines.
_RUN: Final = re.compile(r"[A-Za-z0-9+/=_.~\\\r\n-]*")
_UNFIT: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


def names_secret(name: str) -> bool:
    """Whether a field's name ends like the name of a secret.

    >>> [names_secret(name) for name in ("stripe_secret", "accessToken", "token_count")]
    [True, True, False]
    """
    return _SECRET_NAME.search(name) is not None


def sanitize(text: str, limit: int = MOST_TEXT_BYTES) -> str:
    """The text with secrets and addresses masked, at most `limit` bytes long.

    >>> sanitize("could not log in with password=hunter2 as jane@example.com")
    'could not log in with password=*** as j***@example.com'
    """
    if len(text) <= limit + 2 * SECRET_MARGIN:
        return _cut(_masked(text), limit)
    # Looking through a huge text costs time, and only its ends are kept. What is cut here may be cut in the middle of a
    # secret, which is then not seen as one: so a margin is looked through with each end, and left out.
    part = limit // 2 + SECRET_MARGIN
    head, tail = text[:part], text[-part:]
    tail = tail[_RUN.match(tail).end() :]  # type: ignore[union-attr]  # it matches nothing, too
    head, tail = _masked(head)[:-SECRET_MARGIN], _masked(tail)[SECRET_MARGIN:]
    return _joined(head.encode(), tail.encode(), len(text.encode("utf-8", "surrogatepass")), limit)


def _masked(text: str) -> str:
    return _EMAIL.sub(rf"\1{MASK}@\2", mask(_UNFIT.sub("�", text)))


def mask(text: str) -> str:
    """The text with secrets masked, else as it is.

    >>> mask("jane@example.com asked https://ada:pw@example.com")
    'jane@example.com asked https://ada:***@example.com'
    """
    text = _SCHEME.sub(rf"\1 {MASK}", mask_shapes(text))
    for place in (_AUTHORIZATION, _COOKIE, _PAIR, _ENCODED, _ELEMENT, _OPTION, _SIGNED):
        text = place.sub(rf"\1{MASK}", text)
    return _NAMED.sub(rf"\1\2{MASK}", text)


def mask_shapes(text: str) -> str:
    """The text without what has the shape of a secret; names are left alone, for texts of our own that hold them.

    >>> mask_shapes("payload.token: looks like a secret, unlike https://ada:pw@example.com")
    'payload.token: looks like a secret, unlike https://ada:***@example.com'
    """
    for shape in (CREDENTIAL, _OTHERS):
        text = shape.sub(MASK, text)
    return _LOGIN.sub(rf"\1:{MASK}@", text)


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
    return text if len(raw) <= limit else _joined(raw, raw, len(raw), limit)


def _joined(head: bytes, tail: bytes, size: int, limit: int) -> str:
    marker = f" […{size - limit} bytes cut…] "
    half = max((limit - len(marker.encode())) // 2, 0)
    # A character that straddles the cut is dropped.
    return head[:half].decode("utf-8", "ignore") + marker + tail[max(len(tail) - half, 0) :].decode("utf-8", "ignore")
