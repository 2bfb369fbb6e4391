"""`mainspring top`: what happens, second by second."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter

from mainspring.cli import output
from mainspring.cli.connection import UNSAID_CONNECTION, ConnectionOptions
from mainspring.cli.exits import complain
from mainspring.errors import DatabaseUnavailable

if TYPE_CHECKING:
    from mainspring.db.pulse import Board, Pulse

    Frame = tuple[str, Pulse, Board]

TOP_LOOK_S = 1.0  # seconds between two looks
FIRST_LOOK_BACK = timedelta(seconds=5)  # the first look goes so far back
_LOOKS_OF_A_LINE = 60  # so many looks are drawn as a line
_PIPE_WIDTH, _PIPE_HEIGHT = 120, 60  # where there is no terminal


def top(
    *,
    once: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> None:
    """Watch throughput, latency, queues, workers and failures.

    Args:
        once: Print what is seen now and end; so does a pipe.
        connection: The database, and who acts. With --json, one object a second in one line.
    """
    if connection.json:
        return _stream(connection, once)
    return _print(connection) if once or not sys.stdout.isatty() else _live(connection)


def _stream(connection: ConnectionOptions, once: bool) -> None:
    for _, pulse, board in _frames(connection, patient=not once):
        output.as_json({**msgspec.structs.asdict(pulse), **msgspec.structs.asdict(board)}, compact=True)
        if once:
            return
        time.sleep(TOP_LOOK_S)


def _print(connection: ConnectionOptions) -> None:
    from mainspring.cli.board import draw

    name, pulse, board = next(_frames(connection, patient=False))
    console = output.console(_PIPE_WIDTH)
    output.draw(console, draw(name, pulse, board, (), width=console.width, height=_PIPE_HEIGHT))


def _live(connection: ConnectionOptions) -> None:
    from rich.console import Console
    from rich.live import Live

    from mainspring.cli.board import draw

    console, history = Console(highlight=False), deque[float](maxlen=_LOOKS_OF_A_LINE)
    with _keys() as pressed, Live(console=console, screen=True, auto_refresh=False) as live:
        for name, pulse, board in _frames(connection, patient=True):
            history.append(pulse.per_second(pulse.succeeded))
            size = {"width": console.width, "height": console.height}
            live.update(draw(name, pulse, board, history, **size, hint="q quits  "), refresh=True)
            if pressed(TOP_LOOK_S) == "q":
                return


def _frames(connection: ConnectionOptions, *, patient: bool) -> Iterator[Frame]:
    """What is seen at each look; a database that is away is waited for, if `patient`, once it was seen."""
    from mainspring.db.jobs import now
    from mainspring.db.pulse import PULSE_LAG, board, pulse
    from mainspring.db.queues import GONE_AFTER
    from mainspring.db.schema.status import check, status
    from mainspring.db.wire.run import psycopg_door, run
    from mainspring.db.wire.sql import Sql

    since, seen = None, False
    while True:
        try:
            with connection.connect() as (conn, schema):
                check(status(conn, schema=schema))
                door, sql = psycopg_door(conn), Sql(schema)
                host = "this machine" if conn.info.host.startswith("/") else conn.info.host
                name = f"mainspring top · {conn.info.dbname} on {host}"
                while True:
                    since = since or run(door, now(sql)) - PULSE_LAG - FIRST_LOOK_BACK
                    moment = run(door, pulse(sql, since))
                    since, seen = moment.until, True
                    yield name, moment, run(door, board(sql, GONE_AFTER))
        except DatabaseUnavailable as error:
            if not patient or not seen:
                raise
            since = None
            complain(str(error))
            time.sleep(TOP_LOOK_S)


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Waits so many seconds for a key; without a terminal to read from it only waits."""

    def wait(seconds: float) -> str:
        time.sleep(seconds)
        return ""

    if not sys.stdin.isatty():
        yield wait
        return
    import select
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)

    def pressed(seconds: float) -> str:
        return sys.stdin.read(1) if select.select([sys.stdin], [], [], seconds)[0] else ""

    try:
        tty.setcbreak(sys.stdin)
        yield pressed
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
