"""Who may cause what: one line for each business event, with the parts that may cause it.

A part is played towards what the event is about, never at large: a Lending Admin is one of the company that lends the
worker of this booking, or of the company whose account, policy or worker it is. Who plays none of the parts of a line
is refused before anything is read or written, and for who plays none at all what it is about is not there. An event
without a line cannot be declared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

Part = Literal[
    "Worker", "Supervisor", "Borrowing Manager", "Borrowing Admin", "Lending Manager", "Lending Admin",
    "Platform Operator", "SYSTEM",
]  # fmt: skip

_PAYERS: Final[frozenset[Part]] = frozenset({"Borrowing Admin", "Borrowing Manager"})
_ON_SITE: Final[frozenset[Part]] = _PAYERS | {"Supervisor"}
_LENDERS: Final[frozenset[Part]] = frozenset({"Lending Admin", "Lending Manager"})
_ADMINS: Final[frozenset[Part]] = frozenset({"Borrowing Admin", "Lending Admin"})
_WORKER: Final[frozenset[Part]] = frozenset({"Worker"})
_OPERATOR: Final[frozenset[Part]] = frozenset({"Platform Operator"})
#: Who may dispute a shift or report an incident; a worker cannot end the booking by it (G-61).
_FILERS: Final[frozenset[Part]] = frozenset({"Supervisor", "Borrowing Admin"})

#: An import, in a terminal, brings in what companies had before (STAFF-20.28).
_IMPORT: Final[frozenset[Part]] = frozenset({"SYSTEM"})

#: Where an event has an option, each has a line of its own.
MAY: Final[Mapping[str, frozenset[Part]]] = {
    # the marketplace, and whom it lets in
    "add_operator": _OPERATOR | {"SYSTEM"},
    "add_company": _OPERATOR | _IMPORT,
    "let_in": _OPERATOR | {"SYSTEM"},
    "choose_language": _ON_SITE | _LENDERS | _WORKER | _OPERATOR,  # one's own
    "add_user": _ADMINS | _OPERATOR | _IMPORT,
    # a company's own: where its money comes from and goes to is for its admin alone
    "put_card": frozenset({"Borrowing Admin", "SYSTEM"}),
    "connect_account": frozenset({"Lending Admin", "SYSTEM"}),
    "add_policy": _ADMINS | _IMPORT,
    "renew_insurance": _ADMINS,
    "deactivate_insurance": _ADMINS | _OPERATOR,
    "add_project": _PAYERS | _IMPORT,
    "add_worker": _LENDERS | _IMPORT,
    "list_worker": _LENDERS,
    "unlist_worker": _LENDERS,
    "save_search": _ON_SITE,
    # what somebody wants to hear is for themselves alone
    "opt_out": _ON_SITE | _LENDERS | _WORKER,
    "opt_in": _ON_SITE | _LENDERS | _WORKER,
    # a booking and its shifts: nobody clocks in, submits or verifies for somebody else, as money follows from it
    "confirm_booking": _PAYERS,
    "pay_by_hand": _PAYERS,
    "pay_arrears": _PAYERS,
    "change_scheduled_end": _ON_SITE,
    "change_shift_end": _ON_SITE,
    "clock_in": _WORKER,
    "save_draft": _WORKER,
    "submit_timesheet": _WORKER,
    "force_clock_out": _ON_SITE,
    "edit_timesheet": _ON_SITE | _WORKER,
    "verify_timesheet": _ON_SITE,
    "confirm_extra_time": _ON_SITE,  # who says what was worked, and pays for it; never who is paid
    "was_worked": _ON_SITE,
    # what is to come is called off by who pays for it, or by us
    "cancel_shift": frozenset({"Borrowing Admin", "Platform Operator"}),
    "cancel_booking": frozenset({"Borrowing Admin", "Platform Operator"}),
    # quarrels: who has a share in the money does not divide it alone
    "file_dispute A": _FILERS | _WORKER,
    "file_dispute B": _FILERS,
    "propose_settlement": _ADMINS,
    "resolve_dispute": _OPERATOR,
    "file_incident A": _FILERS | _WORKER,
    "file_incident B": _FILERS,
    "resolve_incident": _OPERATOR,
    # money that has gone out
    "reverse_transfer": _OPERATOR,
    "repeat_refund": _OPERATOR,
    "divide_set_aside": _OPERATOR,
}
