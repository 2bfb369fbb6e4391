"""What the mails of a booking say, as values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from mainspring.contrib.money import Money
from mainspring_apps.rental.rules import days
from mainspring_apps.rental.rules.documents import Facts
from mainspring_apps.rental.settings import Settings

#: What an internal mail points at (RENT-6.06); texts of the catalogue.
INVOICING_OFF: Final = "invoicing is off"
DRY_RUN: Final = "mails are a dry run"
NO_NIF: Final = "there is no NIF"
STARTS_SOON: Final = "the rental starts within a day"


def letter(facts: Facts) -> Mapping[str, Any]:
    """The values that every mail of a booking may use (RENT-5.08)."""
    assert facts.start_date is not None
    assert facts.end_date is not None
    assert facts.total_minor is not None
    return {
        "Booking": facts.id,
        "Machine": facts.machine,
        "Customer": facts.customer_name,
        "First day": str(facts.start_date),
        "Last day": str(facts.end_date - timedelta(days=1)),
        "Total": str(Money(facts.total_minor, facts.currency)),
    }


def flags(facts: Facts, settings: Settings, now: datetime) -> Iterator[str]:
    """What somebody of the company should see."""
    if not settings.invoicing_enabled:
        yield INVOICING_OFF
    if not settings.send_emails:
        yield DRY_RUN
    if not facts.tax_number:
        yield NO_NIF
    assert facts.start_date is not None
    if days.starts(facts.start_date, settings.zone) - now <= settings.starts_soon:
        yield STARTS_SOON
