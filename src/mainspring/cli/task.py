"""`mainspring task`: see the tasks of an application."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from mainspring.cli import output
from mainspring.cli.connection import UNSAID_CONNECTION, ConnectionOptions

app = App(name="task", help="See the tasks of an application.", help_format="plaintext")


@app.command(name="list")
def list_tasks(
    *,
    everything: Annotated[bool, Parameter(name="--all", negative="", show_default=False)] = False,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> None:
    """Show the tasks of an application.

    Args:
        everything: Those of the built-in maintenance, too.
        connection: The database, and who acts.
    """
    from mainspring.declare.registry import ENGINE_REGISTRY

    found = connection.needed_application().registry
    tasks = sorted((task for task in found if everything or task.app != ENGINE_REGISTRY), key=lambda task: task.name)
    if connection.json:
        return output.as_json([task.describe() for task in tasks], secrets=False)
    rows = ((task.name, task.queue, task.runs, task.retry.describe(), task.doc) for task in tasks)
    return output.table(("TASK", "QUEUE", "RUNS", "RETRY", "ABOUT"), rows, "The application has no tasks.")


@app.command
def show(task: str, *, connection: ConnectionOptions = UNSAID_CONNECTION) -> None:
    """Show one task: every option with its value, and the schema of its payload.

    Args:
        task: The task's name.
        connection: The database, and who acts.
    """
    about = connection.needed_application().registry.get(task).describe()
    output.as_json(about, secrets=False) if connection.json else output.fields(about, secrets=False)
