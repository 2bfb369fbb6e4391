"""What somebody raised, read without trusting it: an exception may be circular, or run any code when it is asked.

Of every error we read a few attributes and its text. What is read here raises nothing and goes round in no circle; only
code of the exception's own may still take its time, and `tame` says where there is none.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache
from types import MemberDescriptorType, TracebackType
from typing import Any, Final, Protocol
from uuid import UUID

_LINKS: Final = 16  # of a chain of causes that are looked at
_SHORT_TEXT: Final = 2048  # characters; masking more takes its time
MOST_NAMES: Final = 1000  # that an exception or its class may have
#: What can be looked at without running anybody's code.
PLAIN: Final = frozenset({str, int, float, bool, bytes, type(None), timedelta, UUID})
#: Whose code is quick: the interpreter's, the driver's and ours.
TRUSTED: Final = frozenset({"builtins", "asyncio", "psycopg", "psycopg_pool", "mainspring"})
#: What is read of an exception.
READ: Final = (
    "__class__", "__dict__", "__getattr__", "__getattribute__", "__str__", "__cause__", "__traceback__",
    "args", "sqlstate", "pgcode", "diag", "orig", "message", "detail", "hint", "constraint_name", "column_name",
    "code", "error_class", "after", "longest", "need", "gate", "counts", "sent",
)  # fmt: skip
#: What the text of a built-in exception is made of, beside its arguments.
EXCEPTION_STATE: Final = ("errno", "strerror", "filename", "filename2", "msg", "encoding", "reason", "message")
STATEFUL: Final = (OSError, SyntaxError, ImportError, UnicodeError, BaseExceptionGroup)
UNSAID_TEXT: Final = "its text could not be read in time"

_name = type.__dict__["__name__"].__get__  # whatever a metaclass says
_mro = type.__dict__["__mro__"].__get__
_space = type.__dict__["__dict__"].__get__
_own = BaseException.__dict__["__dict__"].__get__
_args = BaseException.__dict__["args"].__get__
cause_of = BaseException.__dict__["__cause__"].__get__
_context = BaseException.__dict__["__context__"].__get__
_exceptions = BaseExceptionGroup.__dict__["exceptions"].__get__
_traceback = BaseException.__dict__["__traceback__"].__get__
_missing: Final = object()


class Enough(BaseException):
    """Raised in a thread that reads what somebody raised, so that it reads no more."""


class Ask(Protocol):
    """How something is asked for an attribute: `read` or `quiet`."""

    def __call__(self, thing: object, name: str, default: object = None, /) -> Any:
        """The attribute, or the default."""


def name_of(error: BaseException) -> str:
    """The name of its class."""
    return text(_name(type(error))) or ""


def names_of(error: BaseException) -> set[str]:
    """The names of its class and of those above it."""
    return {text(_name(kind)) or "" for kind in _mro(type(error))}


def module_of(error: BaseException) -> str:
    """The module of its class."""
    return text(_look_up(_space(type(error)), "__module__")) or ""


def traceback_of(error: BaseException) -> TracebackType | None:
    """Its traceback, whatever it says itself."""
    found: TracebackType | None = _traceback(error)
    return found


def read(thing: object, name: str, default: object = None) -> Any:
    """An attribute, or the default where it has none or does not give it."""
    try:
        return getattr(thing, name, default)
    except BaseException as problem:
        if _ours(problem):
            raise
        return default


def quiet(thing: object, name: str, default: object = None) -> Any:
    """The same without running code of anybody else's: of what has some, only what was set on it."""
    if not issubclass(type(thing), BaseException) or _tame(thing):  # type: ignore[arg-type]  # isinstance asks it
        return read(thing, name, default)
    found = plain(thing, name)  # type: ignore[arg-type]  # the same
    return default if found is None else found


def _ours(problem: BaseException) -> bool:
    """Whether it is meant for us: not raised by what is read, but by who wants us to stop."""
    interrupted = issubclass(type(problem), KeyboardInterrupt)
    return type(problem) is Enough or (interrupted and threading.current_thread() is threading.main_thread())


def text(value: object) -> str | None:
    """A text as it is, without what a class of its own would make of it; None if it is none."""
    return str.__str__(value) if issubclass(type(value), str) else None


