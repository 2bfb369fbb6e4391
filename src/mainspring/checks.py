"""What a job must be to be enqueued. Every refusal names the field and does not repeat its value.

Bulk enqueue checks tens of thousands of jobs a second, so each check first asks a cheap question that clears nearly
every job, and looks closely only at the others.
"""

from __future__ import annotations

import hashlib
import json
import re
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NoReturn, get_args
from uuid import UUID

import msgspec

from mainspring.category import DEAD_LETTER
from mainspring.dedupe import MODES
from mainspring.errors import PayloadTooLarge, ValidationError
from mainspring.job import ActorType, NewJob
from mainspring.retry import MAX_ATTEMPTS
from mainspring.sanitize import CREDENTIAL, names_secret

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

MAX_BYTES: Final = 256 * 1024
MAX_DEPTH: Final = 64
MAX_NAME: Final = 200  # tasks, organisations, actors, requests
MAX_QUEUE: Final = 63
MAX_KEY: Final = 512
LOWEST_PRIORITY: Final = 3
LONGEST_DELAY: Final = timedelta(days=3653)
LAST_YEAR: Final = 2200
_ZERO: Final = timedelta(0)

_NAME_IT_INSTEAD: Final = "looks like a secret: pass a reference to it instead"
# Control characters, line separators, lone surrogates, and the marks that reorder text on a screen.
_UNFIT: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_TIMESTAMP: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:[Zz]|[+-]\d\d:\d\d)")
_decode_object: Final = msgspec.json.Decoder(dict[str, Any]).decode
_encode_sorted: Final = msgspec.json.Encoder(order="sorted").encode


def check_job(job: NewJob) -> None:
    """Refuse a job that must not be written.

    >>> check_job(NewJob(task="greet", payload=msgspec.Raw(b"{}"), priority=7))
    Traceback (most recent call last):
    mainspring.errors.ValidationError: priority: is not a whole number from 0 to 3
    """
    check_envelope(job)
    check_payload(job.payload, job.allow_secrets)


def check_envelope(job: NewJob) -> None:
    """Refuse a job whose fields around the payload are missing or wrong; `traceparent` is cleaned, not refused."""
    try:
        _check_task(job.task, job.queue, job.priority, job.max_attempts)
        _check_caller(job.org_id, job.actor_type, job.actor_id, job.request_id, job.correlation_id)
    except TypeError:  # a list, say, cannot be remembered: ask the functions behind the memory
        _check_task.__wrapped__(job.task, job.queue, job.priority, job.max_attempts)
        _check_caller.__wrapped__(job.org_id, job.actor_type, job.actor_id, job.request_id, job.correlation_id)
    if job.id is not None and not isinstance(job.id, UUID):
        _refuse("id", "is not a UUID")
    if job.project_id is not None and not isinstance(job.project_id, UUID):
        _refuse("project_id", "is not a UUID")
    if job.parent_id is not None and not isinstance(job.parent_id, UUID):
        _refuse("parent_id", "is not a UUID")
    if job.project_scoped and job.project_id is None:
        _refuse("project_id", f"is missing: {job.task} belongs to a project")
    if job.created_at is not None:
        _check_instant("created_at", job.created_at)
    if job.scheduled_for is not None or job.delay is not None:
        _check_due(job)
    if job.key is not None:
        _check_text("key", job.key, MAX_KEY)
    if job.mode is not None or job.reset:
        _check_mode(job)


# Jobs of one task, and jobs of one request, repeat these values: they are remembered, refusals are not.
@lru_cache(maxsize=1024, typed=True)
def _check_task(task: object, queue: object, priority: object, max_attempts: object) -> None:
    _check_text("task", task, MAX_NAME)
    _check_text("queue", queue, MAX_QUEUE)
    if queue == DEAD_LETTER:
        _refuse("queue", f"{DEAD_LETTER} holds dead jobs; nothing is enqueued to it")
    _check_number("priority", priority, 0, LOWEST_PRIORITY)
    _check_number("max_attempts", max_attempts, 1, MAX_ATTEMPTS)


