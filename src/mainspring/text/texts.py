"""Names, ids, keys and reasons: what a text must be to be stored, found again and shown."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_NAME: Final = 200  # tasks, organisations, actors, requests
MAX_QUEUE: Final = 63
MAX_KEY: Final = 512
MAX_REASON: Final = 1000  # why somebody does something to a job or a queue

# Control characters, line separators, lone surrogates, and the marks that reorder text on a screen.
_UNFIT: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

#: Control characters, lone surrogates, and what is invisible or turns the direction of writing: an escape code in a
#: name must not clear an operator's screen, and a text must not read otherwise than it is.
UNSEEN: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)


def text_problem(value: object, limit: int) -> str | None:
    """What is wrong with a name, an id or a key; None if nothing is.

    >>> text_problem("", 200)
    'is empty'
    """
    if not isinstance(value, str):
        return "is missing" if value is None else "is not a text"
    if not value or value.isspace():
        return "is empty"
    if len(value) > limit:
        return f"is longer than {limit} characters"
    if not value.isprintable() and _UNFIT.search(value):
        return "has a control character"
    return None


def holder_problem(value: object) -> str | None:
    """What is wrong with a name of somebody who comes in; None if nothing is. None may look like another.

    >>> [holder_problem(name) for name in ("olga", " olga", "ol\u200bga", "..", "System")]
    [None, 'begins or ends with a space', 'has an invisible character', 'is a step in an address', 'is the engine']
    """
    if problem := text_problem(value, MAX_NAME):
        return problem
    name = str(value)
    if name.strip() != name:
        return "begins or ends with a space"
    if UNSEEN.search(name):
        return "has an invisible character"
    if name.upper() == "SYSTEM":  # who acts in the trail where nobody does
        return "is the engine"
    return "is a step in an address" if name in (".", "..") else None


def shown(name: str) -> str:
    r"""A name from outside as an error may repeat it: short, and harmless to a terminal.

    >>> shown("a\x1bb" * 20)
    'a�ba�ba�ba�ba�ba�ba�ba�ba�ba�ba�ba�ba�ba…'
    """
    name = _UNFIT.sub("�", name[:41])
    return name if len(name) <= 40 else f"{name[:40]}…"


def line(value: str) -> str:
    r"""A text in one line that cannot drive a terminal.

    >>> print(line("a\x1b[2Jb\nc"))
    a\x1b[2Jb\nc
    """
    return UNSEEN.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), value)


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """The end of an error message: the nearest known word, if one is near.

    >>> "unknown option 'retires'" + did_you_mean("retires", ["retry", "queue"])
    "unknown option 'retires' (did you mean 'retry'?)"
    """
    near = get_close_matches(str(word)[:200], known, n=1, cutoff=0.6)
    return f" (did you mean {near[0]!r}?)" if near else ""
