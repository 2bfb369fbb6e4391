"""An operation of the HTTP API: a plain async function, and what must be said besides.

::

    queues = Resource("queues", "Lanes of jobs.")


    @queues.get("/queues/{name}", role="viewer")
    async def show_queue(asking: Asking, name: str) -> QueueView:
        '''One queue.'''

From these values come the routes, the OpenAPI document, the page of the API and the matrix of roles and routes.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypedDict, TypeVar, Unpack, get_type_hints

from mainspring.db.schema.rights import Role
from mainspring.declare.principal import AccessRole
from mainspring.errors import DeclarationError
from mainspring.web.api.inputs import Inputs
from mainspring.web.api.version import Versioned
from mainspring.web.origin import SAFE_METHODS

H = TypeVar("H", bound=Callable[..., Awaitable[Any]])
#: What an Idempotency-Key may be: 1 to 200 characters of printable ASCII without spaces.
IDEMPOTENCY_KEY: Final = "^[!-~]{1,200}$"
Precondition = Literal["optional", "required"]


class OperationOptions(TypedDict, total=False):
    """What may be said of an operation besides its address and its role."""

    connects: Role  # the role of the database that it needs; else `api` for viewers and `operator` for others
    status: int  # 200; 204 where nothing is answered
    if_match: Precondition  # it changes what somebody has seen: the frame asks for the version where it is required
    shared: bool  # it touches what is everybody's: only for those who see all organisations
    about_access: bool  # it is about who may come in: without an organisation, in all of them
    keeps: bool  # True: its answer is kept under an Idempotency-Key; False for answers that hold secrets
    refuses: tuple[int, ...]  # further statuses that it may answer, such as 409


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one address."""

    method: str
    path: str  # below the prefix
    role: AccessRole
    handler: Callable[..., Awaitable[Any]]
    inputs: Inputs
    answer: Any  # the type
    resource: str
    connects: Role
    status: int = 200
    if_match: Precondition | None = None
    shared: bool = False
    about_access: bool = False
    keeps: bool = True
    refuses: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """What it is called, such as `show_queue`."""
        return self.handler.__name__

    @property
    def about(self) -> str:
        """What it does."""
        return inspect.getdoc(self.handler) or ""

    @property
    def writes(self) -> bool:
        """Whether it may change something."""
        return self.method not in SAFE_METHODS

    @property
    def versioned(self) -> bool:
        """Whether its answer has a version, which is shown as its ETag."""
        return isinstance(self.answer, type) and issubclass(self.answer, Versioned)


class Resource:
    """The operations of one noun; its decorators leave the function as it is, so that others may call it."""

    def __init__(self, name: str, about: str) -> None:
        self.name, self.about = name, about
        self.operations: list[Operation] = []

    def get(self, path: str, *, role: AccessRole, **said: Unpack[OperationOptions]) -> Callable[[H], H]:
        """What reads."""
        return self._declare("GET", path, role, said)

    def post(self, path: str, *, role: AccessRole, **said: Unpack[OperationOptions]) -> Callable[[H], H]:
        """What does something."""
        return self._declare("POST", path, role, said)

    def put(self, path: str, *, role: AccessRole, **said: Unpack[OperationOptions]) -> Callable[[H], H]:
        """What sets something as a whole."""
        return self._declare("PUT", path, role, said)

    def delete(self, path: str, *, role: AccessRole, **said: Unpack[OperationOptions]) -> Callable[[H], H]:
        """What removes something."""
        return self._declare("DELETE", path, role, said)

    def _declare(self, method: str, path: str, role: AccessRole, said: OperationOptions) -> Callable[[H], H]:
        def declared(handler: H) -> H:
            hints = get_type_hints(handler, include_extras=True)
            if "return" not in hints or not handler.__doc__:
                raise DeclarationError(f"{handler.__name__}: an operation says what it does, and what it answers")
            about: dict[str, Any] = {"connects": "api" if role == "viewer" else "operator", **said}
            answer, inputs = hints.pop("return"), Inputs(handler, path, hints)
            if answer is type(None):
                about = {"status": 204} | about
            made = Operation(method, path, role, handler, inputs, answer, self.name, **about)
            if made.if_match and not made.writes:
                raise DeclarationError(f"{made.name}: what only reads has no If-Match")
            self.operations.append(made)
            return handler

        return declared
