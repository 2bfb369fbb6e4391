"""The stand-in for Vendus as tests and people hold it: its settings, its register, its clients and its documents."""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec

from mainspring_sandbox.vendus.asked import AskedClient, AskedDocument, WorkingMode
from mainspring_sandbox.vendus.documents import issue, listed
from mainspring_sandbox.vendus.refused import no_data, wrong
from mainspring_sandbox.world import World

RegisterStatus = Literal["open", "close"]
THE_REGISTER = 1  # the one that there is


class VendusSettings(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How it behaves, besides its faults."""

    unique_references: bool = True  # a reference that was used before is refused; else it makes a second document
    mode: WorkingMode = "normal"  # of the register: documents of `tests` are no documents
    per_second: Annotated[int, msgspec.Meta(ge=0)] = 0  # calls that it takes in a second; 0: as many as come
    vat_off_by: int = 0  # cents by which its VAT differs from what everybody else computes


class VendusStandIn:
    """One account with one register.

    ::

        with Sandbox() as sandbox:
            sandbox.vendus.register("close")  # nothing is issued any more
            ...
            sandbox.vendus.register("open")
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.settings = VendusSettings()
        self._calls: deque[datetime] = deque()  # of the last second

    def admits(self) -> bool:
        """Whether it takes one call more in this second."""
        now = self.world.now()
        while self._calls and self._calls[0] <= now - timedelta(seconds=1):
            self._calls.popleft()
        if self.settings.per_second and len(self._calls) >= self.settings.per_second:
            return False
        self._calls.append(now)
        return True

    def reset(self) -> None:
        """Behave as at the beginning."""
        self.settings = VendusSettings()
        self._calls.clear()

    def register(self, status: RegisterStatus | None = None) -> dict[str, Any]:
        """The register; with a status, somebody opens or closes it."""
        ledger, id = self.world.ledger, str(THE_REGISTER)
        if ledger.get("vendus.register", id) is None:
            ledger.add("vendus.register", id, {"status": "open"})
        if status is not None:
            ledger.change("vendus.register", id, status=status)
        found = ledger.get("vendus.register", id)
        assert found is not None
        common = {"id": THE_REGISTER, "store_id": 1, "title": "API", "type": "api", "situation": "on"}
        return common | {"mode": self.settings.mode, "status": found.body["status"]}

    def issue(self, asked: AskedDocument) -> dict[str, Any]:
        """A document under the next number of its series."""
        with self.world.ledger.together():
            return issue(self, asked)

    def document(self, id: int, mode: str = "normal") -> dict[str, Any]:
        """One document; those of `tests` are found by who asks for them."""
        found = self.world.ledger.get("invoice", str(id))
        if found is None or found.body["mode"] != mode:
            raise no_data()
        return found.body

    def find_documents(self, mode: str = "normal", **fields: Any) -> list[dict[str, Any]]:
        """Documents with these fields, the newest first."""
        return [listed(entry.body) for entry in self.world.ledger.find("invoice", mode=mode, **fields)]

    def enter(self, client: AskedClient) -> dict[str, Any]:
        """A new client; a tax number belongs to one."""
        if client.fiscal_id is not None and client.country == "PT" and not is_nif(client.fiscal_id):
            raise wrong("fiscal_id", "is not valid")
        if client.fiscal_id is not None and self.world.ledger.find("vendus.client", fiscal_id=client.fiscal_id):
            raise wrong("fiscal_id", "is that of another client")
        if not client.name:
            raise wrong("name", "is missing")
        client.id = self.world.ledger.number()
        body: dict[str, Any] = {**msgspec.to_builtins(client), "status": "active"}
        return self.world.ledger.add("vendus.client", str(client.id), body).body

    def find_clients(self, **fields: Any) -> list[dict[str, Any]]:
        """Clients with these fields."""
        return [entry.body for entry in self.world.ledger.find("vendus.client", **fields)]

    def addressee(self, asked: AskedClient | None) -> dict[str, Any] | None:
        """Whom a document is for: by id, by tax number, or new; None: a final consumer whom nobody names."""
        if asked is None:
            return None
        if asked.id is not None:
            found = self.world.ledger.get("vendus.client", str(asked.id))
            if found is None:
                raise wrong("client.id", "there is no such client")
            return found.body
        known = self.find_clients(fiscal_id=asked.fiscal_id) if asked.fiscal_id else []
        return known[0] if known else self.enter(asked)


def is_nif(text: str) -> bool:
    """Whether a Portuguese tax number has its check digit.

    >>> is_nif("123456789"), is_nif("123456780")
    (True, False)
    """
    if len(text) != 9 or not text.isascii() or not text.isdigit():
        return False
    rest = sum(int(digit) * weight for digit, weight in zip(text, range(9, 1, -1), strict=False)) % 11
    return int(text[8]) == (0 if rest < 2 else 11 - rest)
