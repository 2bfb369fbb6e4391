"""What a handler has asked for and must await or enter; forgotten, it fails the attempt, where Python only warns."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import Any, Generic, NoReturn, TypeVar

from mainspring.errors import HandlerMistake

T = TypeVar("T")


class Promise:
    """Something that does nothing until it is kept."""

    kept = False

    def __init__(self, mistake: str) -> None:
        self.mistake = mistake  # what is said to whoever forgets it


class Later(Promise, Coroutine[Any, Any, None]):
    """Work that begins when it is awaited."""

    _begun: Coroutine[Any, Any, None] | None = None

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]], mistake: str) -> None:
        super().__init__(mistake)
        self._work = work

    def _begin(self) -> Coroutine[Any, Any, None]:
        self.kept = True
        self._begun = self._begun or self._work()
        return self._begun

    def __await__(self) -> Generator[Any, Any, None]:
        return self._begin().__await__()

    def send(self, value: Any) -> Any:
        """As any coroutine: so it can be made a task."""
        return self._begin().send(value)

    def throw(self, *error: Any) -> Any:
        """As any coroutine."""
        return self._begin().throw(*error)

    def close(self) -> None:
        """As any coroutine; one that has not begun has nothing to close."""
        if self._begun is not None:
            self._begun.close()


def not_enqueued(verb: str, wanted: Sequence[object]) -> str:
    """What is said of jobs whose enqueueing was not awaited."""
    names = ", ".join(str(getattr(one, "task", getattr(one, "name", type(one).__name__))) for one in wanted)
    return f"ctx.{verb}() of {names} was not awaited: write `await ctx.{verb}(…)`"


class AsyncBlock(Promise, AbstractAsyncContextManager[T], Generic[T]):
    """A block for `async with`; what else is tried with it is answered by what is right."""

    def __init__(self, block: AbstractAsyncContextManager[T], mistake: str) -> None:
        super().__init__(mistake)
        self._block = block

    async def __aenter__(self) -> T:
        self.kept = True
        return await self._block.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> bool | None:
        return await self._block.__aexit__(kind, error, trace)

    def __await__(self) -> NoReturn:
        raise HandlerMistake(self.mistake)

    def __enter__(self) -> NoReturn:
        raise HandlerMistake(self.mistake)

    def __exit__(self, *_: object) -> None: ...


class SyncBlock(Promise, AbstractContextManager[T], Generic[T]):
    """A block for `with`."""

    def __init__(self, block: AbstractContextManager[T], mistake: str) -> None:
        super().__init__(mistake)
        self._block = block

    def __enter__(self) -> T:
        self.kept = True
        return self._block.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> bool | None:
        return self._block.__exit__(kind, error, trace)
