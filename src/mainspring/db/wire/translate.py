"""The one place that turns a database error into ours, whatever driver or library raised it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
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
    SchemaOutdated,
    TransitionRefused,
    ValidationError,
)
from mainspring.text.raised import Ask, cause_of, links, module_of, name_of, names_of, read, said, text

#: Classes of SQLSTATE that pass by themselves: connection, resources, operator intervention, system.
_UNAVAILABLE = ("08", "53", "57", "58")
#: Serialisation failure, deadlock, lock not available, read-only server (a standby).
_TRANSIENT = {"40001", "40P01", "55P03", "25006"}
#: Refused for the server's own reasons: read-only, disk, memory or connections used up, starting or stopping.
_REFUSED = {"25006", "53100", "53200", "53300", "57P03"}
#: The server ends, has crashed, starts, or ended the session: no statement of the job's own is at fault.
_LOST = {"57P01", "57P02", "57P03"}
#: What an error's fields are called by psycopg and psycopg2, and by asyncpg.
_DIAG = {"message": "message_primary", "detail": "message_detail", "hint": "message_hint"}
_DIAG |= {"constraint": "constraint_name", "column": "column_name"}
_ASYNCPG = {"message": "message", "detail": "detail", "hint": "hint"}
_ASYNCPG |= {"constraint": "constraint_name", "column": "column_name"}

#: Said where a function or a table is not there: the schema is older than this program, or much newer.
UNFIT = (
    "The schema does not have what this version calls: run `mainspring schema migrate`, or upgrade Mainspring where a "
    "later version has migrated it."
)


def is_transient(error: BaseException, ask: Ask = read) -> bool:
    """Whether trying again later can help: the connection is gone, or the database said so."""
    state, _ = _diagnose(error, ask)
    if issubclass(type(error), DatabaseUnavailable):
        return True
    if state is None:
        return not names_of(error).isdisjoint({"OperationalError", "InterfaceError", "PoolTimeout"})
    return state.startswith(_UNAVAILABLE) or state in _TRANSIENT


def is_lost(error: BaseException, ask: Ask = read) -> bool:
    """Whether a connection went away, or its server; not a conflict, and nothing that the server refused."""
    state, _ = _diagnose(error, ask)
    if state is not None:
        return state.startswith("08") or state in _LOST
    return is_transient(error, ask)


def has_no_transaction(error: BaseException, ask: Ask = read) -> bool:
    """Whether a statement wanted a transaction and there is none: the connection commits by itself."""
    return _diagnose(error, ask)[0] == "25P01"


def is_refusal(error: BaseException, ask: Ask = read) -> bool:
    """Whether the database could not be written to at all: nothing has happened, and no job is at fault."""
    if issubclass(type(error), DatabaseUnavailable) and ask(error, "sent") is False:
        return True
    return name_of(error) == "PoolTimeout" or _diagnose(error, ask)[0] in _REFUSED


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
    message, detail = diagnosis.get("message") or said(error), diagnosis.get("detail") or ""
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
            return JobExists("id: another job has this id, or an earlier try of this one", job_id=_uuid(detail))
        case "23514" | "23502":
            field = diagnosis.get("column") or diagnosis.get("constraint") or "job"
            field = field.removeprefix("job_").removesuffix("_check")
            return ValidationError(f"{field}: is missing, or none that a job can have", field=field)
        case "22P02" | "22P05" | "22003" | "22007" | "22008" | "22021":  # PostgreSQL's own words repeat the value
            return ValidationError("job: has a value that the database cannot read or store", field="job")
        case "42501":
            hint = "on a secured schema a transaction names its organisation (mainspring.org), and a login has its role"
            return NotPermitted(f"the database refused: {message}; {hint}")
        case "3F000":
            return SchemaMissing()
        case "42883" | "42P01":  # our statements name nothing but our own schema
            return SchemaOutdated(UNFIT)
    if is_transient(error):
        return DatabaseUnavailable(f"the database is unavailable: {message}")
    return None


def first_words(error: BaseException, ask: Ask = read) -> str:
    """What an error says, without what a database or a library adds of rows, statements and their parameters."""
    origin = ask(error, "orig")  # SQLAlchemy's; Django's is the cause
    if module_of(error).startswith("django.db"):
        origin = cause_of(error)
    seen = origin if issubclass(type(origin), BaseException) else error
    words = text(ask(ask(seen, "diag"), "message_primary"))  # psycopg and psycopg2
    if words is None and text(ask(seen, "sqlstate")):
        words = text(ask(seen, "message"))  # asyncpg
    return said(seen, ask) if words is None else words


def _diagnose(error: BaseException, ask: Ask = read) -> tuple[str | None, dict[str, str | None]]:
    """The SQLSTATE and its fields, from psycopg, psycopg2, asyncpg, or what SQLAlchemy and Django wrap."""
    known: str | None = None
    for seen in links(error, ask):
        state = text(ask(seen, "sqlstate")) or text(ask(seen, "pgcode"))
        if state:
            if (diag := ask(seen, "diag")) is not None:  # psycopg and psycopg2
                return state, {key: text(ask(diag, name)) for key, name in _DIAG.items()}
            if ask(seen, "constraint_name", ...) is not ...:  # asyncpg; SQLAlchemy's wrapper has the state only
                return state, {key: text(ask(seen, name)) for key, name in _ASYNCPG.items()}
            known = state
    return known, {}


def _uuid(text: str) -> UUID | None:
    """The job that an error's detail names, alone or as `Key (id)=(...) already exists`."""
    found = re.search(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", text)
    return UUID(found[0]) if found else None
