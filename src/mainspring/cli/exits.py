"""What a command's exit code says: one table."""

from __future__ import annotations

import sys

from mainspring.cli.output import line
from mainspring.errors import (
    BatchNotFound,
    ConfigurationError,
    DatabaseUnavailable,
    DeclarationError,
    HandlerMistake,
    JobError,
    JobNotFound,
    MainspringError,
    NotPermitted,
    QueueFull,
    ScheduleNotFound,
    SchemaError,
    SignatureRefused,
    UnknownName,
    UnknownTask,
    Unreadable,
    ValidationError,
)
from mainspring.text.sanitize import mask_shapes

USAGE_EXIT = 2  # the command was typed wrongly
DATABASE_EXIT = 5
LONGEST_COMPLAINT = 1000  # complaint, in characters

#: The first class that fits decides.
EXITS: tuple[tuple[type[MainspringError], int], ...] = (
    (UnknownName, 3),
    (ValidationError, 2),
    (ConfigurationError, 2),
    (ScheduleNotFound, 3),
    (JobNotFound, 3),
    (BatchNotFound, 3),
    (UnknownTask, 3),
    (DeclarationError, 2),
    (NotPermitted, 4),
    (Unreadable, 4),
    (SignatureRefused, 4),
    (JobError, 4),  # refused: the job's state, its key or its id does not allow it
    (HandlerMistake, 4),
    (QueueFull, 4),
    (DatabaseUnavailable, DATABASE_EXIT),
    (SchemaError, 6),
    (MainspringError, 1),
)

#: A worker that ends so before it works would end so again: nobody starts it anew.
HOPELESS = frozenset({2, 3, 6})


def exit_code(error: MainspringError) -> int:
    """The exit code for an error of ours."""
    return next(code for kind, code in EXITS if isinstance(error, kind))


def complain(message: str) -> None:
    """Say what is wrong, in one line; what somebody typed is not repeated in full."""
    text = line(" ".join(mask_shapes(message[: 4 * LONGEST_COMPLAINT]).split()))
    print("mainspring:", text if len(text) <= LONGEST_COMPLAINT else f"{text[:LONGEST_COMPLAINT]}…", file=sys.stderr)
