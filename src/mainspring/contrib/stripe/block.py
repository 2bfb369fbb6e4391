"""The block: Stripe as an application uses it, from async handlers and from plain ones."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from mainspring.circuit import Breaker, breaker
from mainspring.contrib.called import AwaitedVerbs, PlainVerbs, provider_verb
from mainspring.contrib.heard import AnyTask
from mainspring.contrib.stripe import chargeback, checkout_session, reconcile, verbs
from mainspring.contrib.stripe.api import API_VERSION, STRIPE_TIMEOUT_S, Api
from mainspring.contrib.stripe.inbound import StripeEvent, StripeInbound
from mainspring.contrib.stripe.reconcile import Pending, StripeFinding
from mainspring.db.inbound import received
from mainspring.db.wire.statement import Dialogue
from mainspring.declare.block import Block
from mainspring.declare.context import Context, SyncContext
from mainspring.declare.registry import Registry
from mainspring.errors import ConfigurationError
from mainspring.outcome import Permanent
from mainspring.text.span import Span

STRIPE_NAME = "stripe"


class StripeVerbs:
    """What both colours offer."""

    def __init__(self, api: Api) -> None:
        self.api = api

    charge = provider_verb(verbs.charge)
    transfer = provider_verb(verbs.transfer)
    reverse = provider_verb(verbs.reverse)
    refund = provider_verb(verbs.refund)
    cancel = provider_verb(verbs.cancel)
    customer = provider_verb(verbs.customer)
    intent = provider_verb(verbs.intent)
    get_transfer = provider_verb(verbs.get_transfer)
    get_refund = provider_verb(verbs.get_refund)
    find_charge = provider_verb(verbs.find_charge)
    find_transfer = provider_verb(verbs.find_transfer)
    find_reversal = provider_verb(verbs.find_reversal)
    find_refund = provider_verb(verbs.find_refund)
    charges = provider_verb(verbs.charges)
    transfers = provider_verb(verbs.transfers)
    refunds = provider_verb(verbs.refunds)
    checkout = provider_verb(checkout_session.checkout)
    session = provider_verb(checkout_session.session)
    expire_session = provider_verb(checkout_session.expire_session)
    sessions = provider_verb(checkout_session.sessions)
    dispute = provider_verb(chargeback.dispute)
    disputes = provider_verb(chargeback.disputes)
    _find = provider_verb(reconcile.find)


class Stripe(StripeVerbs, AwaitedVerbs, Block):
    """Payments through Stripe's own SDK, and its webhooks; nothing is charged twice.

    ::

        stripe = Stripe(os.environ["STRIPE_API_KEY"], webhook_secrets=[os.environ["STRIPE_WEBHOOK_SECRET"]])
        app = ms.App(tasks, blocks=[stripe])


        @tasks.task(needs=("stripe",))
        async def charge(ctx: ms.Context, *, order_id: int) -> None:
            paid = await stripe.charge(amount, customer=…, payment_method=…, key=ctx.idempotency_key)

    `base` is another address than Stripe's, such as the sandbox's. `webhook_secrets` are several while one is replaced.
    `connect_account` acts as a connected account. `timeout` is for one call. `breaker` replaces the rule by
    which calls are stopped; its name stays "stripe". In plain functions use `stripe.sync`.
    """

    def __init__(
        self,
        api_key: str,
        *,
        base: str | None = None,
        api_version: str = API_VERSION,
        webhook_secrets: Sequence[str] = (),
        timeout: Span = STRIPE_TIMEOUT_S,
        connect_account: str | None = None,
        breaker: Breaker | None = None,
    ) -> None:
        super().__init__(Api(api_key, base=base, api_version=api_version, timeout=timeout, account=connect_account))
        self.sync = SyncStripe(self.api)
        self.registry = Registry(STRIPE_NAME)
        self.breakers = (_checked_rule(breaker),)
        self._inbound = StripeInbound(STRIPE_NAME, _checked_secrets(webhook_secrets))
        self.inbound = (self._inbound,) if webhook_secrets else ()

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> Stripe:
        """As the environment says: STRIPE_API_KEY, STRIPE_WEBHOOK_SECRET (several with commas), MAINSPRING_STRIPE_BASE.

        >>> Stripe.from_env({"STRIPE_API_KEY": "sk_test_1"})
        <Stripe at api.stripe.com, version 2026-10-28.endive>
        """
        env = os.environ if env is None else env
        if not (key := env.get("STRIPE_API_KEY")):
            raise ConfigurationError(
                'STRIPE_API_KEY: is not set; `eval "$(mainspring sandbox env)"` sets the sandbox\'s'
            )
        secrets = [part.strip() for part in env.get("STRIPE_WEBHOOK_SECRET", "").split(",") if part.strip()]
        return cls(key, base=env.get("MAINSPRING_STRIPE_BASE") or None, webhook_secrets=secrets)

    def __repr__(self) -> str:
        return f"<Stripe at {self.api.base or 'api.stripe.com'}, version {self.api.api_version}>"

    def on(self, *types: str) -> Callable[[AnyTask], AnyTask]:
        """Give a task the events of these types; each event is one job, whose payload names it.

        ::

            @stripe.on("payment_intent.succeeded", "payment_intent.payment_failed")
            @tasks.task
            async def payment_changed(ctx: ms.Context, *, provider: str, event_id: str) -> None:
                event = await stripe.event(ctx, event_id)

        Events of other types are recorded and answered, and nothing else.
        """
        return self._inbound.on(*types)

    async def reconcile(self, rows: Iterable[Pending]) -> AsyncIterator[StripeFinding]:
        """Ask Stripe about rows whose end is not known; see `overdue` for which."""
        for row in rows:
            yield await self._find(row)

    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> StripeEvent:
        """The event of a webhook that an application takes at an address of its own; SignatureRefused: it is none.

        For what must be done in the transaction that answers Stripe. `headers` have lower-case names, `now` is the
        database's time; that an event comes once is the application's to see to.
        """
        return StripeEvent.read(self._inbound.verify(headers, body, now).body)

    async def event(self, ctx: Context, event_id: str) -> StripeEvent:
        """The event that a job is about, as it was verified and recorded."""
        return await ctx.client.seam.run(_event(ctx, event_id))

    async def aclose(self) -> None:
        """Hang up; the end of the event loop does it, too."""
        await self.api.close_async()


class SyncStripe(StripeVerbs, PlainVerbs):
    """The same verbs for plain functions; made by `Stripe`, as its `sync`."""

    def reconcile(self, rows: Iterable[Pending]) -> Iterator[StripeFinding]:
        """Ask Stripe about rows whose end is not known."""
        for row in rows:
            yield self._find(row)

    def event(self, ctx: SyncContext, event_id: str) -> StripeEvent:
        """The event that a job is about."""
        return ctx.client.seam.run(_event(ctx, event_id))

    def close(self) -> None:
        """Hang up in this thread."""
        self.api.close()


def _event(ctx: Context | SyncContext, event_id: str) -> Dialogue[StripeEvent]:
    found = yield from received(ctx.client.seam.sql, ctx.job.org_id, STRIPE_NAME, event_id)
    if found is None:
        raise Permanent(f"event_id: no event {event_id[:100]} was received", code="VALIDATION_ERROR")
    return StripeEvent.read(found.body)


def _checked_rule(rule: Breaker | None) -> Breaker:
    if rule is None:
        return breaker(STRIPE_NAME, longest=timedelta(minutes=10), failing_for=timedelta(minutes=1))
    if rule.name != STRIPE_NAME:
        raise ConfigurationError(f"Stripe: the breaker is called {rule.name!r}, not {STRIPE_NAME!r}")
    return rule


def _checked_secrets(secrets: Sequence[str]) -> Sequence[str]:
    if isinstance(secrets, str) or not all(isinstance(secret, str) and secret.strip() for secret in secrets):
        raise ConfigurationError("Stripe: webhook_secrets is not a list of texts")
    return secrets
