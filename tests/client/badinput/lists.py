"""The bad-input lists of RELIABILITY 3.1 and 3.2: what is refused everywhere, and what is odd but kept exactly."""

from __future__ import annotations

ODD_BUT_FINE = [
    "'; DROP TABLE mainspring.job; --",
    '" OR 1=1',
    "%s",
    "%(jobs)s",
    "%",
    "100%_",
    "{}",
    "{schema}",
    "$1",
    "$$",
    ":name",
    "::text",
    "\\'",
    "ends with \\",
    "(a+)+$",
    "<script>alert(1)</script>",
    '"><img onerror=x>',
    "javascript:alert(1)",
    "=cmd|' /C calc'!A0",
    "../../etc/passwd",
    "os.system",
    "__init__",
    "null",
    "default",
    "public",
    "Default",
    "\u0440\u0430ypal",  # Cyrillic look-alikes
    "e\u0301",  # not normalised: é in two characters
    "\u00e9",
    "ü" * 63,
    "😀",
    " leading and trailing ",
]
#: Refused in every name, id, key and reason.
UNFIT = {
    "empty": "",
    "blank": " ",
    "NUL": "a\0b",
    "newline": "a\nb",
    "carriage return": "a\rb",
    "terminal code": "\x1b[31m",
    "right to left": "\u202eevil",
    "lone surrogate": "\ud800",
    "reversed surrogates": "\udfff\ud800",
    "a megabyte": "x" * 1_000_000,
}
#: The texts of a job.
FIELDS = ["task", "queue", "org_id", "actor_id", "request_id", "correlation_id", "key"]


def nested(depth: int) -> bytes:
    return b'{"value":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


#: Payloads that are refused, as they would be sent.
BAD_PAYLOADS = {
    "NUL in a value": rb'{"value":"\u0000"}',
    "NUL in a key": rb'{"a\u0000b":1}',
    "raw NUL": b'{"value":"\0"}',
    "high surrogate": rb'{"value":"\ud800"}',
    "low surrogate": rb'{"value":"\udc00"}',
    "reversed pair": rb'{"value":"\udc00\ud800"}',
    "overlong UTF-8": b'{"value":"\xc0\xaf"}',
    "invalid byte": b'{"value":"\xff"}',
    "UTF-16": '{"value":1}'.encode("utf-16"),
    "UTF-8 with BOM": b'\xef\xbb\xbf{"value":1}',
    "NaN": b'{"value":NaN}',
    "Infinity": b'{"value":Infinity}',
    "-Infinity": b'{"value":-Infinity}',
    "1e400": b'{"value":1e400}',
    "5,000 digits": b'{"value":' + b"9" * 5000 + b"}",
    "a key twice": b'{"value":1,"value":2}',
    "a key twice, further in": b'{"value":[{"a":1,"b":{"c":1, "c" : 1}}]}',
    "a key twice, one of them escaped": rb'{"a":1,"\u0061":2}',
    "depth 6,000": nested(6000),
    "depth 1,000,000": nested(1_000_000),
    "depth 65": nested(65),
    "depth 1,000": nested(1000),
    "depth 100,000": nested(100_000),
    "too large": b'{"value":"' + b"x" * 2_000_000 + b'"}',
    "scalar": b"7",
    "null": b"null",
    "array": b"[]",
    "empty": b"",
    "cut off": b'{"value":1',
    "two values": b"{}{}",
    "pickle": b"\x80\x04K\x07.",
    "secret": b'{"password":"hunter2"}',
}
