"""`mainspring <noun> <verb>`: the command line.

Nouns are modules that are imported only when they are used, and they import what they need inside their commands, so
that help appears at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper

from cyclopts import App, CycloptsError

from mainspring import __version__
from mainspring.cli.exits import DATABASE_EXIT, USAGE_EXIT, complain, exit_code
from mainspring.cli.usage import usage
from mainspring.errors import MainspringError
from mainspring.text.sanitize import mask

# The help of commands that stand alone: the first line is shown beside their name, all of it by `--help`.
TOP = """Watch throughput, latency, queues, workers and failures.

In a terminal it shows a new picture every second until q or Ctrl-C; with --json
it prints one object a second.

    mainspring top
    mainspring top --once | less
    mainspring top --json | jq .succeeded"""

DOCTOR = """Find out whether the database is fit for work.

Each finding says what to do. Exits with 1 if there is a problem, with 0 if there are only warnings.

    mainspring doctor
    mainspring doctor --json | jq '.findings[] | select(.level != "ok")'"""

COMPLETION = """Print a script for your shell to complete commands with Tab.

Put it where the shell looks. For zsh the directory must be in $fpath before compinit runs.

    mainspring completion bash > ~/.local/share/bash-completion/completions/mainspring
    mainspring completion zsh > ~/.zsh/_mainspring
    mainspring completion fish > ~/.config/fish/completions/mainspring.fish"""

UP = """Run an example, or your application, on a PostgreSQL of its own.

It starts PostgreSQL, installs the schema, runs a worker, and says every second
what happens. In another terminal, in this directory, all other commands find it.

    mainspring up
    mainspring up --app shop:app --processes 2"""

RUN_DUE = """Run what is due once, for machines without a worker.

For cron and serverless callers: it takes a bounded number of jobs within a bounded time, and says what came of them.
Calls may overlap with each other and with workers. It logs to stderr.

    mainspring run-due --app shop:app --limit 10
    mainspring run-due --app shop:app --budget 50s --json | jq .remaining"""

SERVE = """Serve an application over HTTP: health, metrics, runs, webhooks, its routes.

It listens on this machine only, unless CRON_SECRET is set. It encrypts nothing: put a proxy that ends TLS before it.
It prints its address and logs to stderr.

    mainspring serve --app shop:app
    mainspring serve --app shop:app --host 0.0.0.0 --port 8080 --proxy-headers 10.0.0.0/8"""

KICK = """Call the run endpoint of an application, once or again and again.

For cron on a machine without a worker. CRON_SECRET says that it may. Once: it exits with 1 unless the answer is a 2xx;
with --every: it logs an error line, counts, and goes on.

    mainspring kick --url https://shop.example
    mainspring kick --url https://shop.example --every 60s"""

SIMULATE = """Move an application through days in seconds, and see what happens when.

Its schedules and jobs run by the real scheduler and the real handlers, on a
virtual clock that jumps from one due instant to the next, in a scratch database
that is dropped afterwards. The same seed gives the same time line.

    mainspring simulate shop:app --from 2026-03-25 --for 8d
    mainspring simulate shop:app --from 2026-01-01 --for 365d --seed 7 --json"""