@lru_cache(maxsize=1024, typed=True)
def _check_caller(
    org_id: object, actor_type: object, actor_id: object, request_id: object, correlation_id: object
) -> None:
    # What is not said is completed later: by the calling context, at last by the database. Half an actor is a mistake.
    if actor_type is not None or actor_id is not None:
        _check_text("actor_id", actor_id, MAX_NAME)
        if actor_type not in get_args(ActorType):
            _refuse("actor_type", f"is not one of {', '.join(get_args(ActorType))}")
    for field, value in (("org_id", org_id), ("request_id", request_id), ("correlation_id", correlation_id)):
        if value is not None:
            _check_text(field, value, MAX_NAME)


def _check_due(job: NewJob) -> None:
    if not job.schedulable:
        _refuse("scheduled_for", f"is not allowed: {job.task} cannot be scheduled")
    if job.scheduled_for is not None:
        _check_instant("scheduled_for", job.scheduled_for)
    if job.delay is not None:
        _check_span("delay", job.delay)
        if job.scheduled_for is not None:
            _refuse("delay", "is given together with scheduled_for")


def _check_mode(job: NewJob) -> None:
    if job.mode is not None and job.mode not in MODES:
        _refuse("mode", f"is not one of {', '.join(MODES)}{did_you_mean(job.mode, MODES)}")
    if job.key is None and not job.by_payload:
        _refuse("key", f"is missing: {job.mode or 'reset'} needs one")
    if job.mode == "debounce":
        _check_span("wait", job.wait)
    if job.ttl is not None:
        _check_span("ttl", job.ttl)


def _check_text(field: str, value: object, limit: int) -> None:
    if problem := text_problem(value, limit):
        _refuse(field, problem)


def text_problem(value: object, limit: int) -> str | None:
    """What is wrong with a name, an id or a key; None if nothing is.

    >>> text_problem("", 200)
    'is empty'
    """
    if not isinstance(value, str):
        return "is missing" if value is None else "is not a text"
    if not value or value.isspace():
        return "is empty"
    if len(value) > limit:
        return f"is longer than {limit} characters"
    if not value.isprintable() and _UNFIT.search(value):
        return "has a control character"
    return None


def _check_number(field: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        _refuse(field, f"is not a whole number from {low} to {high}")


def _check_instant(field: str, value: object) -> None:
    if not isinstance(value, datetime) or value.utcoffset() is None:
        _refuse(field, "is not a time with a time zone")
    if value.year > LAST_YEAR:
        _refuse(field, f"lies after the year {LAST_YEAR}")


def _check_span(field: str, value: object) -> None:
    if not isinstance(value, timedelta) or not _ZERO <= value <= LONGEST_DELAY:
        _refuse(field, "is missing" if value is None else "is not a time span from 0 to 10 years")


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


def read_payload(text: str | bytes) -> msgspec.Raw:
    """The payload that somebody typed or sent: checked, and refused if a key appears twice.

    >>> read_payload('{"id": 1, "id": 2}')
    Traceback (most recent call last):
    mainspring.errors.ValidationError: payload.id: appears twice
    """
    try:
        raw = text.encode() if isinstance(text, str) else text
    except UnicodeEncodeError:
        _refuse("payload", "is not valid Unicode")
    check_payload(raw)
    json.loads(raw, object_pairs_hook=_refuse_duplicates)
    return msgspec.Raw(raw)


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for key, value in pairs:
        if key in seen:
            _refuse(f"payload.{_shown(key)}", "appears twice")
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
            field = f"{path}.{_shown(key)}"
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


def _shown(key: str) -> str:
    key = _UNFIT.sub("�", key)
    return key if len(key) <= 40 else f"{key[:40]}…"


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


def clean_traceparent(value: object) -> str | None:
    """The value if it is a W3C trace context, else None: a broken trace must not cost a job.

    >>> clean_traceparent("nonsense") is None
    True
    """
    return value if isinstance(value, str) and _TRACEPARENT.fullmatch(value) else None


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """The end of an error message: the nearest known word, if one is near.

    >>> "unknown option 'retires'" + did_you_mean("retires", ["retry", "queue"])
    "unknown option 'retires' (did you mean 'retry'?)"
    """
    near = get_close_matches(str(word), known, n=1, cutoff=0.6)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _refuse(field: str, problem: str) -> NoReturn:
    raise ValidationError(f"{field}: {problem}", field=field)
