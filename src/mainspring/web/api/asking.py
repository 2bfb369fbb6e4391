"""One request as an operation sees it: who asks, for which organisation, and in which transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from mainspring.client import AsyncClient
from mainspring.db.jobs import Who
from mainspring.db.requests import lock_for_change
from mainspring.db.wire.connect import AsyncConnection
from mainspring.db.wire.run import async_psycopg_door, run_async
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue
from mainspring.declare.principal import Principal
from mainspring.declare.registry import Registry
from mainspring.events import Event
from mainspring.text.sanitize import MASK, names_secret, sanitize
from mainspring.web.api.refused import ApiRefused
from mainspring.web.api.version import ANY_VERSION, Versioned

T = TypeVar("T")


class Asking:
    """Who asks, and the transaction in which they are answered: it is bound to their organisation, and commits at last.

    ::

        job = await asking.client.get(id, conn=asking.conn)

    The verbs of `client` know the organisation and the actor from the request: a handler names neither.
    """

    def __init__(
        self,
        principal: Principal,
        org: str | None,
        client: AsyncClient,
        conn: AsyncConnection,
        *,
        reader: AsyncClient,
        registry: Registry,
        if_match: frozenset[str] | None = None,
    ) -> None:
        self.principal, self.org = principal, org
        self.client, self.conn = client, conn
        self.registry = registry  # the tasks that the application knows
        self._reader, self._if_match = reader, if_match
        self.events: list[Event] = []
        self.rest: list[Dialogue[Any]] = []
        self.compared = False

    @property
    def sql(self) -> Sql:
        """The statements of the schema."""
        return self.client.seam.sql

    @property
    def who(self) -> Who:
        """Who acts, for dialogues that name it."""
        return self.client.seam.who()

    @property
    def writer(self) -> AsyncClient:
        """The client that encrypts what it enqueues, where the application has a cipher; nothing is read with it."""
        return self._reader

    async def ask(self, dialogue: Dialogue[T]) -> T:
        """Ask the database something for which the client has no verb."""
        return await run_async(async_psycopg_door(self.conn), dialogue)

    # -- versions

    async def lock(self, kind: str, name: object) -> None:
        """Let what is about to change stay as it is: before it is looked at and compared. Kinds: `lock_for_change`."""
        await self.ask(lock_for_change(self.sql, kind, self.org, str(name)))

    def match(self, seen: Versioned) -> None:
        """Refuse a change that was decided on another version."""
        self.compared = True
        if self._if_match is not None and self._if_match.isdisjoint({ANY_VERSION, seen.etag}):
            raise ApiRefused(412, "CHANGED_MEANWHILE", "Somebody has changed this meanwhile; look at it again.")

    # -- what is shown

    def show(self, value: Any) -> Any:
        """A payload, a result or an error as everybody may see it: without secrets and addresses."""
        match value:
            case str():
                return sanitize(value)
            case Mapping():
                return {
                    sanitize(str(name)): MASK
                    if names_secret(str(name)) and inner not in (None, "")
                    else self.show(inner)
                    for name, inner in value.items()
                }
            case list():
                return [self.show(inner) for inner in value]
        return value

    async def reveal(self, what: str, org: str) -> AsyncClient:
        """The client that reads what is encrypted, for who may; the trail says who looked at what."""
        if not self.principal.reveals:
            raise ApiRefused(403, "FORBIDDEN", "To see this unmasked is a right of its own.")
        await self.client.audit.record("payload.revealed", subject=what, org=org, conn=self.conn)
        return self._reader

    # -- afterwards

    def tell(self, event: Event) -> None:
        """Tell observers, once all is committed: in a transaction of ours the client cannot."""
        self.events.append(event)

    def then(self, dialogue: Dialogue[Any]) -> None:
        """Ask the database something more in a transaction of its own, once all is committed."""
        self.rest.append(dialogue)
