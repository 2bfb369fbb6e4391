"""A message as a mail: headers, text and HTML, the same on every attempt but for its date."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from typing import Final, NamedTuple

from mainspring.contrib.notify.address import mail_address, one_line
from mainspring.contrib.notify.sender import Outgoing

_SEVEN_BITS: Final = SMTP.clone(cte_type="7bit")  # every server takes it, and no relay has to change it
_UTF8: Final = _SEVEN_BITS.clone(utf8=True)


class Mail(NamedTuple):
    """What goes over the wire."""

    to: str
    id: str
    content: bytes
    international: bool  # whether the server must know SMTPUTF8


def mail(message: Outgoing, name: str, address: str) -> Mail:
    """Write a mail from this name and address; what would break a header is refused."""
    to, message_id = mail_address(message.to), mail_id(message.key, address)
    international = not (to + address).isascii()
    written = EmailMessage(policy=_UTF8 if international else _SEVEN_BITS)
    written["From"] = Address(name, *address.rsplit("@", 1))
    written["To"] = Address("", *to.rsplit("@", 1))
    written["Subject"] = one_line("title", message.title)
    written["Date"] = datetime.now(UTC)
    written["Message-ID"] = message_id
    written["Auto-Submitted"] = "auto-generated"  # holiday notices need not answer
    written.set_content(message.text)
    if message.html is not None:
        written.add_alternative(message.html, subtype="html")
        written.set_boundary(f"={message_id[1:41]}")
    return Mail(to, message_id, written.as_bytes(), international)


def mail_id(key: str, address: str) -> str:
    """The Message-ID, by which receivers and we recognise a repeat.

    >>> mail_id("booking-7", "shop@example.com") == mail_id("booking-7", "shop@example.com")
    True
    """
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:40]
    return f"<{digest}@{address.rpartition('@')[2]}>"
