"""Text messages over Twilio, or over whoever speaks its HTTP API.

Twilio knows no idempotency key. So before a repeat `find` looks whether the message is in its list already.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final
from urllib.parse import quote

import msgspec

from mainspring.contrib.codes import PROVIDER_CONFIGURATION
from mainspring.contrib.http import HTTP_TIMEOUT_S, Http, ProviderReply, checked_secret
from mainspring.contrib.notify.address import phone_number
from mainspring.contrib.notify.sender import Outgoing, Receipt, Undeliverable
from mainspring.contrib.secret import Secret
from mainspring.db.recipients import Channel
from mainspring.errors import ConfigurationError
from mainspring.outcome import Failure, Permanent
from mainspring.text.span import Span

TWILIO_URL: Final = "https://api.twilio.com"
#: The number is none, is no mobile, cannot be reached from ours, or has opted out.
UNREACHABLE: Final = frozenset({21211, 21217, 21401, 21421, 21610, 21612, 21614})
#: Ours: the sender's number or service, the regions we may send to, the login.
OWN_ERRORS: Final = frozenset({20003, 20404, 21212, 21408, 21603, 21606, 21659, 21660, 21703, 21704})
#: Ends that reach nobody: a repeat is then no second message.
FRUITLESS: Final = frozenset({"canceled", "failed", "undelivered"})
TWILIO_SKEW: Final = timedelta(seconds=5)  # between the database's clock and Twilio's
NEWEST_MESSAGES: Final = 100


class _Listed(msgspec.Struct):
    sid: str
    body: str
    status: str
    date_created: str


class _List(msgspec.Struct):
    messages: list[_Listed]


class Twilio:
    """Sends text messages over Twilio.

    ::

        twilio = Twilio("AC…", os.environ["TWILIO_AUTH_TOKEN"], sender="+4930901820")

    `sender` is a number, a name where the country allows one, or the id of a messaging service, `MG…`.
    """

    name = "twilio"
    channel: Channel = "sms"

    def __init__(
        self,
        account_sid: str,
        auth_token: str | Secret,
        *,
        sender: str,
        base: str = TWILIO_URL,
        timeout: Span = HTTP_TIMEOUT_S,
    ) -> None:
        for field, value in (("account_sid", account_sid), ("sender", sender)):
            if not value.strip():
                raise ConfigurationError(f"{field}: is empty")
        login = account_sid, checked_secret("auth_token", auth_token)
        self._sender = {"MessagingServiceSid" if re.fullmatch(r"MG[0-9a-f]{32}", sender) else "From": sender}
        self._path = f"/2010-04-01/Accounts/{quote(account_sid, safe='')}/Messages.json"
        self._http = Http(self.name, base, timeout=timeout, login=login)

    def __repr__(self) -> str:
        return f"<Twilio {self._http.base}>"

    async def send(self, message: Outgoing) -> Receipt:
        """Hand it over; asked twice, Twilio sends twice."""
        form = {"To": phone_number(message.to), "Body": message.text, **self._sender}
        answer = await self._http.ask("POST", self._path, data=form)
        if not answer.fine:
            raise self._meaning(answer)
        return Receipt(provider=self.name, provider_id=str(answer.body.get("sid", "")) or None)

    async def find(self, message: Outgoing, since: datetime) -> Receipt | None:
        """The newest message of the same text to the same number since then.

        Not asked for by `DateSent`: what still waits in Twilio's queue has none yet.
        """
        number = phone_number(message.to)
        answer = await self._http.ask("GET", self._path, params={"To": number, "PageSize": NEWEST_MESSAGES})
        if not answer.fine:
            raise self._meaning(answer)
        try:
            listed = msgspec.convert(answer.body, _List).messages
            same = [one for one in listed if one.body == message.text and one.status not in FRUITLESS]
            same = [one for one in same if one.sid not in message.others]
            found = [one.sid for one in same if parsedate_to_datetime(one.date_created) >= since - TWILIO_SKEW]
        except (msgspec.ValidationError, ValueError, TypeError):  # not knowing, we must not send
            raise Failure("twilio: its list of messages is not readable", code="HttpException") from None
        return Receipt(provider=self.name, provider_id=found[0]) if found else None

    async def close(self) -> None:
        """Let go of connections."""
        await self._http.close()

    def _meaning(self, answer: ProviderReply) -> Failure:
        code = answer.body.get("code")
        if code in UNREACHABLE:
            return Undeliverable(f"to: Twilio cannot deliver to the number ({code})", code="PHONE_NUMBER_INVALID")
        if code in OWN_ERRORS:
            return Permanent(f"twilio: refuses our settings ({code})", code=PROVIDER_CONFIGURATION, counts=True)
        return self._http.refused(answer, str(code) if isinstance(code, int) else "")
