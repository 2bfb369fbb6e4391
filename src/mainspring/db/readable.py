"""What an encrypted job says to who has its keys; to others, that it is encrypted, or erased."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from mainspring.cipher import SEALED, OrgKeys, Seal, key_of
from mainspring.db.dead import Case
from mainspring.db.jobs import Attempt
from mainspring.db.steps import Step
from mainspring.errors import ConfigurationError, Erased, Unreadable
from mainspring.job import Job

_MARK = SEALED[2:-2]
_encode = msgspec.json.Encoder().encode


def key_in(job: Job) -> str | None:
    """The key that a job's payload, result or error needs; None where nothing is encrypted."""
    return next(filter(None, map(_key, (job.payload, job.result, job.error))), None)


def is_encrypted(job: Job) -> bool:
    """Whether a job's payload is not what its task would read."""
    return _MARK in job.payload


def key_among(parts: Sequence[Attempt] | Sequence[Step]) -> str | None:
    """The same for the attempts or the steps of a job."""
    values = (part.error if isinstance(part, Attempt) else part.result for part in parts)
    return next(filter(None, map(_key, values)), None)


def readable_job(job: Job, keys: OrgKeys) -> Job:
    """The job with what its keys open."""
    seal = Seal(keys, job)
    payload, result = _opened(seal, "payload", job.payload), _opened(seal, "result", job.result)
    return replace(job, payload=payload, result=result, error=_error(seal, job.error))


def readable_attempts(attempts: Sequence[Attempt], job: Job, keys: OrgKeys) -> list[Attempt]:
    """The attempts of a job with their errors."""
    seal = Seal(keys, job)
    return [replace(attempt, error=_error(seal, attempt.error)) for attempt in attempts]


def readable_case(case: Case, keys: OrgKeys) -> Case:
    """A dead letter with what its keys open."""
    job, attempts = readable_job(case.job, keys), readable_attempts(case.attempts, case.job, keys)
    return replace(case, job=job, attempts=attempts)


def readable_steps(steps: Sequence[Step], job: Job, keys: OrgKeys) -> list[Step]:
    """The steps of a job with their results."""
    seal = Seal(keys, job)
    return [replace(step, result=_opened(seal, f"step {step.name}", step.result)) for step in steps]


def _key(value: Any) -> str | None:
    if not isinstance(value, dict):
        return None
    return key_of(value.get("sealed") or "" if _MARK not in value else _encode(value).decode())


def _opened(seal: Seal, what: str, value: Any) -> Any:
    if _key(value) is None:
        return value
    try:
        return msgspec.json.decode(seal.open(what, _encode(value).decode()))
    except (Unreadable, ConfigurationError) as error:
        return {_MARK: _why(error)}


def _error(seal: Seal, error: dict[str, Any] | None) -> dict[str, Any] | None:
    if error is None or _key(error) is None:
        return error
    shown = {name: value for name, value in error.items() if name != "sealed"}
    try:
        said: dict[str, Any] = msgspec.json.decode(seal.open("error", error["sealed"]))
    except (Unreadable, ConfigurationError) as problem:
        said = {"message": f"({_why(problem)})"}
    return shown | {name: value for name, value in said.items() if value}


def _why(error: Exception) -> str:
    match error:
        case Erased():
            return "erased"
        case Unreadable():
            return "unreadable"
        case _:
            return "encrypted"
