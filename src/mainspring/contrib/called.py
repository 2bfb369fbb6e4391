"""A provider's verb, written once as a generator of calls, and made in the colour of the class that has it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, ParamSpec, TypeVar, cast, overload

from mainspring.client.colour import Part, do, do_async, named

P = ParamSpec("P")
R = TypeVar("R")


class PlainVerbs:
    """Verbs for plain functions; `api` makes their calls."""

    api: Any


class AwaitedVerbs:
    """Verbs for async code; `api` makes their calls."""

    api: Any


class provider_verb(Generic[P, R]):  # noqa: N801 (used like `property`)
    """A verb as a method: `R` from plain functions, awaited from async code."""

    def __init__(self, verb: Callable[P, Generator[Part, Any, R]]) -> None:
        def call(of: PlainVerbs, *args: P.args, **kwargs: P.kwargs) -> R:
            return do(verb(*args, **kwargs), of.api)

        async def async_call(of: AwaitedVerbs, *args: P.args, **kwargs: P.kwargs) -> R:
            return await do_async(verb(*args, **kwargs), of.api)

        self._call, self._async_call = named(call, verb), named(async_call, verb)

    @overload
    def __get__(self, of: None, owner: type) -> Callable[..., Any]: ...
    @overload
    def __get__(self, of: PlainVerbs, owner: type) -> Callable[P, R]: ...
    @overload
    def __get__(self, of: AwaitedVerbs, owner: type) -> Callable[P, Coroutine[Any, Any, R]]: ...
    def __get__(self, of: object, owner: type) -> Callable[..., Any]:
        function = self._call if issubclass(owner, PlainVerbs) else self._async_call
        return cast(Callable[..., Any], function if of is None else function.__get__(of, owner))
