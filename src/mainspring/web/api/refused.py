"""What the API answers when something is wrong; a thing of another organisation is as missing as a missing one."""

from __future__ import annotations

from typing import Final

from starlette.exceptions import HTTPException
from starlette.responses import Response

from mainspring.errors import (
    BatchNotFound,
    JobNotFound,
    MainspringError,
    NameTaken,
    NotPermitted,
    ScheduleNotFound,
    TransitionRefused,
    UnknownName,
    ValidationError,
)
from mainspring.web.answers import answer_to, refusal

_MISSING: Final = (JobNotFound, ScheduleNotFound, BatchNotFound, UnknownName)


class ApiRefused(MainspringError):
    """A request is refused: by its status, a code for programs and a sentence for people."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message, status=status, code=code)

    status: int


def not_found() -> ApiRefused:
    """The same for what is missing and for what belongs to others."""
    return ApiRefused(404, "NOT_FOUND", "There is nothing here.")


def refused_answer(error: MainspringError) -> Response | None:
    """The answer to an error of ours; None for what only a mistake in the program can raise."""
    match error:
        case ApiRefused():
            return refusal(error.status, error.code, str(error))
        case NotPermitted():  # the schema was secured, and a right is missing, or the row is another organisation's
            return refusal(403, "FORBIDDEN", "This is not yours to do.")
        case TransitionRefused():
            return refusal(409, "NOT_POSSIBLE_NOW", str(error))
        case NameTaken():
            return refusal(409, "NAME_TAKEN", str(error), field=error.field)
        case ValidationError() if not isinstance(error, UnknownName):
            status = 413 if error.code == "PAYLOAD_TOO_LARGE" else 400
            return refusal(status, error.code, str(error), field=error.field)
    return refused_answer(not_found()) if isinstance(error, _MISSING) else answer_to(error)


def refused_http(error: HTTPException) -> Response | None:
    """What Starlette refuses, where our words are others."""
    return refused_answer(not_found()) if error.status_code == 404 else None
