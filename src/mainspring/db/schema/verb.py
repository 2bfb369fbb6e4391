"""Verbs: functions, views and triggers. A migration replaces those whose text has changed, and touches no other.

They stand in `verbs/*.sql`, one file a subject, each as one `create or replace`; what stands in quotes may name what
comes later, and nothing else may, so the order in which they are made is read from the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from importlib.resources.abc import Traversable
from typing import Final

from mainspring.errors import DeclarationError

_TOKEN = re.compile(
    r"""
      (?P<comment>--[^\n]*)
    | (?P<quoted>\$(?P<tag>\w*)\$.*?\$(?P=tag)\$ | '(?:[^']|'')*')
    | (?P<end>;)
    | [^-$';]+ | .
    """,
    re.DOTALL | re.VERBOSE,
)
_HEAD = re.compile(
    r"create (?:or replace )?(?:(?P<kind>function|procedure|view) (?P<name>[\w{}\".]+)"
    r"|(?P<constraint>constraint )?trigger (?P<trigger>\w+) .*?\bon (?P<table>[\w{}\".]+))",
    re.DOTALL,
)
_NAME = re.compile(r"(?:\{schema\}|\w+)\.\w+")
_MEANT: Final = "one `create or replace` of a function, view or trigger, or one `create constraint trigger`"


@dataclass(frozen=True)
class Verb:
    """One function, view or trigger.

    >>> verb = Verb("create or replace function {schema}.now() returns timestamptz language sql return now()")
    >>> verb.name, verb.key
    ('{schema}.now', 'function {schema}.now()')
    """

    text: str  # without what is said above it

    @cached_property
    def _head(self) -> re.Match[str]:
        found = _HEAD.match(self.text)
        if found is None or ("or replace" in found[0]) is bool(found["constraint"]):
            raise DeclarationError(f"{' '.join(self.text.split())[:60]} … is not {_MEANT}")
        return found

    @property
    def kind(self) -> str:
        """What it is: function, procedure, view or trigger."""
        return self._head["kind"] or "trigger"

    @property
    def name(self) -> str:
        """By which others name it."""
        return self._head["name"] or f"{self._head['trigger']} on {self._head['table']}"

    @cached_property
    def key(self) -> str:
        """What no other has: functions of one name differ by their arguments."""
        if self.kind not in ("function", "procedure"):
            return f"{self.kind} {self.name}"
        rest = self.text[self._head.end() :]
        depth, end = 0, 0
        for end, letter in enumerate(rest, 1):  # noqa: B007 (its last value is what is looked for)
            depth += (letter == "(") - (letter == ")")
            if letter == ")" and not depth:
                break
        return f"{self.kind} {self.name}{' '.join(rest[:end].split())}"

    @property
    def digest(self) -> str:
        """Tells whether a database has it in this form."""
        return sha256(self.text.encode()).hexdigest()

    @property
    def statement(self) -> str:
        """The SQL that puts it in the place of what is there."""
        if self._head["constraint"]:  # PostgreSQL has no `or replace` for these
            return f"drop trigger if exists {self.name};\n{self.text};"
        return f"{self.text};"

    @cached_property
    def needs(self) -> frozenset[str]:
        """What must be there first: all that it names outside quotes."""
        bare = "".join(m[0] for m in _TOKEN.finditer(self.text) if not m["comment"] and not m["quoted"])
        return frozenset(_NAME.findall(bare)) - {self.name}


def read_verbs(folder: Traversable) -> tuple[Verb, ...]:
    """The verbs of a folder of SQL files, each after what it needs."""
    found: list[Verb] = []
    for file in sorted(folder.iterdir(), key=lambda f: f.name):
        if file.name.endswith(".sql"):
            try:
                found += map(Verb, _statements(file.read_text()))
                keys = [verb.key for verb in found]
            except DeclarationError as error:
                raise DeclarationError(f"{file.name}: {error}") from None
            if len(set(keys)) < len(keys):
                raise DeclarationError(f"{file.name}: {max(keys, key=keys.count)} stands twice")
    return tuple(ordered(found))


def whole(verbs: Iterable[tuple[str, str]]) -> str:
    """One digest for the keys and digests of many; a database computes the same."""
    return sha256("\n".join(sorted(f"{key} {digest}" for key, digest in verbs)).encode()).hexdigest()


def ordered(verbs: Sequence[Verb]) -> list[Verb]:
    """Each after what it needs, else as they came."""
    by_name: dict[str, list[Verb]] = {}
    for verb in verbs:
        by_name.setdefault(verb.name, []).append(verb)
    done: dict[str, Verb] = {}
    under_way: list[str] = []

    def take(verb: Verb) -> None:
        if verb.key in done:
            return
        if verb.key in under_way:
            raise DeclarationError(f"verbs: {', '.join([*under_way, verb.key])} each need the next")
        under_way.append(verb.key)
        for name in sorted(verb.needs & by_name.keys()):
            for other in by_name[name]:
                take(other)
        under_way.pop()
        done[verb.key] = verb

    for verb in verbs:
        take(verb)
    return list(done.values())


def _statements(text: str) -> Iterator[str]:
    """The statements of a text, without the comments above them."""
    statement = ""
    for token in _TOKEN.finditer(text):
        if token["end"]:
            yield statement.strip()
            statement = ""
        elif not token["comment"] or statement.strip():
            statement += token[0]
    if statement.strip():
        raise DeclarationError(f"{' '.join(statement.split())[:60]} … has no semicolon at its end")
