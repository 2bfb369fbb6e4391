"""Who may cause what: the parts are the roles of a login, and the company itself (RENT-20.03, 20.04)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

Part = Literal["customer", "viewer", "operator", "admin", "SYSTEM"]

_DESK: Final[frozenset[Part]] = frozenset({"operator", "admin"})
_ADMIN: Final[frozenset[Part]] = frozenset({"admin"})
_OWN: Final[frozenset[Part]] = frozenset({"SYSTEM"})

MAY: Final[Mapping[str, frozenset[Part]]] = {
    "add_machine": _DESK | _OWN,
    "book": _DESK | _OWN,  # a shop books for its customers by a login of its own
    "correct_address": _DESK,
    "resend_mail": _DESK,
    "retry_job": _DESK,
    "send_skipped": _DESK | _OWN,
    "issue_skipped": _DESK | _OWN,
    "ask_for_link": frozenset({"customer"}),  # by a link that has expired, to the booking's own address
    "refund": _DESK,  # an operator up to RENTAL_REFUND_LIMIT_CENTS a booking
    "cancel_booking": _DESK,
    # money: what confirms nothing is an admin's to decide
    "settle": _ADMIN,
    "accept_payment": _ADMIN,
}
