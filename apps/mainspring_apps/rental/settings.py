"""Every number, address and switch of a rental company that somebody may want to change (RENT-20.30)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal

import mainspring as ms
from mainspring.retry import Retry
from mainspring.text.span import length
from mainspring_apps.frame.setting import Address, ExactlyTrue, TimeOfDay, Zone, setting
from mainspring_apps.frame.settings import Choices

Language = Literal["pt-PT", "en"]
_SECOND: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Choices):
    """What one rental company chooses."""

    PREFIX = "RENTAL_"
    OTHERS = frozenset({"RENTAL_LINK_SECRET", "RENTAL_LINK_SECRET_PREVIOUS"})

    # -- switches and addresses, called as the source calls them
    invoicing_enabled: bool = setting(True, "whether invoices are issued", variable="INVOICING_ENABLED")
    send_emails: ExactlyTrue = setting(
        False, "whether mails are sent: only if it is exactly true", variable="SEND_EMAILS"
    )
    email_admin_to: tuple[str, ...] = setting((), "who gets internal mails", variable="EMAIL_ADMIN_TO")
    app_url: Address = setting("https://rental.example.com", "where links in mails lead")

    # -- time, money and languages
    zone: Zone = setting("Europe/Lisbon", "whose days are rental days and fiscal days (RENT-20.05)")
    currency: Literal["EUR"] = setting("EUR", "what is sold and accepted (RENT-20.12)")
    locale: Language = setting("pt-PT", "language of a booking that says none")
    ops_locale: Language = setting("pt-PT", "language of internal mails and alerts")

    # -- bookings
    hold_minutes: int = setting(60, "how long a booking waits for its payment (RENT-20.06)", least=30, most=1440)
    name_required_cents: int = setting(100_000, "total from which a customer without NIF gives name and address")
    payment_methods: tuple[str, ...] = setting((), "ways to pay, such as card,multibanco; empty: the account's own")
    delayed_payment_days: int = setting(8, "days that a voucher may take to be paid (RENT-20.07)", least=1)
    starts_soon: timedelta = setting(length("1d"), "how near a start is shown in the internal mail (RENT-6.06)")

    free_cancel_hours: int = setting(48, "notice with which everything is proposed to go back (RENT-20.13)")
    refund_limit_cents: int = setting(50_000, "what operators give back of a booking; admins more (RENT-20.03)")

    # -- documents
    vat_bps: Literal[2300, 1300, 600] = setting(2300, "rate of VAT, in 1/100 of a percent (RENT-20.18)")
    vendus_payment_way: int = setting(4, "the id of Vendus' way of payment for cards", least=1)
    vendus_register: int = setting(0, "the id of Vendus' register; 0: whichever is open")
    vendus_per_second: int = setting(2, "calls of Vendus in a second (RENT-20.23)", least=1)
    resend_per_second: int = setting(2, "mails in a second (RENT-20.23)", least=1)
    link_life: timedelta = setting(length("72h"), "how long the link to an invoice works (RENT-7.05)", least=_SECOND)
    invoice_wait: timedelta = setting(length("24h"), "how long the mail with an invoice waits for it (RENT-7.03)")
    invoice_look: timedelta = setting(length("60s"), "how often it looks", least=_SECOND)

    # -- operations
    check_at: TimeOfDay = setting("07:30", "when bookings are checked every day, by the clocks of the zone")
    invoice_alert_at: TimeOfDay = setting("20:00", "when payments of the day without an invoice are told of")

    # -- jobs
    attempts: int = setting(3, "how often a job of a booking is tried", least=1, most=100)
    retry_pause: timedelta = setting(length("60s"), "pause between its tries")
    task_timeout: timedelta = setting(length("2m"), "how long one try may take", least=_SECOND)

    def together(self) -> Iterator[tuple[str, str]]:
        """What does not fit to something else."""
        if self.invoice_look > self.invoice_wait:
            yield "invoice_look", "is more than invoice_wait"

    @property
    def retry(self) -> Retry:
        """How a job of a booking is tried again."""
        return ms.fixed(self.retry_pause, attempts=self.attempts)
