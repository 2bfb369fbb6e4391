"""`mainspring sandbox`: the providers' stand-ins in the foreground, and where they are."""

from __future__ import annotations

import asyncio
import json as documents
import os
import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from mainspring.cli import output
from mainspring.config import DATA
from mainspring.errors import ConfigurationError, ValidationError

if TYPE_CHECKING:
    from mainspring_sandbox import Sandbox

app = App(name="sandbox", help="Run stand-ins for Stripe, SMS, mail and the rest.", help_format="plaintext")

#: Where a sandbox that runs in this directory says how to reach it.
SANDBOX_FILE = DATA / "sandbox.json"


@app.command
def run(
    *,
    port: int = 0,
    smtp_port: int = 0,
    data: Path | None = None,
    json: Annotated[bool, Parameter(negative="", show_default=False)] = False,
) -> None:
    """Run them on this machine until Ctrl-C, and print their addresses.

    `mainspring outbox` shows what they received, and lets things go wrong.

        mainspring sandbox run --port 8025 --smtp-port 1025 --data .data/sandbox.sqlite

    Args:
        port: The port of the HTTP providers; else a free one.
        smtp_port: The port of the mailbox; else a free one.
        data: A file that keeps what happened; else it is forgotten at the end.
        json: Print the addresses as one JSON document.
    """
    for name, value in (("port", port), ("smtp-port", smtp_port)):
        if not 0 <= value <= 65535:
            raise ValidationError(f"{name}: is not between 0 and 65535", field=name)
    asyncio.run(_run(_made(port, smtp_port, data), json))


@app.command
def env(*, data: Path = DATA) -> None:
    """Print the settings by which an application finds the sandbox that runs here.

    In a second terminal, beside `mainspring up` or `mainspring sandbox run`:

        eval "$(mainspring sandbox env)"

    Args:
        data: Where the one that runs keeps its data.
    """
    from mainspring.cli.providers import environment

    try:
        known = documents.loads((data / SANDBOX_FILE.name).read_text())
        found = environment(known["url"], known["smtp_port"], known.get("stripe_webhook_secret") or "")
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigurationError(
            f"data: no sandbox runs in {data}: start `mainspring up` or `mainspring sandbox run` there"
        ) from None
    for name, value in found.items():
        if value:
            output.say(f"export {name}={shlex.quote(value)}", secrets=False)  # they open nothing but this sandbox


@contextmanager
def announced(sandbox: Sandbox, place: Path = SANDBOX_FILE) -> Iterator[None]:
    """Say how to reach it as long as it runs, for commands in this directory."""
    place.parent.mkdir(parents=True, exist_ok=True)
    said = documents.dumps({"url": sandbox.url, "smtp_port": sandbox.smtp_port, "pid": os.getpid()})
    place.write_text(said)
    try:
        yield
    finally:
        with suppress(OSError):
            if place.read_text() == said:  # another one may run here by now
                place.unlink()


def _made(port: int, smtp_port: int, data: Path | None) -> Sandbox:
    from mainspring_sandbox import Sandbox

    if data is not None:
        data.parent.mkdir(parents=True, exist_ok=True)
    return Sandbox(port=port, smtp_port=smtp_port, path=data)


async def _run(sandbox: Sandbox, json: bool) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        await asyncio.to_thread(sandbox.start)
    except (OSError, SystemExit):  # uvicorn ends the program where a port is taken
        raise ConfigurationError("port: cannot listen there: is it taken?") from None
    try:
        with announced(sandbox):
            _introduce(sandbox, json)
            await stop.wait()
    finally:
        await asyncio.to_thread(sandbox.stop)


def _introduce(sandbox: Sandbox, json: bool) -> None:
    from mainspring_sandbox.providers import PROVIDERS

    places = {name: f"{sandbox.url}/{name}" for name in PROVIDERS}
    places |= {"smtp": f"smtp://127.0.0.1:{sandbox.smtp_port}?tls=none", "desk": f"{sandbox.url}/sandbox/outbox"}
    if json:
        return output.as_json({"url": sandbox.url, "smtp_port": sandbox.smtp_port, **places})
    return output.fields(places)
