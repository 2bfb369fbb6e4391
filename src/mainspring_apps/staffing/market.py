"""The marketplace as an application: its tasks, blocks, limits, tables, and what is watched."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import mainspring as ms
from mainspring.contrib.notify import Notify, senders
from mainspring.contrib.stripe import Stripe
from mainspring_apps.staffing import (  # noqa: F401 (tasks)
    approval,
    charging,
    cutoff,
    digest,
    disputes,
    instant,
    insurance,
    ladder,
    movements,
    reminders,
    retries,
    settling,
    shifts,
    tokens,
    warning,
)
from mainspring_apps.staffing import desk as desks
from mainspring_apps.staffing.people import recipients
from mainspring_apps.staffing.registry import LIMITS, tasks
from mainspring_apps.staffing.settings import RETRY, Settings
from mainspring_apps.staffing.texts import TEMPLATES
from mainspring_apps.staffing.watching import MEASURES, WATCHES
from mainspring_apps.staffing.web import Web

MIGRATIONS = ms.Line.of("staffing", __package__)


def market(
    env: Mapping[str, str] | None = None,
    *,
    dsn: str | None = None,
    settings: Settings | None = None,
    registries: Sequence[ms.Registry] = (),
    **options: Any,
) -> ms.App:
    """Set the marketplace up in this process, as the environment says, and return it as an application.

    ::

        app = market()  # STRIPE_API_KEY, STRIPE_WEBHOOK_SECRET, MAINSPRING_SMTP_URL, TWILIO_… and MAINSPRING_DSN

    `registries` and `options` are further tasks and options of `ms.App`.
    """
    env = os.environ if env is None else env
    stripe = Stripe.from_env({"STRIPE_API_KEY": "sk_test_none", **env})
    notify = Notify(senders=senders(env), templates=TEMPLATES, recipients=recipients, retry=RETRY, spam=None)
    stripe.on(*settling.EVENTS)(settling.payment_changed)
    stripe.on(*movements.EVENTS)(movements.refund_changed)
    app = ms.App(
        dsn,
        tasks,
        *registries,
        blocks=[stripe, notify],
        limits=LIMITS,
        migrations=[MIGRATIONS],
        routes=Web().routes(),
        **{"watches": WATCHES, "measures": MEASURES, **options},
    )
    desks.sit(desks.Desk(app, stripe, notify, settings or Settings()))
    return app
