"""The kick: whoever has created jobs tells the run endpoint at once, and does not wait for what comes of it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence

from mainspring.config import app_url
from mainspring.declare.block import Block
from mainspring.declare.registry import Registry
from mainspring.errors import ConfigurationError
from mainspring.events import Event, JobEnqueued
from mainspring.web.secret import known_secret
from mainspring.web.target import CallResult, RunTarget

log = logging.getLogger("mainspring.kick")

KICK_TIMEOUT_S = 2.0  # seconds; the run goes on without us


class Kick(Block):
    """Calls the run endpoint when jobs are created, at most two seconds, in the background.

    ::

        app = ms.App(tasks, dsn=dsn, blocks=[Kick()])  # APP_URL and CRON_SECRET say where, and what it must know

    As a block it is told of every enqueue whose commit we learn of. Where nobody tells us (a transaction on a plain
    driver's connection), call `kick.soon()` after your commit, from sync or async code. A kick that fails is no error:
    the job runs when the endpoint is called the next time.
    """

    def __init__(self, url: str | None = None, *, secret: str | None = None, path: str = "/v1/run") -> None:
        base, known = url if url is not None else app_url(), known_secret(secret)
        if base is None:
            raise ConfigurationError("APP_URL: is not set; it says where the run endpoint is")
        if known is None:
            raise ConfigurationError("CRON_SECRET: is not set; the run endpoint asks for it")
        self._target = RunTarget.of(base, path, known, "url" if url is not None else "APP_URL")
        self.registry = Registry("kick")
        self.observers = (self.told,)
        self._lock = threading.Lock()
        self._sending = self._again = self._failing = False

    def told(self, batch: Sequence[Event]) -> None:
        """What happened, as an observer: jobs that are ready now are worth a kick."""
        if any(isinstance(event, JobEnqueued) and event.state == "ready" for event in batch):
            self.soon()

    def soon(self) -> None:
        """Send a kick in the background; those that come while one is under way are one more after it."""
        with self._lock:
            if self._sending:
                self._again = True
                return
            self._sending = True
        # No daemon: a program that ends right after an enqueue still sends it, which takes two seconds at the most.
        try:
            threading.Thread(target=self._send, name="mainspring kick").start()
        except RuntimeError as error:  # no thread is to be had, or the program ends
            self._sending = False
            self._say(str(error))

    def _send(self) -> None:
        while True:
            try:
                answer = asyncio.run(self._target.call(KICK_TIMEOUT_S))
            except Exception as error:  # the next kick is sent all the same
                answer = CallResult(type(error).__name__)
            failed = answer.problem is not None and not answer.late  # a run may well take longer
            self._say(answer.problem if failed else None)
            with self._lock:
                if not self._again or failed:  # the next one would fail too
                    self._sending = self._again = False
                    return
                self._again = False

    def _say(self, problem: str | None) -> None:
        if problem is not None:
            level = logging.DEBUG if self._failing else logging.WARNING
            log.log(level, "kick failed, jobs wait for the next call: %s", problem)
        self._failing = problem is not None
