"""What is asked for among jobs, and a job as a list shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final
from uuid import UUID

import msgspec
from msgspec.structs import asdict

from mainspring.db.search import JobLine, JobPlace, JobRow, JobsFound, Sought, search
from mainspring.errors import ValidationError
from mainspring.states import State
from mainspring.text.texts import MAX_NAME, text_problem
from mainspring.web.api.asking import Asking
from mainspring.web.api.terms import JobKey, QueueName, Since, TaskName, Until

#: So much of an error stands in a list, and so many fields of a payload, each so long.
MOST_SAID: Final = 500
MOST_FIELDS, MOST_VALUE = 4, 100

Traced = Annotated[
    str, msgspec.Meta(min_length=1, max_length=MAX_NAME, description="The id that a request or a story carries.")
]
Project = Annotated[UUID, msgspec.Meta(description="A project.")]
IdDigits = Annotated[
    str,
    msgspec.Meta(min_length=8, max_length=36, description="The first digits of an id, eight or more."),
]
SearchText = Annotated[
    str,
    msgspec.Meta(
        min_length=2,
        max_length=200,
        description="A text in what is shown of payload and error, whatever its case; only beside another filter.",
    ),
]


class JobFilter(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Which jobs are meant; what is left out means any. Times are from an instant on, and up to before one."""

    state: tuple[State, ...] = ()
    queue: QueueName | None = None
    task: TaskName | None = None
    project: Project | None = None
    correlation: Traced | None = None
    request: Traced | None = None
    key: JobKey | None = None
    prefix: IdDigits | None = None
    created_from: Since | None = None
    created_to: Until | None = None
    due_from: Since | None = None
    due_to: Until | None = None
    finished_from: Since | None = None
    finished_to: Until | None = None
    text: SearchText | None = None

    @property
    def says(self) -> set[str]:
        """What it asks for, by the names of its fields."""
        return {name for name, value in asdict(self).items() if value not in (None, ())}


class JobSummary(JobRow, frozen=True, kw_only=True):
    """A job as a list shows it: `about` is the beginning of what it carries, masked; `code` and `message` its error."""

    about: dict[str, Any]


async def find_jobs(
    asking: Asking, only: JobFilter, *, after: JobPlace | None = None, limit: int, parent: UUID | None = None
) -> JobsFound:
    """The jobs that are meant, from a place on; a text is looked for in what may be shown, never behind a mask."""
    if only.text is not None and only.says == {"text"}:
        raise ValidationError("text: is looked for beside another filter only", field="text")
    for name, value in asdict(only).items():
        if isinstance(value, str) and (problem := text_problem(value, 1000)):
            raise ValidationError(f"{name}: {problem}", field=name)
    meant = {name: getattr(only, name) for name in only.says - {"text"}}
    fits = None if only.text is None else _holds(asking, only.text.casefold())
    return await asking.ask(
        search(asking.sql, asking.who, Sought(**meant, parent=parent), after=after, limit=limit, fits=fits)
    )


def summary(asking: Asking, line: JobLine) -> JobSummary:
    """A job as a list shows it."""
    about = asdict(line)
    payload, message = _payload(asking, about.pop("payload")), line.message and asking.show(line.message)[:MOST_SAID]
    shown = {name: value for name, value in payload.items() if not isinstance(value, dict | list)}
    first = dict(list(shown.items())[:MOST_FIELDS])
    about["about"] = {n[:MOST_VALUE]: v[:MOST_VALUE] if isinstance(v, str) else v for n, v in first.items()}
    return JobSummary(**about | {"message": message})


def _holds(asking: Asking, text: str) -> Callable[[JobLine], bool]:
    def holds(line: JobLine) -> bool:
        shown = msgspec.json.encode([_payload(asking, line.payload), asking.show(line.message)]).decode()
        return text in shown.casefold() or text in line.task.casefold()

    return holds


def _payload(asking: Asking, text: str | None) -> dict[str, Any]:
    try:
        shown: dict[str, Any] = {} if text is None else asking.show(msgspec.json.decode(text))
    except (msgspec.MsgspecError, RecursionError):  # put in by hand: a number that none of Python's can hold
        return {}
    return shown
