"""How Stripe says no."""

from __future__ import annotations

from typing import Any

from mainspring_sandbox.acts import ActRefused


class ErrorAnswer(ActRefused):
    """An answer that is an error; one that was `executed` is kept under its request's key, as Stripe keeps it."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str = "invalid_request_error",
        executed: bool = True,
        **fields: Any,
    ) -> None:
        super().__init__(message)
        self.status, self.executed = status, executed
        said = {"type": type, "message": message, **fields}
        self.error = {name: value for name, value in said.items() if value is not None}


def invalid(message: str, *, param: str | None = None, code: str | None = None) -> ErrorAnswer:
    """A request that is refused before anything is done; its key stays free."""
    return ErrorAnswer(400, message, param=param, code=code, executed=False)


def missing(param: str) -> ErrorAnswer:
    """A parameter that must be there is not."""
    return invalid(f"Missing required param: {param}.", param=param, code="parameter_missing")


def no_such(kind: str, id: str, param: str = "id") -> ErrorAnswer:
    """What is asked for does not exist, or belongs to another account."""
    status = 404 if param == "id" else 400
    return ErrorAnswer(status, f"No such {kind}: '{id}'", param=param, code="resource_missing")
