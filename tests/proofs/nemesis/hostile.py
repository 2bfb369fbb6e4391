"""Exceptions that harm whoever looks at them; each kind by a name, so that a payload can ask for it."""

from __future__ import annotations

from collections.abc import Callable


class Itself(Exception):
    """Says that it wraps itself, as a library's error might after a careless copy."""

    @property
    def orig(self) -> Exception:
        return self


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text for you")

    __repr__ = __str__


class Stateful(Exception):
    """A SQLSTATE of a wrong type, and a look at it that raises."""

    pgcode = 57014

    @property
    def sqlstate(self) -> object:
        return ["08006"]

    @property
    def diag(self) -> object:
        raise ValueError("no diagnosis")


class Greedy(Exception):
    """Whose every attribute is another one like it."""

    def __getattr__(self, name: str) -> Greedy:
        if name.startswith("__"):
            raise AttributeError(name)
        return Greedy(name)


def circular() -> BaseException:
    first, second = ValueError("the first is caused by the second"), KeyError("and the second by the first")
    first.__cause__, second.__cause__ = second, first
    first.__context__, second.__context__ = second, first
    return first


def deep() -> BaseException:
    error: BaseException = ValueError("the end of a long chain")
    for number in range(20_000):
        outer = RuntimeError(number)
        outer.__cause__ = error
        error = outer
    return error


def nested() -> BaseException:
    error: Exception = ValueError("in the middle")
    for number in range(50):
        error = ExceptionGroup(f"level {number}", [error, Unprintable()])
    return error


KINDS: dict[str, Callable[[], BaseException]] = {
    "circular": circular,
    "itself": lambda: Itself("wrapped by itself"),
    "unprintable": Unprintable,
    "stateful": lambda: Stateful("states"),
    "greedy": lambda: Greedy("greedy"),
    "deep": deep,
    "huge": lambda: ValueError("password=hunter2 " * 8_000),
    "dense": lambda: ValueError("https://u:p@h/?token=a&" * 5_000),
    "exit": lambda: SystemExit(3),
    "interrupt": lambda: KeyboardInterrupt("not from a keyboard"),
    "generator": lambda: GeneratorExit("not from a generator"),
    "stop": lambda: StopIteration("not from an iterator"),
    "group": nested,
    "surrogate": lambda: ValueError("\ud800 and \x00 are no text"),
}
