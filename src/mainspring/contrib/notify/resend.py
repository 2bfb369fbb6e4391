"""Mail over Resend, idempotent by the message's key."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from mainspring.contrib.codes import PROVIDER_CONFIGURATION
from mainspring.contrib.http import HTTP_TIMEOUT_S, Http, ProviderReply, checked_secret, header_key
from mainspring.contrib.notify.address import mail_address, one_line, sender_address
from mainspring.contrib.notify.sender import Outgoing, Receipt, Undeliverable
from mainspring.contrib.secret import Secret
from mainspring.db.recipients import Channel
from mainspring.outcome import Failure, Permanent
from mainspring.text.span import Span

RESEND_URL: Final = "https://api.resend.com"


class Resend:
    """Sends mail over Resend, which knows a message again by its key for a day.

    ::

        resend = Resend(os.environ["RESEND_API_KEY"], sender="Shop <shop@example.com>")
    """

    name = "resend"
    channel: Channel = "email"

    def __init__(
        self, api_key: str | Secret, *, sender: str, base: str = RESEND_URL, timeout: Span = HTTP_TIMEOUT_S
    ) -> None:
        sender_address(sender)
        self._sender, self._key = sender, checked_secret("api_key", api_key)
        self._http = Http(self.name, base, timeout=timeout)

    def __repr__(self) -> str:
        return f"<Resend {self._http.base}>"

    async def send(self, message: Outgoing) -> Receipt:
        """Hand it over, once: a repeat under the same key is answered with the first one's id."""
        mail = {
            "from": self._sender,
            "to": [mail_address(message.to)],
            "subject": one_line("title", message.title),
            "text": message.text,
            **({"html": message.html} if message.html is not None else {}),
        }
        headers = {"authorization": f"Bearer {self._key.reveal()}", "idempotency-key": header_key(message.key)}
        answer = await self._http.ask("POST", "/emails", json=mail, headers=headers)
        if not answer.fine:
            raise self._meaning(answer)
        return Receipt(provider=self.name, provider_id=str(answer.body.get("id", "")) or None)

    async def find(self, message: Outgoing, since: datetime) -> Receipt | None:
        """None: Resend itself recognises a repeat."""
        return None

    async def close(self) -> None:
        """Let go of connections."""
        await self._http.close()

    def _meaning(self, answer: ProviderReply) -> Failure:
        kind, text = str(answer.body.get("name", "")), str(answer.body.get("message", ""))
        if answer.status in (400, 422) and "`to`" in text:
            return Undeliverable("to: Resend does not accept the address", code="EMAIL_ADDRESS_INVALID")
        if kind == "invalid_idempotent_request":  # the first one was taken; this one says something else
            return Permanent("resend: the key was used for another message", code="IDEMPOTENCY_KEY_REUSED")
        if kind == "invalid_from_address":
            return Permanent("resend: the sender's address is refused", code=PROVIDER_CONFIGURATION, counts=True)
        return self._http.refused(answer, kind)
