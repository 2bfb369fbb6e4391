"""What was typed wrongly, in one line that says what would be right."""

from __future__ import annotations

from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Any, Final
from uuid import UUID

from cyclopts import CoercionError, CycloptsError, MissingArgumentError, UnknownCommandError, UnusedCliTokensError
from cyclopts.argument import Argument

from mainspring.cli.ids import TypedId
from mainspring.uuid7 import FEWEST_DIGITS

SPAN_LIKE: Final = "a time span, such as 90s or 2h, or a number of seconds"
#: What a value of a type looks like, for somebody who typed something else.
LIKE: Final[dict[Any, str]] = {
    UUID: "an id, such as 0199d2f6-7a5b-7c34-9f3e-0a1b2c3d4e5f",
    TypedId: f"an id, such as 0199d2f6-7a5b-7c34-9f3e-0a1b2c3d4e5f, or its first {FEWEST_DIGITS} digits or more",
    datetime: "an instant, such as 2030-01-31T08:00:00Z",
    timedelta: SPAN_LIKE,
    timedelta | None: SPAN_LIKE,
    int: "a whole number",
    float: "a number",
}


def usage(error: CycloptsError) -> str:
    """The error, and where to read on."""
    error.verbose = False
    command = " ".join(["mainspring", *(error.command_chain or ())])
    what = _what(error)
    return f"{what}{'' if what.endswith(('.', '?')) else '.'} See `{command} --help`."


def _what(error: CycloptsError) -> str:
    match error:
        case MissingArgumentError(argument=Argument() as argument):
            typed = error.keyword or next((token.keyword for token in argument.tokens if token.keyword), None)
            return f"{typed}: needs a value" if typed else f"{_name(argument)}: is missing"
        case CoercionError(token=token, argument=argument) if token is not None and error.target_type in LIKE:
            name = token.keyword or (_name(argument) if argument else "it")
            return f'{name}: "{token.value}" is not {LIKE[error.target_type]}'
        case UnknownCommandError(unused_tokens=[first, *_]) if first.startswith("-"):
            return f"{first} stands in front of a command: options come after it"
        case UnknownCommandError(unused_tokens=[first, *_]):
            # Cyclopts would import every command to find the nearest one, those of applications too.
            near = get_close_matches(first, error.app or (), n=1, cutoff=0.6)
            return f'Unknown command "{first}".' + (f' Did you mean "{near[0]}"?' if near else "")
        case UnusedCliTokensError(unused_tokens=[first, *_]):
            return f'"{first}" is one word too many'
        case _:
            return str(error)


def _name(argument: Argument) -> str:
    """As `--help` shows it: in capitals what is typed without its name."""
    return argument.name if argument.index is None else argument.name.removeprefix("--").upper()
