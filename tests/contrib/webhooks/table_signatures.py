"""Signatures, good and bad. The vectors are those that the Standard Webhooks project publishes with its libraries."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, NamedTuple

#: secret, id, seconds, body → signature
VECTORS: Final = [
    (
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1614265330,
        b'{"test": 2432232314}',
        "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    ),
]

SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER: Final = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"  # of another organisation
NOW: Final = datetime(2026, 3, 2, 12, tzinfo=UTC)
SECONDS: Final = int(NOW.timestamp())
BODY: Final = b'{"event_id": "e1", "n": 1.0}'

Headers = dict[str, str]


class Case(NamedTuple):
    """A good message, changed."""

    change: Callable[[Headers], Headers]
    body: bytes = BODY
    secret: str = SECRET
    seconds: int = SECONDS  # when it was signed


def _set(name: str, value: str) -> Callable[[Headers], Headers]:
    return lambda headers: {**headers, name: value}


def _without(name: str) -> Callable[[Headers], Headers]:
    return lambda headers: {key: value for key, value in headers.items() if key != name}


def _signature(change: Callable[[str], str]) -> Callable[[Headers], Headers]:
    return lambda headers: {**headers, "webhook-signature": change(headers["webhook-signature"])}


def _same(headers: Headers) -> Headers:
    return headers


_WRONG: Final = "v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc="

ACCEPTED: Final = {
    "as it is": Case(_same),
    "names in upper case": Case(lambda headers: {name.upper(): value for name, value in headers.items()}),
    "299 s old": Case(_same, seconds=SECONDS - 299),
    "300 s old": Case(_same, seconds=SECONDS - 300),
    "299 s ahead": Case(_same, seconds=SECONDS + 299),
    "300 s ahead": Case(_same, seconds=SECONDS + 300),
    "after others": Case(_signature(lambda text: f"{_WRONG} v2,xyz v1a,abc {text} {_WRONG}")),
    "the tenth": Case(_signature(lambda text: f"{_WRONG} " * 9 + text)),
    "a secret without its prefix": Case(_same, secret=SECRET.removeprefix("whsec_")),
}

REFUSED: Final = {
    "no id": Case(_without("webhook-id")),
    "no time": Case(_without("webhook-timestamp")),
    "no signature": Case(_without("webhook-signature")),
    "an empty id": Case(_set("webhook-id", "")),
    "an empty time": Case(_set("webhook-timestamp", "")),
    "an empty signature": Case(_set("webhook-signature", "")),
    "another id": Case(_set("webhook-id", "msg_2")),
    "an id with a line break": Case(_set("webhook-id", "msg_1\r\nx: y")),
    "an id with a dot": Case(_set("webhook-id", "msg.1")),
    "another time": Case(_set("webhook-timestamp", str(SECONDS + 1))),
    "301 s old": Case(_same, seconds=SECONDS - 301),
    "301 s ahead": Case(_same, seconds=SECONDS + 301),
    "a day old": Case(_same, seconds=SECONDS - 86_400),
    "a time with a blank": Case(_set("webhook-timestamp", f" {SECONDS}")),
    "a time with a sign": Case(_set("webhook-timestamp", f"+{SECONDS}")),
    "a time that is a word": Case(_set("webhook-timestamp", "now")),
    "a time that is negative": Case(_set("webhook-timestamp", "-1")),
    "a time that is a fraction": Case(_set("webhook-timestamp", f"{SECONDS}.0")),
    "a time with an exponent": Case(_set("webhook-timestamp", "1e9")),
    "a time in other digits": Case(_set("webhook-timestamp", "\u0661\u0667\u0667")),
    "a time of 2^63": Case(_set("webhook-timestamp", str(2**63))),
    "a time of the year 9999": Case(_set("webhook-timestamp", "253402300799")),
    "a time of a thousand digits": Case(_set("webhook-timestamp", "9" * 1000)),
    "not a number": Case(_set("webhook-timestamp", "nan")),
    "version 0": Case(_signature(lambda text: text.replace("v1,", "v0,"))),
    "version 2": Case(_signature(lambda text: text.replace("v1,", "v2,"))),
    "the asymmetric version": Case(_signature(lambda text: text.replace("v1,", "v1a,"))),
    "no version": Case(_signature(lambda text: text.removeprefix("v1,"))),
    "a version alone": Case(_set("webhook-signature", "v1,")),
    "a version in upper case": Case(_signature(lambda text: text.replace("v1,", "V1,"))),
    "cut": Case(_signature(lambda text: text[:20])),
    "cut by its padding": Case(_signature(lambda text: text.rstrip("="))),
    "longer": Case(_signature(lambda text: text + "=")),
    "with a blank inside": Case(_signature(lambda text: text[:20] + " " + text[20:])),
    "with a comma more": Case(_signature(lambda text: text + ",")),
    "with a tab before": Case(_signature(lambda text: "\t" + text)),
    "in hexadecimal": Case(_set("webhook-signature", "v1," + "ab" * 32)),
    "of another": Case(_set("webhook-signature", _WRONG)),
    "not ASCII": Case(_set("webhook-signature", "v1,\u00e9\ud800")),
    "the eleventh": Case(_signature(lambda text: f"{_WRONG} " * 10 + text)),
    "ten thousand wrong ones": Case(_signature(lambda text: f"{_WRONG} " * 10_000)),
    "a body with another byte": Case(_same, body=BODY.replace(b"1.0", b"1.1")),
    "a body written again": Case(_same, body=b'{"event_id":"e1","n":1.0}'),
    "a body with a line break more": Case(_same, body=BODY + b"\n"),
    "an empty body": Case(_same, body=b""),
    "the secret of another organisation": Case(_same, secret=OTHER),
}
