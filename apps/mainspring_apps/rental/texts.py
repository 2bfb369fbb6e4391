"""What a rental company says to people, in English; each text has its line in every catalogue of `languages`."""

from __future__ import annotations

from typing import Final

from mainspring.contrib.notify import Template
from mainspring_apps.frame import catalogue
from mainspring_apps.rental.languages import SPOKEN
from mainspring_apps.rental.rules import letters

_FACTS: Final = "[Machine], from [First day] to [Last day], [Total], booking [Booking]."
_FACTS_HTML: Final = (
    "<p>[Machine], from [First day] to [Last day]<br>Total: [Total]<br>Booking: [Booking]</p>"
)  # fmt: skip
_ENGLISH: Final = (
    Template(
        "confirmation",
        "Your booking is confirmed",
        f"Hello [Customer], your booking is confirmed: {_FACTS}",
        html=f"<p>Hello [Customer], your booking is confirmed.</p>{_FACTS_HTML}",
        style="brackets",
    ),
    Template(
        "internal",
        "Booking [Booking] is confirmed",
        f"{_FACTS} Look at: [Flags]. [Link]",
        html=f'{_FACTS_HTML}<p>Look at: [Flags]</p><p><a href="[Link]">[Link]</a></p>',
        style="brackets",
    ),
    Template(
        "invoice",
        "Your invoice [Number]",
        "Hello [Customer], your invoice [Number] of booking [Booking] is ready: [Link]",
        html='<p>Hello [Customer], your invoice [Number] of booking [Booking] is ready:</p><p><a href="[Link]">[Number]'
        "</a></p>",
        style="brackets",
    ),
    Template(
        "payment_failed",
        "Your payment did not come",
        "Hello [Customer], your payment for [Machine], from [First day] to [Last day], did not come. "
        "Booking [Booking] is not held any more. You can book again.",
        style="brackets",
    ),
    Template(
        "cancelled",
        "Your booking is cancelled",
        "Hello [Customer], booking [Booking] of [Machine], from [First day] to [Last day], is cancelled.",
        style="brackets",
    ),
    Template(
        "credit",
        "Your credit note [Number]",
        "Hello [Customer], your credit note [Number] of booking [Booking] is ready: [Link]",
        style="brackets",
    ),
)
_PHRASES: Final = (letters.INVOICING_OFF, letters.DRY_RUN, letters.NO_NIF, letters.STARTS_SOON)

#: Of the pages behind links.
LINK_ENDED: Final = "This link does not work any more."
LINK_EXPIRED: Final = "This link has expired."
SEND_NEW: Final = "Send me a new one"
ASK_LATER: Final = "A mail was sent a short while ago. Please ask again in an hour."
ON_ITS_WAY: Final = "A new link is on its way to the address of the booking."
NOT_NOW: Final = "The document cannot be shown right now. Please try again later."
_PAGES: Final = (LINK_ENDED, LINK_EXPIRED, SEND_NEW, ASK_LATER, ON_ITS_WAY, NOT_NOW)

TEMPLATES: Final = {one.name: one for one in SPOKEN.translated(_ENGLISH, {})}
said = SPOKEN.said


def texts() -> list[str]:
    """All that is said in English, as translators find it."""
    return catalogue.texts(_ENGLISH, (*_PHRASES, *_PAGES))
