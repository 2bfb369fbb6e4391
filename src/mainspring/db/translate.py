"""The one place that turns a database error into ours, whatever driver or library raised it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from mainspring.errors import (
    DatabaseUnavailable,
    JobExists,
    KeyReused,
    LeaseLost,
    MainspringError,
    NotPermitted,
    PayloadTooLarge,
    QueueFull,
    SchemaMissing,
    TransitionRefused,
    ValidationError,
)

#: Classes of SQLSTATE that pass by themselves: connection, resources, operator intervention, system.
_UNAVAILABLE = ("08", "53", "57", "58")
#: Serialisation failure, deadlock, lock not available, read-only server (a standby).
_TRANSIENT = {"40001", "40P01", "55P03", "25006"}
#: Refused for the server's own reasons: read-only, disk, memory or connections used up, starting or stopping.
_REFUSED = {"25006", "53100", "53200", "53300", "57P03"}


def is_transient(error: BaseException) -> bool:
    """Whether trying again later can help: the connection is gone, or the database said so."""
    state, _ = _diagnose(error)
    if isinstance(error, DatabaseUnavailable):
        return True
    if state is None:
        return any(c.__name__ in {"OperationalError", "InterfaceError", "PoolTimeout"} for c in type(error).__mro__)
    return state.startswith(_UNAVAILABLE) or state in _TRANSIENT


def is_refusal(error: BaseException) -> bool:
    """Whether the database could not be written to at all: nothing has happened, and no job is at fault."""
    if isinstance(error, DatabaseUnavailable) and not error.sent:
        return True
    return type(error).__name__ == "PoolTimeout" or _diagnose(error)[0] in _REFUSED


def is_read_only(error: BaseException) -> bool:
    """Whether the server takes no writes: another one may, so that it is better to connect anew."""
    return _diagnose(error)[0] == "25006"


@contextmanager
def unavailable(*, sent: bool = True) -> Iterator[None]:
    """Turn a lost or refused connection into DatabaseUnavailable; `sent` says whether something may have happened."""
    try:
        yield
    except MainspringError:
        raise
    except Exception as error:
        if (ours := translate(error)) is None:
            raise
        if isinstance(ours, DatabaseUnavailable):
            ours.sent = sent
        raise ours from error


def translate(error: BaseException) -> MainspringError | None:
    """Our error for a database error, or None where it has no meaning of ours."""
    state, diagnosis = _diagnose(error)
    message, detail = diagnosis.get("message") or str(error), diagnosis.get("detail") or ""
    match state:
        case "MS001":
            kind = PayloadTooLarge if diagnosis.get("hint") == "PAYLOAD_TOO_LARGE" else ValidationError
            return kind(message, field=detail)
        case "MS002":
            return KeyReused(message, job_id=_uuid(detail))
        case "MS003" | "MS004":
            return TransitionRefused(message, verb="write", state=detail or None)
        case "MS005":
            return LeaseLost(message)
        case "MS006":
            return QueueFull(message, queue=detail)
        case "23505" if diagnosis.get("constraint") in {"job_pkey", "waiting_pkey"}:
            return JobExists("id: another job has this id", job_id=_uuid(detail))
        case "23514" | "23502":
            field = diagnosis.get("column") or diagnosis.get("constraint") or "job"
            field = field.removeprefix("job_").removesuffix("_check")
            return ValidationError(f"{field}: is missing, or none that a job can have", field=field)
        case "22P02" | "22P05" | "22003" | "22007" | "22008" | "22021":  # PostgreSQL's own words repeat the value
            return ValidationError("job: has a value that the database cannot read or store", field="job")
        case "42501":
            hint = "on a secured schema a transaction names its organisation (mainspring.org), and a login has its role"
            return NotPermitted(f"the database refused: {message}; {hint}")
        case "3F000" | "42883" | "42P01":  # our statements name nothing but our own schema
            return SchemaMissing()
    if is_transient(error):
        return DatabaseUnavailable(f"the database is unavailable: {message}")
    return None


def first_words(error: BaseException) -> str:
    """What an error says, without what a database or a library adds of rows, statements and their parameters."""
    origin = getattr(error, "orig", None)  # SQLAlchemy's; Django's is the cause
    if type(error).__module__.startswith("django.db"):
        origin = error.__cause__
    seen = origin if isinstance(origin, BaseException) else error
    said = getattr(getattr(seen, "diag", None), "message_primary", None)  # psycopg and psycopg2
    if said is None and getattr(seen, "sqlstate", None):
        said = getattr(seen, "message", None)  # asyncpg
    return said if isinstance(said, str) else str(seen)


def _diagnose(error: BaseException) -> tuple[str | None, dict[str, str | None]]:
    """The SQLSTATE and its fields, from psycopg, psycopg2, asyncpg, or what SQLAlchemy and Django wrap."""
    seen: BaseException | None = error
    known: str | None = None
    while seen is not None:
        state = getattr(seen, "sqlstate", None) or getattr(seen, "pgcode", None)
        if isinstance(state, str):
            diag: Any = getattr(seen, "diag", None)
            if diag is not None:  # psycopg and psycopg2
                return state, {
                    "message": diag.message_primary,
                    "detail": diag.message_detail,
                    "hint": diag.message_hint,
                    "constraint": diag.constraint_name,
                    "column": diag.column_name,
                }
            if hasattr(seen, "constraint_name"):  # asyncpg; SQLAlchemy's wrapper has the state only
                names = {"message": "message", "detail": "detail", "hint": "hint"}
                names |= {"constraint": "constraint_name", "column": "column_name"}
                return state, {key: getattr(seen, name, None) for key, name in names.items()}
            known = state
        seen = getattr(seen, "orig", None) or seen.__cause__
    return known, {}


def _uuid(text: str) -> UUID | None:
    """The job that an error's detail names, alone or as `Key (id)=(...) already exists`."""
    found = re.search(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", text)
    return UUID(found[0]) if found else None
