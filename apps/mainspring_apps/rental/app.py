"""The rental company as an application: its tasks, providers, tables and addresses."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

import mainspring as ms
from mainspring.contrib.notify import senders
from mainspring.contrib.stripe import Stripe
from mainspring.contrib.vendus import Vendus
from mainspring.web import Kick
from mainspring_apps.frame.settings import from_env
from mainspring_apps.rental import checking, credit_notes, healing, holds, invoicing, mails, polling, refunds
from mainspring_apps.rental.booking_table import Bookings, BookingTable
from mainspring_apps.rental.desk import Desk, LinkSecrets
from mainspring_apps.rental.logs import told
from mainspring_apps.rental.registry import desk_tasks, tasks
from mainspring_apps.rental.settings import Settings
from mainspring_apps.rental.web import PEOPLE, RUN_PATH, routes

#: Where tasks are declared: they are known once these are imported.
DECLARING: Final = (checking, credit_notes, healing, holds, invoicing, mails, polling, refunds)
MIGRATIONS = ms.Line.of("rental", __package__)
#: A job of a booking that failed for good is an alert until somebody has decided (RENT-4.13, 9.05).
WATCHES: Final = (
    ms.watch_dead("invoice_failed", invoicing.issue_invoice, subject="booking {booking_id}", severity="critical"),
    ms.watch_dead(
        "mail_failed", mails.send_customer_confirmation, mails.send_internal_confirmation, mails.send_invoice_ready,
        subject="booking {booking_id}",
    ),
    ms.watch_dead("credit_failed", credit_notes.issue_credit, subject="refund {refund_id}", severity="critical"),
)  # fmt: skip


class Rental(ms.App):
    """A rental company, as the environment says; what its handlers and events are handed is its desk.

    ::

        rental = Rental()  # STRIPE_…, VENDUS_API_KEY, RESEND_API_KEY or MAINSPRING_SMTP_URL, RENTAL_LINK_SECRET
        checkout.paid(rental.desk, conn, session)

    What the environment says wins over `settings`. `bookings` are a company's own (RENT-20.32).
    """

    def __init__(
        self,
        env: Mapping[str, str] | None = None,
        *,
        dsn: str | None = None,
        settings: Settings | None = None,
        bookings: Bookings | None = None,
        **options: Any,
    ) -> None:
        env = os.environ if env is None else env
        settings = from_env(settings or Settings(), env)
        stripe = Stripe.from_env(env)
        stripe.inbound = ()  # rental takes Stripe's events itself, at an address of its own
        vendus = Vendus.from_env(env, per_second=settings.vendus_per_second)
        mailer = next((one for one in senders(env) if one.channel == "email"), None)
        kick = Kick(env["APP_URL"], secret=env["CRON_SECRET"], path=RUN_PATH) if _kicks(env) else None
        self.desk = desk = Desk(
            self, stripe, vendus, mailer, bookings or BookingTable(), LinkSecrets.from_env(env), settings
        )
        super().__init__(
            tasks.bound(desk),
            desk_tasks.bound(desk),
            dsn=dsn,
            caller=ms.Caller(org_id=PEOPLE),
            blocks=[stripe, vendus, *([kick] if kick else [])],
            migrations=[MIGRATIONS],
            observers=[told],
            routes=routes(desk, kick.soon if kick else _nobody),
            **{"watches": WATCHES, **options},
        )


def _kicks(env: Mapping[str, str]) -> bool:
    return bool(env.get("APP_URL") and env.get("CRON_SECRET"))


def _nobody() -> None:
    """Without an address to kick, a worker or the next minute finds the jobs (RENT-2.08)."""
