"""What people want to be told of their saved searches, said by themselves or by a signed link in the message."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self, get_args

from mainspring.contrib.notify import Notification, Template
from mainspring.contrib.secret import Secret
from mainspring.errors import ConfigurationError
from mainspring_apps.staffing import store
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.events import event
from mainspring_apps.staffing.people import By
from mainspring_apps.staffing.rules.wishes import LINKED, Wish, signature, signed
from mainspring_apps.staffing.states import Refused
from mainspring_apps.staffing.store import Conn

SECRET: Final = "STAFFING_LINK_SECRET"  # noqa: S105 (the name of a variable)
PATH: Final = "/staffing/opt-out"
SHORTEST_SECRET: Final = 16  # characters


@event
def opt_out(desk: Desk, conn: Conn, user_id: int, *, kind: Wish, by: By) -> bool:
    """Stop sending a user messages of this kind. False: they had stopped already."""
    return _say(desk, conn, "opt_out", user_id, kind)


@event
def opt_in(desk: Desk, conn: Conn, user_id: int, *, kind: Wish, by: By) -> bool:
    """Send a user messages of this kind again. False: they were being sent already."""
    return _say(desk, conn, "opt_in", user_id, kind)


def _say(desk: Desk, conn: Conn, act: str, user_id: int, kind: Wish) -> bool:
    if kind not in get_args(Wish):  # a message of business cannot be refused
        raise Refused(f"kind: is not one of {', '.join(get_args(Wish))}", field="kind")
    if not store.do(conn, act, user_id=user_id, kind=kind):
        return False
    desk.record(conn, act, "user", user_id, reason=kind)
    return True


@dataclass(frozen=True)
class OptOutLinks:
    """The links by which a message ends its own kind: nobody need be signed in to follow one."""

    secret: Secret
    url: str  # where links in messages lead

    @classmethod
    def from_env(cls, env: Mapping[str, str], url: str) -> Self | None:
        """None where the environment says no secret: then messages have no such links."""
        if not (secret := env.get(SECRET)):
            return None
        if len(secret) < SHORTEST_SECRET:
            raise ConfigurationError(f"{SECRET}: is shorter than {SHORTEST_SECRET} characters")
        return cls(Secret(secret), url.rstrip("/"))

    def link(self, user_id: int, kind: Wish) -> str:
        """Where a user can say that messages of a kind are not wanted any more."""
        return f"{self.url}{PATH}/{user_id}/{kind}/{signature(self.secret.reveal(), user_id, kind)}"

    def knows(self, user_id: int, kind: str, claimed: str) -> bool:
        """Whether it is a link of ours."""
        return signed(self.secret.reveal(), user_id, kind, claimed)


def linked(templates: Iterable[Template], links: OptOutLinks | None) -> list[Template]:
    """The templates, of which those that people may refuse are filled with their links as they are sent."""
    found = {kind: _filled(kind, links) for kind in LINKED}
    return [replace(one, fill=found[one.name]) if one.name in found else one for one in templates]


def _filled(kind: Wish, links: OptOutLinks | None) -> Any:
    async def fill(conn: Any, note: Notification) -> Mapping[str, str]:
        return {"opt_out": links.link(int(note.recipient_id), kind) if links else ""}

    return fill
