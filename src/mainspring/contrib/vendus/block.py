"""The block: Vendus as an application uses it, from async handlers and from plain ones."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import cast

from mainspring.circuit import breaker
from mainspring.contrib.called import AwaitedVerbs, PlainVerbs, provider_verb
from mainspring.contrib.secret import Secret
from mainspring.contrib.vendus import verbs
from mainspring.contrib.vendus.api import VENDUS_TIMEOUT_S, VENDUS_URL, VendusApi, VendusMode
from mainspring.declare.block import Block
from mainspring.declare.registry import Registry
from mainspring.errors import ConfigurationError
from mainspring.text.span import Span

VENDUS_NAME = "vendus"


class VendusVerbs:
    """What both colours offer."""

    def __init__(self, api: VendusApi) -> None:
        self.api = api

    registers = provider_verb(verbs.registers)
    open_register = provider_verb(verbs.open_register)
    payment_ways = provider_verb(verbs.payment_ways)
    find_client = provider_verb(verbs.find_client)
    create_client = provider_verb(verbs.create_client)
    find_document = provider_verb(verbs.find_document)
    document = provider_verb(verbs.document)
    issue = provider_verb(verbs.issue)
    credit = provider_verb(verbs.credit)
    pdf = provider_verb(verbs.pdf)

    def pdf_address(self, id: int) -> str:
        """Where the PDF of a document is; whoever asks there needs the key."""
        return f"{self.api.base}/v1.1/documents/{id}.pdf"


class Vendus(VendusVerbs, AwaitedVerbs, Block):
    """Invoices and credit notes through Vendus, each issued once.

    ::

        vendus = Vendus(os.environ["VENDUS_API_KEY"])
        app = ms.App(tasks, blocks=[vendus])

        invoice = await vendus.issue(draft, again=reserved_before)

    `base` is another address than Vendus', such as the sandbox's. `timeout` is for one call. `per_second` is how many
    calls this process makes; several processes need a limit of the engine besides. `mode` replaces that of the
    register. In plain functions use `vendus.sync`.
    """

    def __init__(
        self,
        api_key: str | Secret,
        *,
        base: str = VENDUS_URL,
        timeout: Span = VENDUS_TIMEOUT_S,
        per_second: float | None = None,
        mode: VendusMode | None = None,
    ) -> None:
        super().__init__(VendusApi(api_key, base=base, timeout=timeout, per_second=per_second, mode=mode))
        self.sync = SyncVendus(self.api)
        self.registry = Registry(VENDUS_NAME)
        self.breakers = (breaker(VENDUS_NAME),)

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None, *, per_second: float | None = None) -> Vendus:
        """As the environment says: VENDUS_API_KEY, VENDUS_MODE (normal or tests), MAINSPRING_VENDUS_BASE.

        >>> Vendus.from_env({"VENDUS_API_KEY": "key"})
        <Vendus at https://www.vendus.pt/ws>
        """
        env = os.environ if env is None else env
        if not (key := env.get("VENDUS_API_KEY")):
            raise ConfigurationError(
                'VENDUS_API_KEY: is not set; `eval "$(mainspring sandbox env)"` sets the sandbox\'s'
            )
        mode = env.get("VENDUS_MODE") or None
        if mode not in ("normal", "tests", None):
            raise ConfigurationError("VENDUS_MODE: is neither normal nor tests")
        base = env.get("MAINSPRING_VENDUS_BASE") or VENDUS_URL
        return cls(key, base=base, mode=cast("VendusMode | None", mode), per_second=per_second)

    def __repr__(self) -> str:
        return f"<Vendus at {self.api.base}>"

    async def aclose(self) -> None:
        """Hang up; the end of the event loop does it, too."""
        await self.api.close()


class SyncVendus(VendusVerbs, PlainVerbs):
    """The same verbs for plain functions; made by `Vendus`, as its `sync`."""
