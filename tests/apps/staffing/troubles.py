"""What goes wrong in a random walk: providers that are away, workers that die, webhooks in disorder."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

import requests
from tests.apps.staffing.town import Town

from mainspring.contrib.notify.smtp import Smtp
from mainspring.contrib.notify.twilio import Twilio
from mainspring.testing import Crash
from mainspring_apps.staffing.desk import Desk
from mainspring_sandbox import Fault
from mainspring_sandbox.stripe import Manner

PROVIDERS: Final = ("stripe", "stripe", "twilio", "smtp")


class Troubles:
    """Each says what it did, or None. A crash is planted: the next worker that comes by a place like it dies there."""

    def __init__(self, town: Town, chance: random.Random) -> None:
        self._town, self._chance = town, chance
        self._fatal: str | None = None
        self._left = 0
        self.crashes = 0
        self.working = False  # only workers die, not who asks them

    def all(self) -> Sequence[tuple[int, Callable[[], str | None]]]:
        """Everything that may go wrong, and how often."""
        return ((4, self.outage), (7, self.recover), (6, self.die), (5, self.post), (5, self.deliver), (2, self.orphan))

    def outage(self) -> str:
        provider, kind = self._chance.choice(PROVIDERS), self._chance.choice(("error", "drop", "accepted"))
        rate, times = self._chance.choice((0.3, 1.0)), self._chance.choice((1, 3, 8, None))
        fault = Fault(
            provider=provider, kind="error" if kind == "accepted" else kind, accepted=kind == "accepted",  # type: ignore[arg-type] # one of the two
            rate=rate, times=times, status=self._chance.choice((500, 503)) if provider != "smtp" else 451,
        )  # fmt: skip
        self._town.sandbox.faults.set(fault)
        return f"outage: {provider} {kind}, rate {rate}, times {times}"

    def recover(self) -> str | None:
        if not self._town.sandbox.faults.on:
            return None
        self._town.sandbox.faults.clear()
        return "providers are back"

    def die(self) -> str:
        self._fatal = self._chance.choice(("before call", "after call", "record", "before message", "after message"))
        self._left = self._chance.randrange(3)
        return f"a worker will die: {self._fatal}"

    def orphan(self) -> str | None:
        """A worker takes a job and dies before it does anything."""
        due = "select id from mainspring.jobs where state = 'ready' and task <> 'notify.deliver' order by id"
        ready = [row[0] for row in self._town.rows(due)]
        if not ready:
            return None
        try:
            job = self._town.mainspring.crash(self._chance.choice(ready))
        except AssertionError:  # held by a limit or a breaker
            return None
        self.crashes += 1
        return f"a worker died with {job.task}"

    def post(self) -> str:
        """Webhooks are late, lost, doubled or kept."""
        how: dict[str, Any] = self._chance.choice(
            ({"hold": True}, {"drop": True}, {"copies": 2}, {"delay": 3000.0}, {"failures": 2})
        )
        times = self._chance.choice((1, 4))
        self._town.sandbox.stripe.post.manners.append(Manner(times=times, **how))
        return f"post: {how}, {times} times"

    def deliver(self) -> str | None:
        """What was kept is delivered, in any order."""
        held = [entry.id for entry in self._town.sandbox.stripe.post.held()]
        if not held:
            return None
        self._chance.shuffle(held)
        self._town.sandbox.stripe.post.release(held)
        return f"post: {len(held)} released"

    def end(self) -> None:
        """Everything is well again."""
        self._fatal = None
        self._town.sandbox.faults.clear()
        self._town.sandbox.stripe.post.manners.clear()
        self.deliver()

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Inside the block workers can die."""
        send, record = requests.adapters.HTTPAdapter.send, Desk.record
        sms, mail = Twilio.send, Smtp.send

        def sends(*args: Any, **kwargs: Any) -> Any:
            self._reach("before call")
            answer = send(*args, **kwargs)
            try:
                self._reach("after call")
            except Crash:
                answer.close()  # nobody will read it: its socket would be told of in somebody else's test
                raise
            return answer

        def records(*args: Any, **kwargs: Any) -> Any:
            record(*args, **kwargs)
            self._reach("record")

        def messages(original: Any) -> Any:
            async def message(*args: Any, **kwargs: Any) -> Any:
                self._reach("before message")
                receipt = await original(*args, **kwargs)
                self._reach("after message")
                return receipt

            return message

        with (
            patch.object(requests.adapters.HTTPAdapter, "send", sends), patch.object(Desk, "record", records),
            patch.object(Twilio, "send", messages(sms)), patch.object(Smtp, "send", messages(mail)),
        ):  # fmt: skip
            yield

    def _reach(self, place: str) -> None:
        if not self.working or place != self._fatal:
            return
        if self._left:
            self._left -= 1
            return
        self._fatal = None
        self.crashes += 1
        raise Crash
