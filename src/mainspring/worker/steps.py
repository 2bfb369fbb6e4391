"""The memory of one attempt: which steps are done, and their results in the form in which they are kept.

A result takes the same way in the run that makes it and in the one that remembers it: written as JSON, read back as the
type that the function says it returns. So a handler meets the same value either way, and a type that does not survive
shows at once, not after the first crash.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, get_args, get_origin, get_type_hints

import msgspec

from mainspring.declare.signature import is_pydantic
from mainspring.errors import MainspringError, ValidationError
from mainspring.text.document import MAX_BYTES
from mainspring.text.texts import MAX_NAME, text_problem

#: The step whose function runs in this context.
_inside: ContextVar[str | None] = ContextVar("mainspring_step", default=None)
_UNWRITABLE: Final = (TypeError, ValueError, OverflowError, RecursionError)


class Memory:
    """Which steps this attempt has used, and what earlier attempts left."""

    def __init__(self) -> None:
        self.recalled: dict[str, str] | None = None  # asked for before the first step
        self._used: set[str] = set()

    def use(self, name: str) -> None:
        """Take a step's name, once in an attempt."""
        refuse_inside_step("a step")
        if problem := text_problem(name, MAX_NAME):
            raise ValidationError(f"step: its name {problem}", field="step")
        if name in self._used:
            raise ValidationError(
                f"step {name!r}: is done already in this attempt; each needs a name of its own, such as f'page-{{n}}'",
                field="step",
            )
        self._used.add(name)


@contextmanager
def inside(name: str) -> Iterator[None]:
    """The function of a step runs in this block."""
    token = _inside.set(name)
    try:
        yield
    finally:
        _inside.reset(token)


def refuse_inside_step(what: str) -> None:
    """Refuse what a remembered step would leave out, because its function is not called again."""
    if (name := _inside.get()) is not None:
        raise MainspringError(f"{what} cannot stand inside step {name!r}: put it beside the step")


def written(field: str, value: Any, limit: int | None = None) -> str:
    """A value as it is kept; what PostgreSQL could not store is refused here, by the name of what it belongs to.

    >>> written("step 'post'", {"id": 7}, MAX_BYTES)
    '{"id":7}'
    """
    try:
        text = msgspec.json.encode(value, enc_hook=_from_pydantic).decode()
    except _UNWRITABLE as error:
        raise ValidationError(f"{field}: cannot be written as JSON: {error}", field=field) from None
    if "\\u0000" in text:
        raise ValidationError(f"{field}: contains a NUL character", field=field)
    if limit is not None and len(text) * 4 > limit and len(text.encode()) > limit:
        raise ValidationError(f"{field}: is larger than {limit // 1024} KiB: keep a reference to it", field=field)
    return text


def read(field: str, text: str, wanted: Any) -> Any:
    """A kept value, as the type that is wanted.

    >>> read("step 'post'", "[1, 2]", tuple[int, int])
    (1, 2)
    """
    try:
        return msgspec.json.decode(text, type=wanted, dec_hook=_to_pydantic)
    except (msgspec.DecodeError, TypeError, ValueError, NotImplementedError) as error:
        raise ValidationError(f"{field}: does not come back as {wanted}: {error}", field=field) from None


def kept(name: str, value: Any, wanted: Any) -> tuple[str, Any]:
    """A step's result as it is kept, and as it will come back."""
    field = f"step {name!r}"
    text = written(field, value, MAX_BYTES)
    return text, read(field, text, wanted)


def type_of(fn: Callable[..., Any]) -> Any:
    """What a function says it returns; where it says nothing, whatever JSON holds.

    >>> def total() -> int: ...
    >>> type_of(total), type_of(lambda: 7)
    (<class 'int'>, typing.Any)
    """
    while isinstance(fn, partial):
        fn = fn.func
    fn = fn if inspect.isroutine(fn) or hasattr(fn, "__wrapped__") else type(fn).__call__
    try:
        hint = get_type_hints(fn, include_extras=True).get("return", Any)
    except (NameError, TypeError):  # a name that only the type checker knows
        return Any
    if get_origin(hint) in (Awaitable, Coroutine):
        hint = get_args(hint)[-1]
    return hint


def _from_pydantic(value: Any) -> Any:
    if is_pydantic(type(value)):
        return value.model_dump(mode="json", by_alias=True)
    raise TypeError(f"{type(value).__name__} is no type that JSON has")


def _to_pydantic(wanted: Any, value: Any) -> Any:
    if is_pydantic(wanted):
        try:
            return wanted.model_validate(value)
        except ValueError as error:  # its text would repeat the value
            problems: Any = error
            raise ValueError(problems.errors(include_url=False, include_input=False)[0]["msg"]) from None
    raise TypeError(f"{wanted} cannot be read from JSON")
