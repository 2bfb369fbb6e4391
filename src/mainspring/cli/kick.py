"""`mainspring kick`: the scheduled caller of a run endpoint."""

from __future__ import annotations

import asyncio
import logging
import signal
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from mainspring.cli import output
from mainspring.cli.exits import complain
from mainspring.cli.spans import TypedSpan
from mainspring.errors import ConfigurationError, ValidationError
from mainspring.text.span import span

if TYPE_CHECKING:
    from mainspring.web.target import RunTarget

log = logging.getLogger("mainspring.kick")


def kick(
    *,
    url: str | None = None,
    path: str = "/v1/run",
    every: TypedSpan | None = None,
    timeout: Annotated[TypedSpan, Parameter(show_default=span)] = timedelta(minutes=2),
    json: Annotated[bool, Parameter(negative="", show_default=False)] = False,
) -> int:
    """Call a run endpoint once, or again and again.

    Args:
        url: The address of the application, such as https://shop.example; else BASE_URL.
        path: The run endpoint below it.
        every: Go on calling, each time after so long, such as 60s, until SIGTERM or SIGINT.
        timeout: Wait so long for an answer; the run goes on without it.
        json: Print one JSON document and nothing else.
    """
    from mainspring.config import base_url
    from mainspring.web.secret import known_secret
    from mainspring.web.target import RunTarget

    base, secret = url or base_url(), known_secret()
    if base is None:
        raise ConfigurationError("url: give --url, or set BASE_URL")
    if secret is None:
        raise ConfigurationError("CRON_SECRET: is not set; the run endpoint asks for it")
    for name, given in (("every", every), ("timeout", timeout)):
        if given is not None and given <= timedelta(0):
            raise ValidationError(f"{name}: must be positive", field=name)
    target = RunTarget.of(base, path, secret, "url" if url else "BASE_URL")
    if every is None:
        return asyncio.run(_once(target, timeout, json))
    from mainspring.cli.logs import log_to_stderr

    log_to_stderr(json=json)
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # it says each call again
    return asyncio.run(_again(target, timeout, every))


async def _once(target: RunTarget, timeout: timedelta, json: bool) -> int:
    answer = await target.call(timeout.total_seconds())
    if answer.reply is None:
        complain(f"{target.url} {answer.problem}")
        return 1
    if json:
        output.as_json(answer.reply)
    else:
        ran, left = answer.reply.processed, answer.reply.remaining
        output.say(f"{ran} job{'s' * (ran != 1)} ran; {left} remain{'s' * (left == 1)} at {answer.reply.as_of}")
    return 0


async def _again(target: RunTarget, timeout: timedelta, every: timedelta) -> int:
    """Call until told to stop; whatever is not a 2xx is an error line, and counted."""
    stop, calls, failures = asyncio.Event(), 0, 0
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    due = loop.time()
    while not stop.is_set():
        calling = asyncio.ensure_future(target.call(timeout.total_seconds()))
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait([calling, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not calling.done():
            calling.cancel()  # the run goes on without us
            break
        calls, answer = calls + 1, calling.result()
        if answer.reply is None:
            failures += 1
            about = {"action": "kick", "calls": calls, "failures": failures}
            log.error("call %d of %s %s; %d failed so far", calls, target.url, answer.problem, failures, extra=about)
        else:
            ran, left = answer.reply.processed, answer.reply.remaining
            about = {"action": "kick", "processed": ran, "remaining": left}
            log.info("%d jobs ran, %d remain", ran, left, extra=about)
        due = max(due + every.total_seconds(), loop.time())
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), due - loop.time())
    log.info("%d calls, %d failed", calls, failures, extra={"action": "stop", "calls": calls, "failures": failures})
    return 0
