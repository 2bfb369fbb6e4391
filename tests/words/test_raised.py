"""Exceptions that go round in circles or run code of their own when they are read: they lose no text and no time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import psycopg
import pytest

from mainspring.db.wire.translate import first_words, is_refusal, is_transient, translate
from mainspring.observe import JsonFormatter
from mainspring.outcome import Failed, Failure, Permanent, RetryAfter, Snooze
from mainspring.text.raised import connected, links, plain, quiet, tame
from mainspring.worker.classify import classify, unreadable

T = TypeVar("T")


def in_time(what: Callable[[], T]) -> T:
    """The answer, if there is one: what goes round in a circle must not take the tests along."""
    found: list[T] = []
    thread = threading.Thread(target=lambda: found.append(what()), daemon=True)
    thread.start()
    thread.join(10)
    assert found, "it never came to an end"
    return found[0]


def own_cause() -> Exception:
    error = ValueError("round")
    error.__cause__ = error
    return error


def circle_of_causes() -> Exception:
    first, second = ValueError("round"), KeyError("other")
    first.__cause__, second.__cause__ = second, first
    return first


def own_origin() -> Exception:
    error = ValueError("round")
    error.orig = error  # type: ignore[attr-defined]  # as SQLAlchemy names it
    return error


def circle_of_origins() -> Exception:
    first, second = ValueError("round"), ValueError("round")
    first.orig, second.orig = second, first  # type: ignore[attr-defined]  # the same
    return first


def endless_origins() -> Exception:
    class Grows(Exception):
        @property
        def orig(self) -> Exception:
            return Grows("round")

    return Grows("round")


def long_chain() -> Exception:
    error = ValueError("round")
    for _ in range(10_000):
        above = ValueError("round")
        above.__cause__ = above.__context__ = error
        error = above
    return error


@pytest.mark.parametrize(
    "make", [own_cause, circle_of_causes, own_origin, circle_of_origins, endless_origins, long_chain]
)
def test_an_exception_without_an_end_is_read_in_a_few_steps(make: Callable[[], Exception]) -> None:
    error = make()

    assert in_time(lambda: (is_transient(error), is_refusal(error), translate(error))) == (False, False, None)
    assert len(list(links(error))) <= 16
    outcome = in_time(lambda: classify(error))
    assert isinstance(outcome, Failed)
    assert "round" in outcome.error.message


def test_what_an_exception_wraps_is_still_found_behind_others() -> None:
    lost = psycopg.errors.AdminShutdown("terminating connection")
    middle, outer = RuntimeError("middle"), RuntimeError("outer")
    middle.orig = lost  # type: ignore[attr-defined]  # as SQLAlchemy names it
    outer.__cause__ = middle

    assert is_transient(outer)


class Refusal(BaseException):
    """Nothing that `except Exception` would catch."""


class Raises:
    def __getattr__(self, name: str) -> Any:
        raise Refusal


class Loud(str):
    __slots__ = ()

    def __str__(self) -> str:
        raise Refusal

    def __format__(self, spec: str) -> str:
        raise Refusal

    def encode(self, *arguments: Any) -> bytes:
        raise Refusal


class Key:
    """Has the hash of a name, and is asked whether it is that name; the interpreter asks while it makes a class."""

    def __init__(self, name: str) -> None:
        self._hash = hash(name)
        self.asked: Callable[[], bool] = lambda: False

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self.asked()


def refuse() -> bool:
    raise Refusal


def keyed_class(name: str, *names: str) -> type[Exception]:
    keys = [Key(each) for each in names]
    made = type(name, (Exception,), dict.fromkeys(keys))  # type: ignore[arg-type]  # that is the point
    for key in keys:
        key.asked = refuse
    return made


class OddHash(type):
    def __hash__(cls) -> int:
        raise Refusal


class BadHash(Exception, metaclass=OddHash):
    pass


class BadState(Exception):
    @property
    def sqlstate(self) -> str:
        raise Refusal


class OddState(Exception):
    sqlstate = object()
    pgcode = 57


class BadDiagnosis(Exception):
    sqlstate = "40001"
    diag = Raises()


class BadOrigin(Exception):
    orig = Raises()


class BadArguments(Exception):
    @property
    def args(self) -> Any:  # type: ignore[override]  # that is the point
        raise Refusal


class BadEverything(Exception):
    def __getattribute__(self, name: str) -> Any:
        raise Refusal


class BadText(Exception):
    def __str__(self) -> str:
        raise Refusal


class NoText(Exception):
    def __str__(self) -> str:
        return 7  # type: ignore[return-value]  # that is the point


class LoudText(Exception):
    def __str__(self) -> str:
        return Loud("the words")


class OddMeta(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]  # that is the point
        raise Refusal


class BadName(Exception, metaclass=OddMeta):
    pass


KINDS = {
    "state": BadState, "no state": OddState, "diagnosis": BadDiagnosis, "origin": BadOrigin, "arguments": BadArguments,
    "everything": BadEverything, "text": BadText, "no text": NoText, "loud text": LoudText, "name": BadName,
}  # fmt: skip


@pytest.mark.parametrize("what", KINDS)
def test_a_hostile_exception_loses_no_text(what: str) -> None:
    kind = KINDS[what]
    error = kind("the words")

    assert first_words(error) == "the words"
    outcome = classify(error)
    assert isinstance(outcome, Failed)
    assert "the words" in outcome.error.message
    assert not tame(error)


def test_what_an_exception_means_does_not_hang_on_its_text() -> None:
    class Final(Permanent):
        def __str__(self) -> str:
            raise RuntimeError

    class Odd(Failure):
        code = property(lambda self: 7, lambda self, value: None)

    class Later(RetryAfter):
        after = property(lambda self: "soon", lambda self, value: None)

    final, odd, later = classify(Final("the words")), classify(Odd("the words")), classify(Later(5, "the words"))

    assert isinstance(final, Failed)
    assert (final.error.code, final.error.error_class, final.error.message) == (
        "BUSINESS_RULE", "permanent", "the words",
    )  # fmt: skip
    assert isinstance(odd, Failed)
    assert (odd.error.code, odd.error.error_class) == ("INTERNAL_ERROR", "retryable")
    assert isinstance(later, Failed)
    assert (later.after, later.error.message) == (None, "the words")


class Plain(Exception):
    pass


class Worded(Exception):
    def __str__(self) -> str:
        return "mine"


def test_common_exceptions_run_no_code_of_their_own() -> None:
    wrapped = Plain("no")
    wrapped.__cause__ = psycopg.errors.UniqueViolation("dup")
    common = [ValueError("no"), KeyError("no"), OSError(2, "no", "/tmp/x"), TimeoutError(), Plain("no", 7), wrapped]
    ours = [Permanent("no"), Snooze(3), RetryAfter(3), psycopg.errors.UniqueViolation("dup")]

    assert all(map(tame, [*common, *ours]))


def test_values_that_show_themselves_are_tame_if_they_are_few() -> None:
    circular: list[Any] = []
    circular.append(circular)

    assert tame(ValueError({"order": [7, ("a", None)]}))
    assert not any(map(tame, [ValueError({"order": Worded()}), ValueError(circular), ValueError(["x"] * 1000)]))


def test_what_was_set_on_an_exception_is_seen_without_running_its_code() -> None:
    class Hostile(Exception):
        sqlstate = "40001"

        def __getattribute__(self, name: str) -> Any:
            raise AssertionError(name)

    class Slotted(Exception):
        __slots__ = ("pgcode", "sqlstate")
        pgcode: str
        __getattribute__ = Hostile.__getattribute__

    slotted = Slotted()
    slotted.pgcode = "25006"

    assert plain(Hostile(), "sqlstate") == "40001"
    assert (plain(slotted, "pgcode"), plain(slotted, "sqlstate")) == ("25006", None)
    assert (is_transient(Hostile(), quiet), is_refusal(slotted, quiet)) == (True, True)


def odd_exceptions() -> Iterator[BaseException]:
    yield Worded()
    yield Plain(Worded())  # its text would be asked for its own
    yield KeyError(object())
    yield OSError(2, "no", Loud("/tmp/x"))
    yield Plain("x" * 120_000)
    set_later = Plain("no")
    set_later.diag = Raises()  # type: ignore[attr-defined]  # that is the point
    yield set_later
    caused = Plain("no")
    caused.__cause__ = Worded()
    yield caused
    forged = type("UniqueViolation", (Exception,), {"__module__": "psycopg.errors", "__str__": Worded.__str__})
    yield forged()
    numbered = OSError(2, "no")
    numbered.errno = Raises()  # type: ignore[assignment]  # that is the point
    yield numbered
    undecoded = UnicodeDecodeError("utf8", b"x", 0, 1, "no")
    undecoded.reason = Raises()  # type: ignore[assignment]  # that is the point
    yield undecoded
    undecoded = UnicodeDecodeError("utf8", b"x", 0, 1, "no")
    undecoded.encoding = Loud("utf8")
    yield undecoded
    group = ExceptionGroup(Loud("several"), [ValueError()])
    group.args = ()
    yield group
    keyed = Plain("no")
    keyed.__dict__[Key("sqlstate")] = 7  # type: ignore[index]  # that is the point
    yield keyed
    yield keyed_class("Keyed", "__str__")("no")
    yield keyed_class("Keyed", "__module__")("no")
    yield BadHash("no")
    crowded = Plain("no")
    crowded.__dict__.update(dict.fromkeys(map(str, range(10_000))))
    yield crowded


def test_what_would_run_code_of_its_own_or_take_long_is_known_before_it_is_read() -> None:
    assert [error for error in odd_exceptions() if tame(error)] == []


def test_keys_and_names_of_a_kind_of_their_own_are_not_asked_what_they_are() -> None:
    error = keyed_class(Loud("Keyed"), "sqlstate", "__module__", "counts")("no")
    key = Key("sqlstate")
    error.__dict__[key] = 7  # type: ignore[index]  # that is the point
    key.asked = refuse

    assert [plain(error, name) for name in ("sqlstate", "counts")] == [None, None]
    outcome = unreadable(error)
    assert isinstance(outcome, Failed)
    assert outcome.error.message == "Keyed: its text could not be read in time"


def test_a_line_of_the_log_shows_no_chain_without_an_end() -> None:
    lines = []
    for error in (own_cause(), long_chain()):
        record = logging.makeLogRecord({"msg": "it failed", "exc_info": (type(error), error, None)})
        lines.append(in_time(partial(JsonFormatter().format, record)))
    assert "ValueError: round" in lines[0]
    assert "(raised from at least 49 others, left out)" in lines[1]
    group = ExceptionGroup("several", [ValueError(str(n)) for n in range(100_000)])
    assert connected(group, 50) == 50