app = App(
    name="mainspring",
    help="Durable background jobs in PostgreSQL. New here: `mainspring up` runs an example.",
    version=__version__,
    help_format="plaintext",
    result_action="return_value",
)
app.command("mainspring.cli.up:up", name="up", help=UP)
app.command("mainspring.cli.worker:app", name="worker", help="Run workers, and see which are running.")
app.command("mainspring.cli.run_due:run_due", name="run-due", help=RUN_DUE)
app.command("mainspring.cli.serve:serve", name="serve", help=SERVE)
app.command("mainspring.cli.kick:kick", name="kick", help=KICK)
app.command("mainspring.cli.job:app", name="job", help="Enqueue, look at and change jobs.")
app.command("mainspring.cli.batch:app", name="batch", help="See how far batches are, retry what failed, cancel.")
app.command("mainspring.cli.dead:app", name="dead", help="Find dead letters, see why they died, and decide about them.")
app.command("mainspring.cli.queue:app", name="queue", help="See, pause and resume queues.")
app.command("mainspring.cli.schedule:app", name="schedule", help="See, create, pause and fire schedules.")
app.command("mainspring.cli.limit:app", name="limit", help="See and change how many jobs start, and run at once.")
app.command("mainspring.cli.breaker:app", name="breaker", help="See and force circuit breakers.")
app.command("mainspring.cli.quarantine:app", name="quarantine", help="See tasks that kill workers, and let them go.")
app.command("mainspring.cli.notification:app", name="notification", help="See what was sent to whom, and send again.")
app.command("mainspring.cli.webhook:app", name="webhook", help="Register endpoints, see deliveries, send one again.")
app.command("mainspring.cli.token:app", name="token", help="Make, see and revoke the tokens of programs.")
app.command("mainspring.cli.user:app", name="user", help="Let people in over HTTP, and out.")
app.command("mainspring.cli.task:app", name="task", help="See the tasks of an application.")
app.command("mainspring.cli.simulate:simulate", name="simulate", help=SIMULATE)
app.command("mainspring.cli.top:top", name="top", help=TOP)
app.command("mainspring.cli.doctor:doctor", name="doctor", help=DOCTOR)
app.command("mainspring.cli.audit:app", name="audit", help="See who did what, and check that nobody changed it.")
app.command("mainspring.cli.alert:app", name="alert", help="See what somebody should look at.")
app.command("mainspring.cli.measure:app", name="measure", help="See an application's own numbers.")
app.command("mainspring.cli.outbox:app", name="outbox", help="See what the sandbox received, and break things there.")
app.command("mainspring.cli.sandbox:app", name="sandbox", help="Run stand-ins for Stripe, SMS, mail and the rest.")
app.command("mainspring.cli.org:app", name="org", help="Rotate and erase the keys of organisations.")
app.command("mainspring.cli.schema:app", name="schema", help="Install and update the database schema.")
app.command("mainspring.cli.completion:completion", name="completion", help=COMPLETION)


#: Commands that installed applications have brought.
guests: set[str] = set()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; what went wrong is one line on stderr."""
    for stream in (sys.stdout, sys.stderr):  # whatever a job is called, its name can be printed
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        _invite(sys.argv[1:] if arguments is None else arguments)
        code = app(arguments, exit_on_error=False, print_error=False)
        sys.stdout.flush()
    except CycloptsError as error:
        complain(mask(usage(error)))
        return USAGE_EXIT
    except MainspringError as error:
        complain(str(error))
        return exit_code(error)
    except BrokenPipeError:  # whoever read what we print has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if not type(error).__module__.startswith("psycopg"):
            raise  # a mistake of ours, or of the application: its traceback is wanted
        said = getattr(error, "diag", None)  # its first words: the others repeat rows
        complain(f"the database refused: {(said and said.message_primary) or error}")
        return DATABASE_EXIT
    except KeyboardInterrupt:
        if sys.stderr.isatty():
            print(file=sys.stderr)  # the terminal wrote ^C into the line
        return 130
    return code if isinstance(code, int) else 0


def _invite(arguments: Sequence[str]) -> None:
    """Know the commands that installed applications bring by the group `mainspring.commands`: `mainspring shop …`.

    Looking for them reads the metadata of every package, so it is done only for whoever asks for what is not ours.
    """
    if arguments and arguments[0] in app and not arguments[0].startswith("-"):
        return
    from importlib.metadata import entry_points

    for point in entry_points(group="mainspring.commands"):
        if point.name not in app:
            app.command(point.value, name=point.name, help=f"What the application {point.name} brings.")
            guests.add(point.name)