def plain(error: BaseException, name: str) -> Any:
    """A value or exception that somebody set, on the exception or on its class; code there is not run, and is None."""
    spaces = (_own(error), *map(_space, _mro(type(error))))
    found = next((one for space in spaces if (one := _look_up(space, name)) is not _missing), None)
    if type(found) is MemberDescriptorType:  # as psycopg2 keeps its state
        with suppress(AttributeError, TypeError):
            found = found.__get__(error)
    return found if type(found) in PLAIN or issubclass(type(found), BaseException) else None


def _look_up(space: Any, name: str) -> Any:
    """What a namespace has under this name; one with keys of a kind of their own would be asked whether they are it."""
    if not _named(space):
        return _missing
    return dict.get(space, name, _missing) if issubclass(type(space), dict) else space.get(name, _missing)


def _named(space: Any) -> bool:
    """Whether its keys are names, and not too many to see that; a class's space is no dict."""
    own = issubclass(type(space), dict)
    count, keys = (dict.__len__(space), dict.__iter__(space)) if own else (len(space), iter(space))
    return count <= MOST_NAMES and all(type(key) is str for key in keys)


def said(error: BaseException, ask: Ask = read) -> str:
    """What it says of itself, or else the texts that it was made of."""
    if ask is quiet and not _tame(error):
        return UNSAID_TEXT
    try:
        return str.__str__(str(error))
    except BaseException as problem:
        if _ours(problem):
            raise
        return ", ".join(filter(None, map(text, _args(error)))) or "its text could not be read"


def links(error: BaseException, ask: Ask = read) -> Iterator[BaseException]:
    """The error, and what it wraps or was raised from: each once, and not for ever."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen and len(seen) < _LINKS:
        seen.add(id(one))
        yield one
        origin = ask(one, "orig")  # SQLAlchemy's; Django's is the cause
        one = origin if issubclass(type(origin), BaseException) else cause_of(one)


def connected(error: BaseException, most: int) -> int:
    """How many exceptions hang together with this one, by causes, contexts and groups; counted up to `most`."""
    seen: dict[int, BaseException] = {}
    found: list[BaseException | None] = [error]
    while found and len(seen) < most:
        one = found.pop()
        if one is not None and id(one) not in seen:
            seen[id(one)] = one
            found += [cause_of(one), _context(one)]
            if issubclass(type(one), BaseExceptionGroup):
                found += _exceptions(one)[:most]
    return len(seen)


def tame(error: BaseException) -> bool:
    """Whether reading it runs no code but known one, and masking what it says takes no time worth mentioning."""
    return all(map(_tame, links(error)))  # each is judged before it is asked for the next


def _tame(error: BaseException) -> bool:
    kind: type = type(error)
    if type(kind) is not type or not _known(kind):  # a class of classes might have a hash of its own
        return False
    own: dict[str, Any] = _own(error)
    if own and not (_named(own) and all(type(dict.get(own, name)) in PLAIN or name == "orig" for name in READ)):
        return False
    if issubclass(kind, STATEFUL) and any(type(getattr(error, name, None)) not in PLAIN for name in EXCEPTION_STATE):
        return False
    return _short(_args(error))


def _short(value: object) -> bool:
    """Whether it is shown with few characters, and by no code of its own."""
    size, found = 0, [value]
    while found and size <= _SHORT_TEXT:
        one: Any = found.pop()
        if type(one) in PLAIN:
            size += len(one) + 2 if type(one) in (str, bytes) else 8
        elif type(one) in (dict, list, tuple) and len(one) <= _SHORT_TEXT:
            size += 2
            found += [*one, *one.values()] if type(one) is dict else one
        else:
            return False
    return size <= _SHORT_TEXT


@lru_cache(maxsize=1024)
def _known(kind: type) -> bool:
    """Whether nothing that is read of such an exception is code of somebody else's."""
    return all(_named(_space(base)) and (_trusted(base) or _bare(base)) for base in kind.__mro__)


def _trusted(kind: type) -> bool:
    module = kind.__dict__.get("__module__", "builtins") if kind.__flags__ & 1 << 9 else "builtins"
    if type(module) is not str or module.partition(".")[0] not in TRUSTED:
        return False
    return getattr(sys.modules.get(module), text(_name(kind)) or "", None) is kind  # and not by its own account


def _bare(kind: type) -> bool:
    return all(type(kind.__dict__.get(name)) in PLAIN for name in READ)
