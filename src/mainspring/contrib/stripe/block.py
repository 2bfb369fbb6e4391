"""The block: Stripe as an application uses it, from async handlers and from plain ones."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, get_args, get_type_hints

from mainspring.circuit import Breaker, breaker
from mainspring.contrib.by import AsyncHandlerSeam, SyncHandlerSeam
from mainspring.contrib.stripe import reconcile, verbs
from mainspring.contrib.stripe.api import API_VERSION, STRIPE_TIMEOUT_S, Api
from mainspring.contrib.stripe.inbound import StripeEvent, StripeInbound
from mainspring.contrib.stripe.reconcile import Pending, StripeFinding
from mainspring.contrib.stripe.verbs import Calls
from mainspring.db.inbound import received
from mainspring.db.wire.sql import Sql
from mainspring.declare.block import Block
from mainspring.declare.context import Context, SyncContext
from mainspring.declare.registry import Registry
from mainspring.declare.task import Task
from mainspring.errors import ConfigurationError
from mainspring.outcome import Permanent
from mainspring.text.span import Span

if TYPE_CHECKING:
    from mainspring.app import App
    from mainspring.declare.block import Received

STRIPE_NAME = "stripe"
P = ParamSpec("P")
R = TypeVar("R")
AnyTask = TypeVar("AnyTask", bound=Task[..., Any])


class _StripeVerb(Generic[P, R]):
    """A verb as a method. Its annotations say what it answers, not by which calls: `ctx.step` reads them."""

    def __init__(self, verb: Callable[P, Calls[R]]) -> None:
        self._verb = verb
        self.__doc__ = verb.__doc__
        hints = get_type_hints(verb)
        self._hints = hints | {"return": get_args(hints["return"])[-1]}

    def _named(self, call: Any) -> Any:
        update_wrapper(call, self._verb)
        del call.__wrapped__
        call.__annotations__ = self._hints
        return call


class _Awaited(_StripeVerb[P, R]):
    """A verb of the async colour."""

    def __get__(self, stripe: Stripe, owner: type[Stripe]) -> Callable[P, Awaitable[R]]:
        async def call(*args: P.args, **kwargs: P.kwargs) -> R:
            return await stripe._api.run_async(self._verb(*args, **kwargs))

        named: Callable[P, Awaitable[R]] = self._named(call)
        return named


class _Called(_StripeVerb[P, R]):
    """The same verb for plain functions."""

    def __get__(self, stripe: SyncStripe, owner: type[SyncStripe]) -> Callable[P, R]:
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            return stripe._api.run(self._verb(*args, **kwargs))

        named: Callable[P, R] = self._named(call)
        return named


class Stripe(Block):
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
        self._api = Api(api_key, base=base, api_version=api_version, timeout=timeout, account=connect_account)
        self.sync = SyncStripe(self._api, Sql())
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
        return f"<Stripe at {self._api.base or 'api.stripe.com'}, version {self._api.api_version}>"

    def joined(self, app: App) -> None:
        """The events stand in the application's schema."""
        self.sync._sql = Sql(app.schema)

    def on(self, *types: str) -> Callable[[AnyTask], AnyTask]:
        """Give a task the events of these types; each event is one job, whose payload names it.

        ::

            @stripe.on("payment_intent.succeeded", "payment_intent.payment_failed")
            @tasks.task
            async def payment_changed(ctx: ms.Context, *, provider: str, event_id: str) -> None:
                event = await stripe.event(ctx, event_id)

        Events of other types are recorded and answered, and nothing else.
        """

        def wanted(task: AnyTask) -> AnyTask:
            self._inbound.want(task, *types)
            return task

        return wanted

    charge = _Awaited(verbs.charge)
    transfer = _Awaited(verbs.transfer)
    refund = _Awaited(verbs.refund)
    cancel = _Awaited(verbs.cancel)
    customer = _Awaited(verbs.customer)
    intent = _Awaited(verbs.intent)
    get_transfer = _Awaited(verbs.get_transfer)
    get_refund = _Awaited(verbs.get_refund)
    find_charge = _Awaited(verbs.find_charge)
    find_transfer = _Awaited(verbs.find_transfer)
    find_refund = _Awaited(verbs.find_refund)
    charges = _Awaited(verbs.charges)
    transfers = _Awaited(verbs.transfers)
    refunds = _Awaited(verbs.refunds)

    async def reconcile(self, rows: Iterable[Pending]) -> AsyncIterator[StripeFinding]:
        """Ask Stripe about rows whose end is not known; see `overdue` for which."""
        for row in rows:
            yield StripeFinding(row, await self._api.run_async(reconcile.ask(row)))

    async def event(self, ctx: Context, event_id: str) -> StripeEvent:
        """The event that a job is about, as it was verified and recorded."""
        seam = AsyncHandlerSeam(ctx, self.sync._sql)
        return _read(await seam.run(received(seam.sql, ctx.job.org_id, STRIPE_NAME, event_id)), event_id)

    async def aclose(self) -> None:
        """Hang up; the end of the event loop does it, too."""
        await self._api.close_async()


class SyncStripe:
    """The same verbs for plain functions; made by `Stripe`, as its `sync`."""

    def __init__(self, api: Api, sql: Sql) -> None:
        self._api, self._sql = api, sql

    charge = _Called(verbs.charge)
    transfer = _Called(verbs.transfer)
    refund = _Called(verbs.refund)
    cancel = _Called(verbs.cancel)
    customer = _Called(verbs.customer)
    intent = _Called(verbs.intent)
    get_transfer = _Called(verbs.get_transfer)
    get_refund = _Called(verbs.get_refund)
    find_charge = _Called(verbs.find_charge)
    find_transfer = _Called(verbs.find_transfer)
    find_refund = _Called(verbs.find_refund)
    charges = _Called(verbs.charges)
    transfers = _Called(verbs.transfers)
    refunds = _Called(verbs.refunds)

    def reconcile(self, rows: Iterable[Pending]) -> Iterator[StripeFinding]:
        """Ask Stripe about rows whose end is not known."""
        for row in rows:
            yield StripeFinding(row, self._api.run(reconcile.ask(row)))

    def event(self, ctx: SyncContext, event_id: str) -> StripeEvent:
        """The event that a job is about."""
        seam = SyncHandlerSeam(ctx, self._sql)
        return _read(seam.run(received(seam.sql, ctx.job.org_id, STRIPE_NAME, event_id)), event_id)

    def close(self) -> None:
        """Hang up in this thread."""
        self._api.close()


def _read(found: Received | None, event_id: str) -> StripeEvent:
    if found is None:
        raise Permanent(f"event_id: no event {event_id[:100]} was received", code="VALIDATION_ERROR")
    return StripeEvent.read(found.body)


def _checked_rule(rule: Breaker | None) -> Breaker:
    if rule is None:
        return breaker(STRIPE_NAME, longest=timedelta(minutes=10))
    if rule.name != STRIPE_NAME:
        raise ConfigurationError(f"Stripe: the breaker is called {rule.name!r}, not {STRIPE_NAME!r}")
    return rule


def _checked_secrets(secrets: Sequence[str]) -> Sequence[str]:
    if isinstance(secrets, str) or not all(isinstance(secret, str) and secret.strip() for secret in secrets):
        raise ConfigurationError("Stripe: webhook_secrets is not a list of texts")
    return secrets
