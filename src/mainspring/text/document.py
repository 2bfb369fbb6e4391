"""The payload as a document: a JSON object that we can store, read back exactly, and show.

Bulk enqueue checks tens of thousands a second, so each check first asks a cheap question that clears nearly every one.
"""

from __future__ import annotations

import hashlib
import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec

from mainspring.errors import PayloadTooLarge, ValidationError
from mainspring.text.sanitize import CREDENTIAL, names_secret
from mainspring.text.texts import shown

if TYPE_CHECKING:
    from collections.abc import Collection
    from uuid import UUID

MAX_BYTES: Final = 256 * 1024
MAX_DEPTH: Final = 64

_NAME_IT_INSTEAD: Final = "looks like a secret: pass a reference to it instead"
# One that is not closed goes to the end: to try again from each of its quotes would cost the square of its length.
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_TIMESTAMP: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:[Zz]|[+-]\d\d:\d\d)")
_decode_object: Final = msgspec.json.Decoder(dict[str, Any]).decode
_encode: Final = msgspec.json.Encoder().encode
_encode_sorted: Final = msgspec.json.Encoder(order="sorted").encode


def check_payload(raw: bytes | msgspec.Raw, allow_secrets: Collection[str] = ()) -> None:
    """Refuse a payload that is not a JSON object we can store, read back and show.

    >>> check_payload(b'{"customer": {"api_key": "x"}}')
    Traceback (most recent call last):
    mainspring.errors.ValidationError: payload.customer.api_key: looks like a secret: pass a reference to it instead
    """
    try:
        if len(raw) > MAX_BYTES:
            raise PayloadTooLarge(f"payload: is larger than {MAX_BYTES // 1024} KiB", field="payload")
        text = str(raw, "utf-8")
    except UnicodeDecodeError:
        _refuse("payload", "is not valid UTF-8")
    except TypeError:
        _refuse("payload", "is not JSON in bytes")
    # Brackets inside strings count here too, so this only ever errs towards the closer look.
    if text.count("{") + text.count("[") > MAX_DEPTH and _depth(text) > MAX_DEPTH:
        _refuse("payload", f"is nested deeper than {MAX_DEPTH} levels")
    try:
        value = _decode_object(text)
    except msgspec.ValidationError as error:
        top = str(error).startswith("Expected")
        _refuse("payload", "is not a JSON object" if top else "holds a number that is too large")
    except msgspec.DecodeError:
        _refuse("payload", "is not valid JSON")
    # What our own encoder would write in the same way has no key twice; the database would keep the last of them.
    if _encode(value) != bytes(raw):
        json.loads(text, object_pairs_hook=_refuse_duplicates)
    lower = text.lower()
    if (
        "\\u" in text  # may spell NUL, or hide a name
        or "secret" in lower
        or "token" in lower
        or "passw" in lower
        or "passphrase" in lower
        or "pwd" in lower
        or "credential" in lower
        or 'key"' in lower
        or "_live_" in lower
        or "_test_" in lower
        or "whsec_" in lower
        or "eyj" in lower
        or "private key" in lower
        or "akia" in lower
    ):
        _look_closely(value, "payload", allow_secrets)


def read_payload(text: str | bytes, allow_secrets: Collection[str] = ()) -> msgspec.Raw:
    """The payload that somebody typed or sent, checked.

    >>> read_payload('{"id": 1, "id": 2}')
    Traceback (most recent call last):
    mainspring.errors.ValidationError: payload.id: appears twice
    """
    try:
        raw = text.encode() if isinstance(text, str) else text
    except UnicodeEncodeError:
        _refuse("payload", "is not valid Unicode")
    check_payload(raw, allow_secrets)
    return msgspec.Raw(raw)


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for key, value in pairs:
        if key in seen:
            _refuse(f"payload.{shown(key)}", "appears twice")
        seen[key] = value
    return seen


def _depth(text: str) -> int:
    depth = deepest = 0
    for char in _STRING.sub("", text):
        if char in "{[":
            depth += 1
            deepest = max(deepest, depth)
        elif char in "}]":
            depth -= 1
    return deepest


def _look_closely(value: object, path: str, allowed: Collection[str], trusted: bool = False) -> None:
    """Find NUL anywhere, and secrets anywhere but in the fields that the task allows."""
    if isinstance(value, dict):
        for key, item in value.items():
            field = f"{path}.{shown(key)}"
            if "\0" in key:
                _refuse(field, "has a NUL character in its name")
            fine = trusted or key in allowed
            if not fine and names_secret(key):
                _refuse(field, _NAME_IT_INSTEAD)
            _look_closely(item, field, allowed, fine)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _look_closely(item, f"{path}[{index}]", allowed, trusted)
    elif isinstance(value, str):
        if "\0" in value:
            _refuse(path, "has a NUL character")
        if not trusted and CREDENTIAL.search(value):
            _refuse(path, _NAME_IT_INSTEAD)


def stable_hash(payload: bytes | msgspec.Raw) -> str:
    """SHA-256 of the payload, whatever the order of its keys and the offsets of its timestamps.

    >>> stable_hash(b'{"a":1,"at":"2026-01-01T12:00:00+02:00"}') == stable_hash(b'{"at":"2026-01-01T10:00:00Z","a":1}')
    True
    """
    try:
        value = msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        _refuse("payload", "is not valid JSON")
    return hashlib.sha256(_encode_sorted(_normal(value))).hexdigest()


def _normal(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _normal(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_normal(item) for item in value]
    if isinstance(value, str) and _TIMESTAMP.fullmatch(value):
        try:
            return datetime.fromisoformat(value.upper()).astimezone(UTC)
        except (ValueError, OverflowError):  # 25:00, or the first hours of year 1: only looks like a timestamp
            return value
    return value


def payload_key(task: str, org_id: str, project_id: UUID | None, payload: bytes | msgspec.Raw) -> str:
    """The key that `by_payload` makes: `<job_type>:<org_id>:<project_id?>:<stable_hash>`.

    >>> payload_key("greet", "acme", None, b"{}").split(":")[:2]
    ['greet', 'acme']
    """
    scope = org_id if project_id is None else f"{org_id}:{project_id}"
    return f"{task}:{scope}:{stable_hash(payload)}"


def _refuse(field: str, problem: str) -> NoReturn:
    raise ValidationError(f"{field}: {problem}", field=field)
