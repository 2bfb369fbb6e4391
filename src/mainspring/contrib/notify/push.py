"""Push messages over a gateway that speaks a small protocol of our own.

Apple, Google and the browsers each have a protocol, and certificates to go with it. Whoever has such accounts has a
gateway for them; it needs this one page:

`POST {base}/messages`, with `Authorization: Bearer …` and `Idempotency-Key: …`, and the body
`{"to": "<device token>", "title": "…", "text": "…"}`. Answers:

- 200 or 201 `{"id": "…"}`: taken. Under a key that was seen within the last day: the first answer again, nothing sent.
- 404 or 410: the device has gone. 409 `{"error": "key_reused"}`: the key came with another message.
- 429 or 503, with `Retry-After`: later. 401 or 403: the token is wrong. Any other 4xx: the message is refused for good.
"""

from __future__ import annotations

from datetime import datetime

from mainspring.contrib.http import HTTP_TIMEOUT_S, Http, checked_secret, header_key
from mainspring.contrib.notify.sender import Outgoing, Receipt, Undeliverable
from mainspring.contrib.secret import Secret
from mainspring.db.recipients import Channel
from mainspring.outcome import Permanent
from mainspring.text.span import Span


class Push:
    """Sends push messages over a gateway.

    ::

        push = Push("https://push.example.com", token=os.environ["PUSH_TOKEN"])
    """

    name = "push"
    channel: Channel = "push"

    def __init__(self, base: str, *, token: str | Secret, timeout: Span = HTTP_TIMEOUT_S) -> None:
        self._token = checked_secret("token", token)
        self._http = Http(self.name, base, timeout=timeout)

    def __repr__(self) -> str:
        return f"<Push {self._http.base}>"

    async def send(self, message: Outgoing) -> Receipt:
        """Hand it over, once: the gateway recognises a repeat by its key."""
        if not message.to.strip():
            raise Undeliverable("to: is empty", code="PUSH_TOKEN_INVALID")
        note = {"to": message.to, "title": message.title, "text": message.text}
        headers = {"authorization": f"Bearer {self._token.reveal()}", "idempotency-key": header_key(message.key)}
        answer = await self._http.ask("POST", "/messages", json=note, headers=headers)
        if answer.status in (404, 410):
            raise Undeliverable("to: the device no longer accepts messages", code="PUSH_TOKEN_INVALID")
        if answer.status == 409 and answer.body.get("error") == "key_reused":
            raise Permanent("push: the key was used for another message", code="IDEMPOTENCY_KEY_REUSED")
        if not answer.fine:
            raise self._http.refused(answer)
        return Receipt(provider=self.name, provider_id=str(answer.body.get("id", "")) or None)

    async def find(self, message: Outgoing, since: datetime) -> Receipt | None:
        """None: the gateway itself recognises a repeat."""
        return None

    async def close(self) -> None:
        """Let go of connections."""
        await self._http.close()
