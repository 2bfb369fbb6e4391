"""The stand-in for Resend as tests and people hold it: its post, and what becomes of a mail that it took."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any, Literal

from mainspring_sandbox.acts import ActRefused
from mainspring_sandbox.ledger import LedgerEntry
from mainspring_sandbox.post import Post, PostSettings, local
from mainspring_sandbox.world import World

BounceKind = Literal["Permanent", "Transient", "Undetermined"]


class NoSuchMail(ActRefused):
    """Resend has not taken it."""

    status = 404


class ResendPost(Post):
    """The deliveries of Resend."""

    provider = "resend"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._settings = PostSettings()

    @property
    def settings(self) -> PostSettings:
        """How its events are carried."""
        return self._settings

    def signed(self, event: dict[str, Any], endpoint: dict[str, Any]) -> tuple[dict[str, str], bytes]:
        """As Svix signs, whom Resend has do it: id, stamp and body under a secret in base64."""
        body = json.dumps(event["body"])
        id, stamp = f"msg_{event['id']}", str(int(self._world.now().timestamp()))
        secret = base64.b64decode(endpoint["_secret"].removeprefix("whsec_"))
        mac = hmac.new(secret, f"{id}.{stamp}.{body}".encode(), hashlib.sha256).digest()
        signed = f"v1,{base64.b64encode(mac).decode()}"
        return {"svix-id": id, "svix-timestamp": stamp, "svix-signature": signed}, body.encode()

    def wants(self, endpoint: dict[str, Any], event: dict[str, Any]) -> bool:
        """By the types that it was registered for."""
        return bool({"*", event["type"]} & set(endpoint["events"]))

    def about(self, event: dict[str, Any]) -> str | None:
        """The mail."""
        return str(event["body"]["data"]["email_id"])

    def reset(self) -> None:
        """As at the beginning."""
        super().reset()
        self._settings = PostSettings()


class ResendStandIn:
    """One account.

    ::

        with Sandbox() as sandbox:
            sandbox.resend.register("http://127.0.0.1:8000/v1/inbound/resend", secret=...)
            ...
            sandbox.resend.bounce("email_sandbox_000007")
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.post = ResendPost(world)

    def reset(self) -> None:
        """Behave as at the beginning."""
        self.post.reset()

    def register(self, url: str, *events: str, secret: str) -> dict[str, Any]:
        """A webhook endpoint on this machine, for all events unless some are named."""
        if not local(url):
            raise NoSuchMail("url: the sandbox delivers to loopback addresses alone")
        id = self.world.new_id("wh_resend")
        body = {"id": id, "url": url, "events": list(events or ("*",)), "deleted": None, "_secret": secret}
        return self.world.ledger.add("resend.webhook_endpoint", id, body).body

    def bounce(self, id: str, kind: BounceKind = "Permanent") -> dict[str, Any]:
        """A mail that was taken comes back."""
        detail = "General" if kind == "Permanent" else "MailboxFull"
        return self._told(id, "bounced", bounce={"type": kind, "subType": detail, "message": "It came back."})

    def complain(self, id: str) -> dict[str, Any]:
        """Somebody takes it for spam."""
        return self._told(id, "complained")

    def taken(self, id: str) -> None:
        """What becomes of a mail by itself, by whom it is for."""
        self._told(id, "sent")
        local_parts = {address.rpartition("@")[0] for address in self._mail(id).body["to"]}
        if "bounced" in local_parts:
            self.bounce(id)
            return
        self._told(id, "delivered")
        if "complained" in local_parts:
            self.complain(id)

    def _told(self, mail_id: str, what: str, **more: Any) -> dict[str, Any]:
        """An event of a mail."""
        mail, now = self._mail(mail_id), self.world.now().isoformat()
        data = {"email_id": mail.id, "created_at": mail.at.isoformat(), "from": mail.body["from"]}
        data |= {"to": mail.body["to"], "subject": mail.body["subject"], **more}
        event = {"type": f"email.{what}", "created_at": now, "data": data}
        id = self.world.new_id("resend_evt")
        with self.world.ledger.together():
            self.world.ledger.change("mail", mail.id, last_event=what)
            self.world.ledger.add("resend.event", id, {"id": id, "type": event["type"], "body": event})
        self.post.put({"id": id, "type": event["type"], "body": event})
        return event

    def _mail(self, id: str) -> LedgerEntry:
        found = self.world.ledger.get("mail", id)
        if found is None or found.body.get("provider") != "resend":
            raise NoSuchMail(f"id: Resend has taken no mail {id}")
        return found
