"""The marketplace as an application: its tasks, blocks, limits, tables, and what is watched."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import mainspring as ms
from mainspring.contrib.notify import Notify, senders
from mainspring.contrib.stripe import Stripe
from mainspring_apps.frame.settings import from_env
from mainspring_apps.staffing import completion, insurance, tokens
from mainspring_apps.staffing.conflicts import timeouts
from mainspring_apps.staffing.deadlines import ending
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.payments import (
    accounts,
    arrears,
    chargebacks,
    cutoff,
    movements,
    no_shows,
    reconcile,
    retries,
    returned,
    reversals,
    settle,
    upfront,
    warning,
    weekly,
)
from mainspring_apps.staffing.people import recipients
from mainspring_apps.staffing.registry import limits, tasks
from mainspring_apps.staffing.searches import digest, instant
from mainspring_apps.staffing.settings import Settings
from mainspring_apps.staffing.store import Conn
from mainspring_apps.staffing.texts import templates
from mainspring_apps.staffing.timesheets import approval, ladder, reminders
from mainspring_apps.staffing.watching import measures, watches
from mainspring_apps.staffing.web import routes
from mainspring_apps.staffing.wishes import OptOutLinks, linked
from mainspring_apps.tasks import Tasks

#: Where tasks are declared: they are known once these are imported.
DECLARING: Final = (
    accounts, approval, arrears, chargebacks, completion, cutoff, digest, instant, insurance, ladder, movements,
    no_shows, reconcile, reminders, retries, returned, reversals, settle, timeouts, tokens, upfront, warning, weekly,
)  # fmt: skip
#: What the provider tells, and which task hears it; see also `Stripe.on`.
HEARD: Final = (
    (settle.payment_changed, settle.PAYMENT_EVENTS),
    (returned.refund_changed, returned.REFUND_EVENTS),
    (returned.charge_refunded, returned.CHARGE_EVENTS),
    (chargebacks.chargeback_changed, chargebacks.CHARGEBACK_EVENTS),
    (accounts.account_changed, accounts.ACCOUNT_EVENTS),
    (accounts.payout_failed, accounts.PAYOUT_EVENTS),
    (reversals.transfer_reversed, reversals.REVERSAL_EVENTS),
)
MIGRATIONS = ms.Line.of("staffing", __package__)


class Market(ms.App):
    """A marketplace, as the environment says; what its handlers and events are handed is its desk.

    ::

        market = Market()  # STRIPE_API_KEY, STRIPE_WEBHOOK_SECRET, MAINSPRING_SMTP_URL, TWILIO_… and MAINSPRING_DSN
        shifts.clock_in(market.desk, conn, time_log_id, by=user_id)

    What the environment says wins over `settings`, such as STAFFING_AUTO_APPROVAL=5h. `extra` are further tasks, `seed`
    settles people in, `options` are those of `ms.App`.
    """

    def __init__(
        self,
        env: Mapping[str, str] | None = None,
        *,
        dsn: str | None = None,
        settings: Settings | None = None,
        extra: Sequence[Tasks[Desk]] = (),
        seed: Callable[[Desk, Conn], None] | None = None,
        **options: Any,
    ) -> None:
        env = os.environ if env is None else env
        settings = from_env(settings or Settings(), env)
        stripe = Stripe.from_env({"STRIPE_API_KEY": "sk_test_none", **env})
        links = OptOutLinks.from_env(env, settings.app_url)
        said = ending(linked(templates(settings), links))
        notify = Notify(senders=senders(env), templates=said, recipients=recipients, retry=settings.retry, spam=None)
        self.desk = desk = Desk(self, notify, stripe, settings)
        ours, *others = (declared.bound(desk) for declared in (tasks, *extra))
        for task, events in HEARD:
            stripe.on(*events)(ours.get(task.name))
        super().__init__(
            ours,
            *others,
            dsn=dsn,
            blocks=[stripe, notify],
            limits=limits(settings),
            migrations=[MIGRATIONS],
            prepare=[partial(seed, desk)] if seed is not None else (),
            routes=routes(desk, links),
            **{"watches": watches(desk), "measures": measures(settings), **options},
        )
