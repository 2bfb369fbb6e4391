"""A verb is written once, without a colour, and called from sync and from async code.

A verb returns its `Work`: a generator that yields what sync and async code do differently, and receives the answers.
There are four: a `Query` of the database, a call that is `Blocking`, a `Wait`, and a `Single` enqueue. The client's
seam does the work: in place, or in the event loop. A class of verbs gets its colour from `Sync` or `Async`::

    class ClockVerbs(Verbs):
        @verb
        def now(self, *, conn: Any = None) -> Work[datetime]:
            '''The engine's clock.'''
            return self.seam.ask(jobs.now(self.seam.sql), conn)


    class Clock(ClockVerbs, Sync): ...
    class AsyncClock(ClockVerbs, Async): ...

    Clock(client).now()
    await AsyncClock(async_client).now()
"""

from __future__ import annotations

import asyncio
import inspect
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeAlias, TypeVar, cast, overload

from mainspring.db.wire.statement import Dialogue
from mainspring.job import NewJob

if TYPE_CHECKING:
    from mainspring.client.aio import AsyncSeam
    from mainspring.client.seam import Seam
    from mainspring.client.sync import SyncSeam

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
V = TypeVar("V")


class Part(Protocol):
    """A part of a verb's work, which knows how either colour does it."""

    def perform(self, seam: Any) -> Any:
        """In sync code."""

    def perform_async(self, seam: Any) -> Awaitable[Any]:
        """In async code."""


@dataclass(slots=True)
class Query:
    """Run a dialogue: on the caller's connection, or on one of the client's; `atomic`: there in one transaction."""

    dialogue: Dialogue[Any]
    conn: Any = None
    atomic: bool = False

    def perform(self, seam: Any) -> Any:
        """As the seam runs dialogues, in either colour."""
        return seam.run(self.dialogue, self.conn, atomic=self.atomic)

    perform_async = perform


@dataclass(slots=True)
class Blocking:
    """Call a function that may block; async code calls it in a thread."""

    function: Callable[[], Any]

    def perform(self, seam: Any) -> Any:
        """In sync code."""
        return self.function()

    def perform_async(self, seam: Any) -> Awaitable[Any]:
        """In async code."""
        return asyncio.to_thread(self.function)


@dataclass(slots=True)
class Wait:
    """Let some seconds pass."""

    seconds: float

    def perform(self, seam: Any) -> None:
        """In sync code."""
        time.sleep(self.seconds)

    def perform_async(self, seam: Any) -> Awaitable[None]:
        """In async code."""
        return asyncio.sleep(self.seconds)


@dataclass(slots=True)
class Single:
    """Enqueue one completed job on a connection of the client's; async code sends those together that come together."""

    job: NewJob

    def perform(self, seam: Any) -> Any:
        """As the seam enqueues one, in either colour."""
        return seam.enqueue(self.job)

    perform_async = perform


Work: TypeAlias = Generator[Query | Blocking | Wait | Single, Any, T]


def do(work: Generator[Part, Any, T], seam: object) -> T:
    """Do a verb's work, part by part; an error of a part is raised inside the verb."""
    try:
        part = next(work)
        while True:
            try:
                answer = part.perform(seam)
            except Exception as error:
                part = work.throw(error)
            else:
                part = work.send(answer)
    except StopIteration as end:
        return cast(T, end.value)


async def do_async(work: Generator[Part, Any, T], seam: object) -> T:
    """The same in the event loop."""
    try:
        part = next(work)
        while True:
            try:
                answer = await part.perform_async(seam)
            except Exception as error:
                part = work.throw(error)
            else:
                part = work.send(answer)
    except StopIteration as end:
        return cast(T, end.value)


class Verbs:
    """Verbs of one noun, on behalf of a client, whose `seam` they are written with."""

    def __init__(self, client: Verbs) -> None:
        self.seam: Seam = client.seam


class Sync(Verbs):
    """Verbs for sync code."""

    def __init__(self, client: Sync) -> None:
        self.seam: SyncSeam = client.seam


class Async(Verbs):
    """Verbs for async code."""

    def __init__(self, client: Async) -> None:
        self.seam: AsyncSeam = client.seam


class verb(Generic[V, P, R]):  # noqa: N801 (a decorator)
    """A method that returns its work, called in the colour of its class: `R` from sync code, awaited from async."""

    def __init__(self, method: Callable[Concatenate[V, P], Work[R]]) -> None:
        def call(self: Any, *args: P.args, **kwargs: P.kwargs) -> R:
            return cast(R, self.seam.do(method(self, *args, **kwargs)))

        async def async_call(self: Any, *args: P.args, **kwargs: P.kwargs) -> R:
            return cast(R, await self.seam.do(method(self, *args, **kwargs)))

        self._call, self._async_call = named(call, method), named(async_call, method)

    @overload
    def __get__(self, of: None, owner: type) -> Callable[..., Any]: ...
    @overload
    def __get__(self, of: Sync, owner: type) -> Callable[P, R]: ...
    @overload
    def __get__(self, of: Async, owner: type) -> Callable[P, Coroutine[Any, Any, R]]: ...
    def __get__(self, of: Verbs | None, owner: type) -> Callable[..., Any]:
        function = self._async_call if issubclass(owner, Async) else self._call
        return cast(Callable[..., Any], function if of is None else function.__get__(of, owner))


def named(call: Any, method: Callable[..., Any]) -> Any:
    """The call under the name, documentation and signature of a method, or of a function that becomes one.

    The signature says the answer and not the work.
    """
    update_wrapper(call, method)
    signature = inspect.signature(method)
    parameters = list(signature.parameters.values())
    if "self" not in signature.parameters:
        parameters.insert(0, inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD))
    answer = re.sub(r"^\w+\[(.*)\]$", r"\1", str(signature.return_annotation))
    call.__signature__ = signature.replace(parameters=parameters, return_annotation=answer)
    call.__annotations__ = method.__annotations__ | {"return": answer}
    return call
