"""Watches: what is wrong, as a question that is asked again and again; each answer is an alert while it lasts."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from mainspring.errors import DeclarationError, ValidationError
from mainspring.health.alert import MAX_ALERT_TEXT, SEVERITIES, Severity, check_name
from mainspring.text.params import QueryParams, check_params
from mainspring.text.span import Span, read_span
from mainspring.text.texts import MAX_NAME, MAX_QUEUE, text_problem

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from mainspring.declare.task import Task

#: So many rows of a condition are looked at; while there are more, nothing is closed.
MOST_WATCH_ROWS: Final = 1000
#: An alert of this name says that a watch could not be asked; its subject is the watch's name.
BROKEN_WATCH_ALERT: Final = "watch-broken"
SHORTEST_WATCH_INTERVAL: Final = timedelta(seconds=1)
LONGEST_WATCH_INTERVAL: Final = timedelta(days=1)
#: What takes longer holds up the alerts of the others: it is a task, which opens its own.
LONGEST_WATCH_TIMEOUT: Final = timedelta(minutes=1)

#: (subject, text) or (subject, text, organisation) for each thing that is wrong now; a text may be None.
WatchRow: TypeAlias = Sequence[Any]
#: SQL that answers such rows, or an async function of a connection that does.
Condition: TypeAlias = "str | Callable[[AsyncConnection[Any]], Awaitable[Iterable[WatchRow]]]"


@dataclass(frozen=True, slots=True)
class Watch:
    """A condition, and the alert that stands for each row of it; made by `watch` and `watch_dead`."""

    name: str
    condition: Condition
    severity: Severity
    text: str
    every: timedelta
    close: bool
    params: QueryParams | None
    timeout: timedelta


def watch(
    name: str,
    condition: Condition,
    *,
    params: QueryParams | None = None,
    severity: Severity = "warning",
    text: str = "",
    every: Span = "1m",
    timeout: Span = "10s",
    close: bool = True,
) -> Watch:
    """Declare what is wrong while a condition answers rows of (subject, text); each opens an alert, and closes it.

    ::

        ms.watch(
            "expired-policy-active",
            "select 'policy ' || id, 'expired on ' || expires_on from policies"
            " where status = 'active' and expires_on < {schema}.now()::date - %(grace)s",
            params={"grace": 3},
            severity="critical",
        )

    A condition is one statement; `{schema}` is the engine's schema, and `params` are values for its `%(name)s`, or a
    function that is asked for them each time. It reads only, has `timeout` to answer, and 1,000 rows of it are looked
    at. A row without a text has `text`; a third column names the organisation. It may be an async function of a
    connection as well. With `close=False` a person closes what it opened.
    """
    try:
        check_name(name)
    except ValidationError as error:
        raise DeclarationError(f"watch: {error}") from None
    if name == BROKEN_WATCH_ALERT:
        raise DeclarationError(f"watch: name: {BROKEN_WATCH_ALERT} is the engine's own")
    if isinstance(condition, str):
        if not condition.strip():
            raise DeclarationError(f"watch {name}: condition: is not a query")
        try:
            if params is not None:
                check_params(condition, params)
        except ValidationError as error:
            raise DeclarationError(f"watch {name}: {error}") from None
    elif not iscoroutinefunction(condition):
        raise DeclarationError(f"watch {name}: condition: is neither a query nor an async function of a connection")
    elif params is not None:
        raise DeclarationError(f"watch {name}: params: are of a query; a function binds its own")
    if severity not in SEVERITIES:
        raise DeclarationError(f"watch {name}: severity: is not critical or warning")
    if not isinstance(text, str) or len(text) > MAX_ALERT_TEXT:
        raise DeclarationError(f"watch {name}: text: is not a text of at most {MAX_ALERT_TEXT} characters")
    pause, limit = read_span(every), read_span(timeout)
    if pause is None or not SHORTEST_WATCH_INTERVAL <= pause <= LONGEST_WATCH_INTERVAL or pause.microseconds:
        raise DeclarationError(f"watch {name}: every: is not whole seconds, from 1 second to 1 day")
    if limit is None or not timedelta(milliseconds=1) <= limit <= LONGEST_WATCH_TIMEOUT:
        raise DeclarationError(f"watch {name}: timeout: is not from 1 ms to 1 minute")
    return Watch(name, condition, severity, text, pause, close, params, limit)


def watch_dead(
    name: str,
    *tasks: Task[..., Any] | str,
    queue: str | None = None,
    subject: str = "",
    severity: Severity = "warning",
    every: Span = "1m",
) -> Watch:
    """Declare that a job of these tasks, or of a queue, that failed for good is an alert, until somebody decides on it.

    ::

        ms.watch_dead("auto-approval-failed", auto_approve, subject="time log {time_log_id}", severity="critical")

    `subject` names the thing by fields of the job's payload; `{task}` and `{job}` are the task's name and the job's id.
    Without one it is the field that the task names for logs, else the job. It closes when the dead letter is replayed,
    discarded or fixed forward.
    """
    names = [task if isinstance(task, str) else task.name for task in tasks]
    for which, limit in (*((one, MAX_NAME) for one in names), *([(queue, MAX_QUEUE)] if queue is not None else [])):
        if problem := text_problem(which, limit):
            raise DeclarationError(f"watch {name}: {problem}: it takes tasks, or a queue")
    if not names and queue is None:
        raise DeclarationError(f"watch {name}: needs a task or a queue")
    fields = {None if isinstance(task, str) else task.subject for task in tasks}
    if not subject:
        (field,) = fields if len(fields) == 1 else (None,)
        subject = f"{{task}} {{{field}}}" if field else "{task} {job}"
    where = [f"d.task in ({', '.join(map(_quoted, names))})"] * bool(names)
    where += [f"d.queue = {_quoted(queue)}"] if queue is not None else []
    condition = _DEAD.replace("<subject>", _filled(subject)).replace("<which>", " and ".join(where))
    return watch(name, condition, severity=severity, every=every)


#: Open dead letters, oldest first.
_DEAD: Final = """
select <subject>, concat_ws(': ', d.task, d.code, d.message), d.org_id
from {schema}.dead_letters d join {schema}.job j on j.id = d.id
where <which>
order by d.finished_at"""
_FIELD: Final = re.compile(r"\{(\w+)\}")


def _filled(template: str) -> str:
    """The expression that fills a template: what a payload lacks, or keeps encrypted, is the job's id.

    >>> _filled("booking {booking_id}")
    "concat('booking ', coalesce(j.payload ->> 'booking_id', j.id::text))"
    """
    known = {"task": "d.task", "job": "j.id"}
    parts = [
        known.get(part, f"coalesce(j.payload ->> {_quoted(part)}, j.id::text)") if place % 2 else _quoted(part)
        for place, part in enumerate(_FIELD.split(template))
        if part
    ]
    return f"concat({', '.join(parts)})"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def declared(watches: Sequence[Watch]) -> tuple[Watch, ...]:
    """Watches that may stand beside each other: a name is one watch's, since it closes what it did not find."""
    names: set[str] = set()
    for one in watches:
        if not isinstance(one, Watch):
            raise DeclarationError(f"watches: {one!r} is not made by watch or watch_dead")
        if one.name in names:
            raise DeclarationError(f"watch {one.name}: is declared twice")
        names.add(one.name)
    return tuple(watches)
