"""Invoices through Vendus, a Portuguese invoicing service: issued once, whatever crashes; see docs/guides/vendus.md."""

from mainspring.contrib.vendus.block import SyncVendus, Vendus
from mainspring.contrib.vendus.drafts import CreditDraft, CreditedLine, InvoiceDraft, InvoiceLine
from mainspring.contrib.vendus.errors import (
    DocumentConflict,
    DocumentRejected,
    DocumentUnknown,
    InvoicingDenied,
    RegisterClosed,
)
from mainspring.contrib.vendus.values import (
    CashRegister,
    FiscalClient,
    FiscalDocument,
    IssuedLine,
    PaymentWay,
    vat_of,
)

__all__ = [
    "CashRegister",
    "CreditDraft",
    "CreditedLine",
    "DocumentConflict",
    "DocumentRejected",
    "DocumentUnknown",
    "FiscalClient",
    "FiscalDocument",
    "InvoiceDraft",
    "InvoiceLine",
    "InvoicingDenied",
    "IssuedLine",
    "PaymentWay",
    "RegisterClosed",
    "SyncVendus",
    "Vendus",
    "vat_of",
]
