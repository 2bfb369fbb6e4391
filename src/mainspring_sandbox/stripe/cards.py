"""Stripe's test cards: what each of them does, by its number and by the name of its payment method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class Card:
    """A test card, and what happens when it is charged or refunded."""

    number: str
    names: tuple[str, ...]  # pm_card_visa and tok_visa without what they begin with
    brand: str = "visa"
    code: str | None = None  # it is declined with this
    decline_code: str | None = None
    authenticate: Literal["never", "unless saved", "always"] = "never"
    processing: bool = False  # stays so until somebody settles it
    refund: Literal["succeeded", "pending", "fails later"] = "succeeded"


def _declined(number: str, name: str, decline_code: str, code: str = "card_declined") -> Card:
    return Card(number, (f"chargeDeclined{name}", f"visa_chargeDeclined{name}"), code=code, decline_code=decline_code)


CARDS: Final = (
    Card("4242424242424242", ("visa",)),
    Card("4000056655665556", ("visa_debit",)),
    Card("5555555555554444", ("mastercard",), "mastercard"),
    Card("5200828282828210", ("mastercard_debit",), "mastercard"),
    Card("378282246310005", ("amex",), "amex"),
    Card("6011111111111117", ("discover",), "discover"),
    Card("3056930009020004", ("diners",), "diners"),
    Card("3566002020360505", ("jcb",), "jcb"),
    Card("6200000000000005", ("unionpay",), "unionpay"),
    Card("4000000000000077", ("bypassPending",)),
    _declined("4000000000000002", "", "generic_decline"),
    _declined("4000000000009995", "InsufficientFunds", "insufficient_funds"),
    _declined("4000000000009987", "LostCard", "lost_card"),
    _declined("4000000000009979", "StolenCard", "stolen_card"),
    _declined("4000000000006975", "VelocityLimitExceeded", "card_velocity_exceeded"),
    _declined("4100000000000019", "Fraudulent", "fraudulent"),
    # These three say what is wrong in the code itself.
    _declined("4000000000000069", "ExpiredCard", "expired_card", "expired_card"),
    _declined("4000000000000127", "IncorrectCvc", "incorrect_cvc", "incorrect_cvc"),
    _declined("4000000000000119", "ProcessingError", "processing_error", "processing_error"),
    Card("4000000000000341", ("chargeCustomerFail",), code="card_declined", decline_code="generic_decline"),
    Card("4000002760003184", ("authenticationRequired",), authenticate="always"),
    Card("4000002500003155", ("authenticationRequiredOnSetup",), authenticate="unless saved"),
    Card(
        "4000008260003178",
        ("authenticationRequiredChargeDeclinedInsufficientFunds",),
        code="card_declined",
        decline_code="insufficient_funds",
        authenticate="unless saved",
    ),
    Card("4000000000007726", ("pendingRefund",), refund="pending"),
    Card("4000000000005126", ("refundFail",), refund="fails later"),
    # Not one of Stripe's cards: its bank debits do this, for days.
    Card("4000000000000705", ("processing",), processing=True),
)
BY_NUMBER: Final = {card.number: card for card in CARDS}
CARDS_BY_NAME: Final = {name: card for card in CARDS for name in card.names}
#: What a decline says to people.
DECLINE_TEXTS: Final = {
    "authentication_required": "Your card was declined. This transaction requires authentication.",
    "card_velocity_exceeded": "Your card was declined for making repeated attempts too frequently.",
    "expired_card": "Your card has expired.",
    "incorrect_cvc": "Your card's security code is incorrect.",
    "insufficient_funds": "Your card has insufficient funds.",
    "processing_error": "An error occurred while processing your card. Try again in a little bit.",
}
DECLINED: Final = "Your card was declined."


def sums_up(number: str) -> bool:
    """Whether a card number's last digit fits the others.

    >>> sums_up("4242424242424242"), sums_up("4242424242424241")
    (True, False)
    """
    if not (number.isascii() and number.isdecimal() and 12 <= len(number) <= 19):
        return False
    odd = [int(digit) for digit in number[-1::-2]]
    even = [sum(divmod(2 * int(digit), 10)) for digit in number[-2::-2]]
    return sum(odd + even) % 10 == 0
