"""How Vendus says no."""

from __future__ import annotations

from mainspring_sandbox.acts import ActRefused


class VendusRefused(ActRefused):
    """It is not done: status, code and text."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


def wrong(field: str, what: str) -> VendusRefused:
    """A field that is none, or says what cannot be: Vendus answers 403 to that."""
    return VendusRefused(403, "P001", f"{field}: {what}")


def no_data() -> VendusRefused:
    """Nothing was found: Vendus answers 404 to a list that is empty, too."""
    return VendusRefused(404, "A001", "No data")
