"""`mainspring limit`: see and change how many jobs may start, and run at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec
from cyclopts import App

from mainspring.cli import output
from mainspring.cli.connection import UNSAID_CONNECTION, ConnectionOptions
from mainspring.cli.spans import TypedSpan
from mainspring.errors import ValidationError

if TYPE_CHECKING:
    from mainspring.db.limits import LimitRow
    from mainspring.limit import Limit

app = App(name="limit", help="See and change how many jobs start, and run at once.", help_format="plaintext")

COLUMNS = ("LIMIT", "OF", "RULE", "USED", "WAITING", "SAID BY")


@app.command(name="list")
def list_limits(*, connection: ConnectionOptions = UNSAID_CONNECTION) -> None:
    """Show every limit, how much of it is used, and how many jobs wait because of it.

    USED is what was let in during the last window, or runs now; of a limit by
    organisation or strand, for the one that has used most.
    """
    with connection.client() as client:
        found = client.limits.list()
    if connection.json:
        return output.as_json([_document(row) for row in found])
    rows = ((row.name, row.target, row.words, _used(row), _waiting(row), _said_by(row)) for row in found)
    return output.table(COLUMNS, rows, "There are no limits.")


@app.command
def show(name: str, *, connection: ConnectionOptions = UNSAID_CONNECTION) -> None:
    """Show one limit.

    Args:
        name: The limit's name, such as rate:weekly-payments.
        connection: The database.
    """
    with connection.client() as client:
        row, now = client.limits.get(name), client.now()
    if connection.json:
        return output.as_json(_document(row))
    about = {"name": row.name, "of": row.target, "rule": row.words, "used": _used(row), "waiting": _waiting(row)}
    return output.fields({**about, "said by": _said_by(row), "since": row.set_at}, now=now)


@app.command(name="set")
def set_limit(
    name: str,
    *,
    queue: str | None = None,
    task: str | None = None,
    by: Literal["all", "org", "strand"] | None = None,
    rate: int | None = None,
    per: TypedSpan | None = None,
    concurrency: int | None = None,
    in_order: bool | None = None,
    reason: str | None = None,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> None:
    """Set a limit, or change one; what is not said stays as it is.

    It holds at once, for all workers, and wins over what the code declares until
    `limit reset`.

        mainspring limit set rate:payments --rate 20 --reason "the bank asked"
        mainspring limit set exports --queue exports --concurrency 2 --by org

    Args:
        name: The limit's name.
        queue: The queue whose jobs it holds, for a new one.
        task: Or the task; with --app it must be one of the application's.
        by: Whether it counts all together, each organisation, or each strand.
        rate: So many may start in any window.
        per: The window: 500ms, 1s, 5m.
        concurrency: So many may run at once.
        in_order: Run the jobs of a strand one after another.
        reason: Why, for the audit trail.
        connection: The database, and who acts.
    """
    from mainspring.limit import Limit

    if sum((rate is not None, concurrency is not None, bool(in_order))) > 1:
        raise ValidationError("rate: give one of --rate, --concurrency and --in-order", field="rate")
    application = connection.application()
    if application and task is not None:
        application.registry.get(task)  # a name that leads nowhere is told at once
    with connection.client() as client:
        old = next((row for row in client.limits.list() if row.name == name), None)
        if old is not None and rate is None and concurrency is None and not in_order:
            rate, concurrency = old.rate, old.concurrency
        if old is not None and queue is None and task is None:
            queue, task = old.queue, old.task
        if old is None and queue is None and task is None:
            text = f"name: there is no limit {name} yet; a worker brings those of its application"
            raise ValidationError(f"{text}; to make one, give --queue or --task", field="name")
        ordered = (
            (old is not None and old.in_order and rate is None and not concurrency) if in_order is None else in_order
        )
        limit = Limit(
            name=name,
            queue=queue,
            task=task,
            by="strand" if ordered else by or (old.by if old else "all"),
            rate=rate,
            per=per if per is not None else old.per if old and rate is not None else None,
            concurrency=1 if ordered else concurrency,
            in_order=ordered,
        )
        client.limits.set(limit, reason=reason)
        row = client.limits.get(name)
    if connection.json:
        return output.as_json(_document(row))
    return output.say(f"{row.name}: {row.target}, {row.words}{_before(old)}")


@app.command
def drop(name: str, *, reason: str | None = None, connection: ConnectionOptions = UNSAID_CONNECTION) -> None:
    """Take a limit away; jobs that waited because of it start as others do.

    Args:
        name: The limit's name.
        reason: Why, for the audit trail.
        connection: The database, and who acts.
    """
    with connection.client() as client:
        row = client.limits.get(name)
        client.limits.drop(name, reason=reason)
    if connection.json:
        return output.as_json({"name": name, "dropped": True, "app": row.app})
    back = f"; the code of {row.app} declares it, and brings it back when a worker starts" if row.app else ""
    return output.say(f"{name} is dropped{back}")


@app.command
def reset(name: str, *, reason: str | None = None, connection: ConnectionOptions = UNSAID_CONNECTION) -> None:
    """Let what the code declares hold again, after somebody said otherwise.

    Args:
        name: The limit's name.
        reason: Why, for the audit trail.
        connection: The database, and who acts.
    """
    with connection.client() as client:
        done = client.limits.reset(name, reason=reason)
        row = client.limits.get(name)
    if connection.json:
        return output.as_json(_document(row) | {"reset": done})
    why = (
        "as the code says" if done else "nobody had said otherwise than the code" if row.app else "no code declares it"
    )
    return output.say(f"{name}: {row.words} ({why})")


def _document(row: LimitRow) -> dict[str, object]:
    per = None if row.per is None else row.per.total_seconds()
    return {**msgspec.structs.asdict(row), "per": per, "words": row.words}


def _used(row: LimitRow) -> str:
    of = row.rate if row.rate is not None else row.concurrency
    return f"{row.used} of {of}" + (f", {row.keys} keys" if row.by != "all" else "")


def _waiting(row: LimitRow) -> str:
    from mainspring.db.limits import MOST_WAITING_COUNTED

    return f"{row.waiting}{'+' * (row.waiting >= MOST_WAITING_COUNTED)}"


def _said_by(row: LimitRow) -> str:
    if row.declared:
        return f"the code of {row.app}"
    return row.set_by + (f", over the code of {row.app}" if row.overrides else "")


def _before(old: Limit | None) -> str:
    return "" if old is None else f" (before: {old.words})"
