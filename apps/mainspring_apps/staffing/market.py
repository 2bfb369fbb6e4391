"""The marketplace as an application: its tasks, blocks, limits, tables, and what is watched."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import mainspring as ms
from mainspring.contrib.notify import Notify, senders
from mainspring.contrib.stripe import Stripe
from mainspring_apps.staffing import insurance, tokens
from mainspring_apps.staffing.conflicts import timeouts
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.payments import (
    arrears,
    cutoff,
    movements,
    reconcile,
    retries,
    settle,
    upfront,
    warning,
    weekly,
)
from mainspring_apps.staffing.people import recipients
from mainspring_apps.staffing.registry import LIMITS, tasks
from mainspring_apps.staffing.searches import digest, instant
from mainspring_apps.staffing.settings import RETRY, Settings
from mainspring_apps.staffing.store import Conn
from mainspring_apps.staffing.texts import TEMPLATES
from mainspring_apps.staffing.timesheets import approval, ladder, reminders
from mainspring_apps.staffing.watching import MEASURES, watches
from mainspring_apps.staffing.web import Web
from mainspring_apps.tasks import Tasks

#: Where tasks are declared: they are known once these are imported.
DECLARING: Final = (
    approval, arrears, cutoff, digest, instant, insurance, ladder, movements, reconcile, reminders, retries, settle,
    timeouts, tokens, upfront, warning, weekly,
)  # fmt: skip
MIGRATIONS = ms.Line.of("staffing", __package__)


class Market(ms.App):
    """A marketplace, as the environment says; what its handlers and events are handed is its desk.

    ::

        market = Market()  # STRIPE_API_KEY, STRIPE_WEBHOOK_SECRET, MAINSPRING_SMTP_URL, TWILIO_… and MAINSPRING_DSN
        shifts.clock_in(market.desk, conn, time_log_id, by=user_id)

    `extra` are further tasks, `seed` settles people in, `options` are those of `ms.App`.
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
        stripe = Stripe.from_env({"STRIPE_API_KEY": "sk_test_none", **env})
        notify = Notify(senders=senders(env), templates=TEMPLATES, recipients=recipients, retry=RETRY, spam=None)
        stripe.on(*settle.PAYMENT_EVENTS)(settle.payment_changed)
        stripe.on(*movements.REFUND_EVENTS)(movements.refund_changed)
        self.desk = desk = Desk(self, stripe, notify, settings or Settings())
        super().__init__(
            *(declared.bound(desk) for declared in (tasks, *extra)),
            dsn=dsn,
            blocks=[stripe, notify],
            limits=LIMITS,
            migrations=[MIGRATIONS],
            prepare=[partial(seed, desk)] if seed is not None else (),
            routes=Web(desk).routes(),
            **{"watches": watches(desk), "measures": MEASURES, **options},
        )
