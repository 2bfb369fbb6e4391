"""Headers of a webhook's request: none that could end a line, frame the body, or pretend to be ours."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from mainspring.errors import ValidationError

MOST_VERIFIED_HEADERS: Final = 50
LARGEST_HEADERS: Final = 8192  # bytes, names and values of all

_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_VALUE: Final = re.compile(r"(?:[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?)?")
#: What the transport says itself: how long the body is, to whom it goes, and that nothing is negotiated.
_FRAMING: Final = {
    *("accept-encoding", "connection", "content-length", "expect", "host", "keep-alive"),
    *("te", "trailer", "transfer-encoding", "upgrade"),
}
_OURS: Final = ("webhook-", "proxy-", "content-", "cookie")


def check(headers: Mapping[str, str]) -> None:
    """Refuse headers that no request may carry; a refusal names the header, not its value.

    >>> check({"Host": "example.com"})
    Traceback (most recent call last):
    mainspring.errors.ValidationError: headers: Host is set by the transport
    """
    if len(headers) > MOST_VERIFIED_HEADERS:
        raise ValidationError(f"headers: are more than {MOST_VERIFIED_HEADERS}", field="headers")
    size = 0
    for name, value in headers.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValidationError("headers: a name is empty, too long or has a wrong sign", field="headers")
        if not isinstance(value, str) or not _VALUE.fullmatch(value):
            raise ValidationError(f"headers: the value of {name} is no single line of ASCII", field="headers")
        if name.lower() in _FRAMING:
            raise ValidationError(f"headers: {name} is set by the transport", field="headers")
        size += len(name) + len(value)
    if size > LARGEST_HEADERS:
        raise ValidationError(f"headers: are larger than {LARGEST_HEADERS} bytes", field="headers")
    if len({name.lower() for name in headers}) < len(headers):
        raise ValidationError("headers: a name stands there twice", field="headers")


def check_custom(headers: Mapping[str, str]) -> None:
    """Refuse headers that an organisation may not add to those of its webhooks.

    >>> check_custom({"Webhook-Id": "msg_1"})
    Traceback (most recent call last):
    mainspring.errors.ValidationError: headers: Webhook-Id is not for endpoints to set
    """
    check(headers)
    for name in headers:
        if name.lower().startswith(_OURS):
            raise ValidationError(f"headers: {name} is not for endpoints to set", field="headers")
