"""`mainspring worker`: run workers, and see which are running."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from mainspring.cli import output
from mainspring.cli.connection import UNSAID_CONNECTION, ConnectionOptions
from mainspring.cli.logs import LogFormat
from mainspring.errors import ValidationError

if TYPE_CHECKING:
    from mainspring.cli.observers import Observers
    from mainspring.worker import Worker

app = App(name="worker", help="Run workers, and see which are running.", help_format="plaintext")

_YOUNG_OBJECTS = 10_000  # so many new objects until the next look for garbage
COLUMNS = ("WORKER", "HOST", "PID", "VERSION", "RUNNING", "LEASES", "STARTED", "SEEN", "STATE", "TASKS", "QUEUES")
_LINGER_S = 5.0  # seconds that a worker for jobs that run alone waits for another


@app.command(name="list")
def list_workers(
    *,
    verbose: Annotated[bool, Parameter(name=["--verbose", "-v"], negative="", show_default=False)] = False,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> None:
    """Show worker processes, by their heartbeat.

    Args:
        verbose: Name the tasks that each knows, not only how many.
        connection: The database, and who acts.
    """
    with connection.client() as client:
        workers, now = client.workers(), client.now()
    if connection.json:
        return output.as_json(workers)
    rows = (
        (w.id, w.host, w.pid, w.version, f"{w.running}/{w.concurrency}", w.leases, w.started_at, w.seen_at,
         "gone" if w.gone else "stopping" if w.stopping else "working", w.tasks if verbose else len(w.tasks), w.queues)
        for w in workers
    )  # fmt: skip
    return output.table(COLUMNS, rows, "No worker is running.", now=now)


@app.command
def run(
    *,
    processes: int = 1,
    concurrency: int | None = None,
    threads: int | None = None,
    queues: str | None = None,
    metrics_port: int | None = None,
    metrics_host: str = "127.0.0.1",
    log_format: LogFormat | None = None,
    supervise: bool = True,
    parent: Annotated[int | None, Parameter(show=False)] = None,
    pulse: Annotated[int | None, Parameter(show=False)] = None,
    alone: Annotated[str | None, Parameter(show=False)] = None,
    after: Annotated[str | None, Parameter(show=False)] = None,
    died_at: Annotated[float, Parameter(show=False)] = 0.0,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> int:
    """Run jobs until SIGTERM or SIGINT; a second signal ends the grace period.

    A process that dies is started anew, also a single one; so is one whose event loop stands still for longer than its
    lease: it says where, gives back its other jobs and ends with exit code 70.

    It logs to stderr, words on a terminal and else JSON, unless the application has set up logging itself.

        mainspring worker run --app shop:app --processes 4

    Args:
        processes: How many worker processes.
        concurrency: How many async handlers at once in each.
        threads: How many plain functions at once in each.
        queues: The queues to serve with their weights, such as q:default,exports=2; else all that the tasks use.
        metrics_port: Show metrics to Prometheus on this port, and the next ones for further processes.
        metrics_host: The address that it listens on.
        log_format: How it logs, whatever the application has set up; none leaves that to the application alone.
        supervise: Start a single process anew as well; --no-supervise leaves that to systemd or Kubernetes.
        parent: The process that this one must not outlive.
        pulse: Where this one says that it lives.
        alone: The id of a worker that runs only jobs that must run alone, one after another, and ends.
        after: The id of the worker in whose place this one is started: its jobs wait for no lease.
        died_at: When that one died, by the monotonic clock.
        connection: The database, and who acts.
    """
    from mainspring.cli.logs import log_to_stderr
    from mainspring.cli.observers import checked_port

    if processes < 1:
        raise ValidationError("processes: must be at least 1", field="processes")
    limits = {"CONCURRENCY": concurrency, "THREADS": threads, "QUEUES": queues, "LOG": log_format}
    os.environ.update({f"MAINSPRING_{name}": str(value) for name, value in limits.items() if value is not None})
    port = checked_port(metrics_port)
    if processes > 1 and not supervise:
        raise ValidationError("supervise: several processes have a supervisor", field="supervise")
    if supervise and parent is None:
        log_to_stderr(json=connection.json)
        return _looping(_supervise(processes, connection, metrics_host, port))
    worker, observers = _worker(connection, alone, None if after is None else (after, died_at), pulse)
    faulthandler.enable()  # a signal that ends us from outside says where we stand
    log_to_stderr(json=connection.json)
    return _looping(_work(worker, observers, parent, alone is not None, metrics_host, port), worker.escaped)


def _worker(
    connection: ConnectionOptions, alone: str | None, after: tuple[str, float] | None, mouth: int | None
) -> tuple[Worker, Observers]:
    from mainspring.cli.observers import Observers
    from mainspring.cli.pulse import fuse, speaker
    from mainspring.worker import Hosting, Worker

    app = connection.running_application()
    dsn = connection.address(app)
    observers = Observers(app, dsn, app.schema)
    app.told.become(observers.told)
    about = app.worker_options() | {"observers": observers.all}
    hosting = Hosting(own_process=True, after=after)
    if alone is None:
        pulse = None if mouth is None else speaker(mouth, hosting.id)
        hosting = replace(hosting, cell=["worker", "run", *_given(connection)], pulse=pulse)
    else:
        hosting = replace(hosting, id=alone, alone=True, pulse=fuse)
        small = {"concurrency": 1, "threads": 1, "processes": 1, "transactions": 1, "exchanges": 1}
        about["config"] = replace(about["config"], **small, wakeups=False, scheduler=False)
    return Worker(dsn, app.registry, hosting=hosting, **about), observers


def collect_seldom() -> None:
    """Collect garbage as a process that only works should: what is loaded stays, and few jobs leave cycles behind.

    Measured: a tenth to a quarter of the CPU time of a drain. Not for a program that a worker is embedded in, whose
    memory is its own affair. An application that has switched the collector off, or made it rarer, is left alone.
    """
    gc.collect()
    gc.freeze()
    young, *others = gc.get_threshold()
    if young:  # zero is off
        gc.set_threshold(max(young, _YOUNG_OBJECTS), *others)


async def _work(
    worker: Worker, observers: Observers, parent: int | None, alone: bool, host: str, port: int | None
) -> int:
    collect_seldom()
    log = logging.getLogger("mainspring.worker")
    log.info("worker %s starts", worker.id)
    if port is not None:
        observers.serve(worker, host, port)
    looking = asyncio.create_task(observers.look())
    watches = [asyncio.create_task(_stop_without(parent, worker.request_stop))] if parent else []
    watches += [asyncio.create_task(_stop_idle(worker))] if alone else []
    await worker.run()
    looking.cancel()
    log.info("worker %s stopped: %d jobs succeeded", worker.id, worker.counts["succeeded"])
    for watch in watches:
        watch.cancel()
    # A thread or task that does not look at its token would keep us here for ever; its job was given back.
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)


async def _stop_without(parent: int, stop: Callable[[], None]) -> None:
    while os.getppid() == parent:  # noqa: ASYNC110 (nothing tells us that it is gone: we must look)
        await asyncio.sleep(1)
    stop()


async def _stop_idle(worker: Worker) -> None:
    """Nothing is left that must run alone: whoever finds more starts another process."""
    claimed, since = -1, time.monotonic()
    while time.monotonic() < since + _LINGER_S:
        await asyncio.sleep(0.5)
        if worker.running or worker.counts["claimed"] != claimed:
            claimed, since = worker.counts["claimed"], time.monotonic()
    worker.request_stop()


def _given(connection: ConnectionOptions) -> list[str]:
    """What this process was told, for another."""
    options = {"--dsn": connection.dsn, "--schema": connection.schema, "--app": connection.app}
    given = [part for name, value in options.items() if value is not None for part in (name, value)]
    return [*given, *(["--json"] if connection.json else [])]


async def _supervise(processes: int, connection: ConnectionOptions, host: str, port: int | None) -> int:
    from mainspring.cli.supervisor import Supervisor

    given = _given(connection)
    given += [] if port is None else ["--metrics-host", host]
    each = None if port is None else lambda number: ["--metrics-port", str(port + number)]
    supervisor = Supervisor(["worker", "run", *given], processes, each=each)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, supervisor.stop)
    return await supervisor.run()


def _looping(work: Coroutine[Any, Any, int], escaped: Callable[[BaseException], None] = lambda _: None) -> int:
    """Run on uvloop where it is installed; `escaped` is told what leaves the loop before it is closed."""
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    with suppress(ImportError):
        from uvloop import new_event_loop as loop_factory
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        try:
            return runner.run(work)
        except BaseException as error:
            escaped(error)
            raise
