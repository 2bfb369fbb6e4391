"""Where payments are tested: a database and a Stripe on one stopped clock, a customer with a card, real workers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from tests.worker.stage import SETTINGS, Stage

import mainspring as ms
from mainspring.client.colour import do
from mainspring.config import WorkerConfig
from mainspring.contrib.stripe import Money, Stripe
from mainspring.contrib.stripe.asking import Calls, StripeRequest
from mainspring.job import NewJob
from mainspring.retry import Retry
from mainspring_sandbox import Sandbox
from mainspring_sandbox.ledger import LedgerEntry

START = datetime(2026, 6, 3, 14, tzinfo=UTC)
KEY = "sk_test_canary_0123456789"
SECRET = "whsec_canary_0123456789"
#: Tried again every time, at most a day later.
PATIENT = Retry(attempts=10, base=timedelta(seconds=1), cap=timedelta(seconds=1))


class Till:
    """One test's shop."""

    def __init__(self, stage: Stage, sandbox: Sandbox, time: list[datetime]) -> None:
        self.stage, self.sandbox, self._time = stage, sandbox, time
        self.tasks = ms.Registry("shop")
        self.stripe = Stripe(KEY, base=f"{sandbox.url}/stripe", webhook_secrets=[SECRET], timeout=5)
        self.customer = str(self.post("/v1/customers")["id"])
        self.card = self.card_of("visa")
        self.lender = str(self.post("/v1/accounts", type="express", country="PT")["id"])

    @staticmethod
    def stopped_at(stage: Stage) -> list[datetime]:
        return [stage.clock.set(START)]

    def later(self, **units: float) -> datetime:
        """Move both clocks."""
        self._time[0] = self.stage.clock.advance(timedelta(**units))
        return self._time[0]

    @property
    def now(self) -> datetime:
        return self._time[0]

    def post(self, path: str, **params: Any) -> Mapping[str, Any]:
        """Ask Stripe for something that is no business of the block."""

        def flow() -> Calls[Mapping[str, Any]]:
            return (yield StripeRequest("post", path, params))

        return do(flow(), self.stripe.api)

    def card_of(self, name: str) -> str:
        """Save a test card of the customer."""
        return str(self.post(f"/v1/payment_methods/pm_card_{name}/attach", customer=self.customer)["id"])

    async def paid(self, minor: int = 12_000, key: str = "paid") -> Any:
        """A charge that succeeded."""
        return await self.stripe.charge(
            Money(minor, "EUR"), customer=self.customer, payment_method=self.card, key=key, since=START
        )

    async def waits(self, seconds: float) -> None:
        """How long a call waits for its answer from here on."""
        self.stripe.api.timeout = seconds
        await self.stripe.aclose()

    def app(self, **options: Any) -> ms.App:
        return ms.App(self.tasks, dsn=self.stage.dsn, blocks=[self.stripe], maintenance=False, **options)

    async def drain(self, app: ms.App | None = None) -> None:
        """Run everything that is due."""
        async with asyncio.timeout(30):
            await (app or self.app()).worker(WorkerConfig(**SETTINGS)).drain()

    async def run(self, *jobs: NewJob, times: int = 1) -> list[UUID]:
        """Enqueue, and give each job so many chances, a minute apart."""
        ids = [(await self.stage.client.enqueue(job)).id for job in jobs]
        for time in range(times):
            if time:
                self.later(minutes=1)
            await self.drain()
        return ids

    def made(self, kind: str) -> list[LedgerEntry]:
        """What Stripe holds of a kind, such as payment_intent, the oldest first."""
        return self.sandbox.ledger.find(f"stripe.{kind}")[::-1]

    def asked(self, path: str = "/v1/", method: str = "POST") -> list[dict[str, Any]]:
        """The requests that reached Stripe, the oldest first."""
        found = self.sandbox.ledger.find("stripe.request", method=method)[::-1]
        return [entry.body for entry in found if path in entry.body["path"]]
