"""`mainspring <noun> <verb>`: the command line.

Nouns are modules that are imported only when they are used, and they import what they need inside their commands, so
that help appears at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from cyclopts import App, CycloptsError

from mainspring import __version__
from mainspring.cli.exits import DATABASE, USAGE, complain, exit_code
from mainspring.errors import MainspringError

app = App(
    name="mainspring",
    help="Durable background jobs in PostgreSQL.",
    version=__version__,
    help_format="plaintext",
    result_action="return_value",
)
app.command("mainspring.cli.up:up", name="up", help="Run Mainspring with an example application, to see it work.")
app.command("mainspring.cli.worker:app", name="worker", help="Run workers, and see which are running.")
app.command("mainspring.cli.job:app", name="job", help="Enqueue, look at and change jobs.")
app.command("mainspring.cli.queue:app", name="queue", help="See, pause and resume queues.")
app.command("mainspring.cli.task:app", name="task", help="See the tasks of an application.")
app.command("mainspring.cli.schema:app", name="schema", help="Install and update the database schema.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; what went wrong is one line on stderr."""
    try:
        code = app(arguments, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        error.verbose = False
        complain(str(error))
        return USAGE
    except MainspringError as error:
        complain(str(error))
        return exit_code(error)
    except Exception as error:
        if not type(error).__module__.startswith("psycopg"):
            raise  # a mistake of ours, or of the application: its traceback is wanted
        complain(f"the database refused: {error}")
        return DATABASE
    except KeyboardInterrupt:
        return 130
    return code if isinstance(code, int) else 0
