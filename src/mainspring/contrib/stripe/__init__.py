"""Payments through Stripe: charged once, whatever crashes; see docs/guides/stripe.md."""

from mainspring.contrib.money import CurrencyMismatch, Money, total
from mainspring.contrib.stripe.api import API_VERSION
from mainspring.contrib.stripe.block import Stripe, SyncStripe
from mainspring.contrib.stripe.chargeback import Dispute
from mainspring.contrib.stripe.checkout_session import CheckoutSession
from mainspring.contrib.stripe.errors import ActionRequired, Declined, OutcomeUnknown, RequestRefused
from mainspring.contrib.stripe.inbound import NotYet, StripeEvent
from mainspring.contrib.stripe.movement import Charge, Movement, Refund, Reversal, Transfer
from mainspring.contrib.stripe.reconcile import Pending, StripeFinding, overdue
from mainspring.contrib.stripe.signature import sign
from mainspring.contrib.stripe.status import IllegalTransition, MovementKind, StripeStatus, latest, move

__all__ = [
    "API_VERSION",
    "ActionRequired",
    "Charge",
    "CheckoutSession",
    "CurrencyMismatch",
    "Declined",
    "Dispute",
    "IllegalTransition",
    "Money",
    "Movement",
    "MovementKind",
    "NotYet",
    "OutcomeUnknown",
    "Pending",
    "Refund",
    "RequestRefused",
    "Reversal",
    "Stripe",
    "StripeEvent",
    "StripeFinding",
    "StripeStatus",
    "SyncStripe",
    "Transfer",
    "latest",
    "move",
    "overdue",
    "sign",
    "total",
]
