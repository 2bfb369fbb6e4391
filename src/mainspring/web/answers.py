"""What is answered when something is wrong: one table from errors to statuses, one form."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, PlainTextResponse, Response

from mainspring.declare.block import SignatureRefused
from mainspring.errors import (
    BatchNotFound,
    DatabaseUnavailable,
    JobError,
    JobNotFound,
    MainspringError,
    NotPermitted,
    PayloadTooLarge,
    QueueFull,
    ScheduleNotFound,
    SchemaError,
    UnknownName,
    ValidationError,
)

#: The first class that fits decides. A text of ours stands in for what a database says: it may name hosts and tables.
ERROR_STATUSES: tuple[tuple[type[MainspringError], int, str | None], ...] = (
    (SignatureRefused, 400, None),
    (PayloadTooLarge, 413, None),
    (UnknownName, 404, None),
    (ValidationError, 400, None),
    (JobNotFound, 404, None),
    (ScheduleNotFound, 404, None),
    (BatchNotFound, 404, None),
    (JobError, 409, None),
    (NotPermitted, 403, "This is not yours to do."),
    (QueueFull, 503, None),
    (SchemaError, 503, "The database schema does not fit this version."),
    (DatabaseUnavailable, 503, "The database is unavailable; try again."),
)
#: What Python calls otherwise, and since 3.13 otherwise again.
STATUS_CODES = {413: "PAYLOAD_TOO_LARGE", 414: "URI_TOO_LONG"}
#: When to come back after a 503.
RETRY_AFTER = "5"


class Json(JSONResponse):
    """An answer in JSON."""

    def render(self, content: Any) -> bytes:
        """Encode."""
        return msgspec.json.encode(content)


class ProblemJson(Json):
    """What is wrong, for programs by its code and for people by its detail."""

    media_type = "application/problem+json"

    def render(self, content: Any) -> bytes:
        """Encode, with what the status means."""
        about = {"type": "about:blank", "title": _phrase(self.status_code), "status": self.status_code}
        return super().render(about | content)


def _phrase(status: int) -> str:
    return HTTPStatus(status).phrase if status in set(HTTPStatus) else "Refused"


def refusal(
    status: int, code: str, message: str, headers: Mapping[str, str] | None = None, *, field: str | None = None
) -> Response:
    """An answer that says what is wrong, in the form of RFC 9457, and of which field."""
    given = dict(headers or {}) | ({"retry-after": RETRY_AFTER} if status == 503 else {})
    said = {"code": code, "detail": message} | ({} if field is None else {"field": field})
    return ProblemJson(said, status_code=status, headers=given)


def nobody() -> Response:
    """The answer to whom no token and no session makes known."""
    return refusal(401, "UNAUTHORIZED", "This needs a token or a session.", {"www-authenticate": "Bearer"})


def unauthorized() -> Response:
    """The answer to whoever does not know the secret."""
    return PlainTextResponse("Unauthorized", status_code=401, headers={"www-authenticate": "Bearer"})


def broken() -> Response:
    """The answer to a mistake of ours or of the application; what it was stands in the log."""
    return refusal(500, "INTERNAL_ERROR", "Something went wrong here.")


def answer_to(error: MainspringError) -> Response | None:
    """The answer to an error of ours; None for what only a mistake in the program can raise."""
    for kind, status, text in ERROR_STATUSES:
        if isinstance(error, kind):
            return refusal(status, error.code, text or str(error))
    return None


def refused(_: HTTPConnection, error: Exception) -> Response:
    """Starlette's own refusals, in our form."""
    assert isinstance(error, HTTPException)
    status = error.status_code
    if status in (204, 304):  # these have no body
        return Response(status_code=status, headers=error.headers)
    name = HTTPStatus(status).name if status in set(HTTPStatus) else "REFUSED"
    return refusal(status, STATUS_CODES.get(status, name), f"{error.detail}.".replace("..", "."), error.headers)


def failed(_: HTTPConnection, error: Exception) -> Response:
    """Errors of ours that a route raised."""
    assert isinstance(error, MainspringError)
    answer = answer_to(error)
    if answer is None:
        raise error
    return answer
