"""Stands in for Vendus, a Portuguese invoicing service: its API 1.1 as applications use it.

Clients, a register that is open or closed, invoices (FR, FT) and credit notes (NC), and a PDF of each. Every API key
is taken but `wrong`, as the user of Basic. Some of it is not publicly described, and therefore the sandbox's own: codes
of errors other than P001 (a field) and A001 (nothing was found), how a closed register refuses, and that a reference
which was used before is refused with 409; with `unique_references=False` it makes a second document. An application has
to cope with either.
"""

from __future__ import annotations

from mainspring_sandbox.vendus.pages import routes
from mainspring_sandbox.vendus.state import VendusSettings, VendusStandIn

__all__ = ["VendusSettings", "VendusStandIn", "routes"]
