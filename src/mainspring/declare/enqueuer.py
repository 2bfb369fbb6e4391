"""What `task.enqueue` sends by: the client of the one application that the task belongs to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mainspring.declare.caller import current_job
from mainspring.errors import ConfigurationError

if TYPE_CHECKING:
    from mainspring.declare.task import Task
    from mainspring.job import NewJob

#: Enqueues a job in the transaction of a connection, or in one of its own, in the colour of who calls.
Enqueuer = Callable[["NewJob", Any], Any]


def enqueuer(task: Task[..., Any, Any], conn: Any) -> Enqueuer:
    """The enqueuer of a task, or one sentence that says why there is none."""
    if conn is None and current_job() is not None:
        raise ConfigurationError(
            f"task {task.name}: in a handler say ctx.enqueue({task.name}.job(...)), so that it is enqueued with the "
            "job's success"
        )
    if task.home is None:
        raise ConfigurationError(f"task {task.name}: {_by_client(task)}, because it is in no registry")
    enqueuers = task.home.enqueuers()
    if not enqueuers:
        raise ConfigurationError(
            f"task {task.name}: its registry {task.home.name!r} is in no App: make one, App(…), or {_by_client(task)}"
        )
    if len(enqueuers) > 1:
        raise ConfigurationError(f"task {task.name}: is in {len(enqueuers)} Apps: {_by_client(task)} of one of them")
    return enqueuers[0]


def _by_client(task: Task[..., Any, Any]) -> str:
    return f"say client.enqueue({task.name}.job(...))"
