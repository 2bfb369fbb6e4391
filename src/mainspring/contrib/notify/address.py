"""Mail addresses, telephone numbers and lines of a header: what is refused before any provider hears of it.

Strict, but not silly: what real mailboxes use is accepted, and what nobody receives mail at is not. No message repeats
the address: it is personal, and errors are stored.
"""

from __future__ import annotations

import re
import unicodedata
from email.utils import getaddresses
from typing import Final

from mainspring.contrib.notify.sender import Undeliverable
from mainspring.errors import ConfigurationError
from mainspring.outcome import Permanent

LONGEST_ADDRESS: Final = 254  # of an address, RFC 5321
LONGEST_LOCAL: Final = 64
_ATOM: Final = re.compile(r"[\w!#$%&'*+/=?^`{|}~-]+(?:\.[\w!#$%&'*+/=?^`{|}~-]+)*")
_LABEL: Final = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)")
_NUMBER: Final = re.compile(r"\+[1-9][0-9]{6,14}")


def mail_address(text: str) -> str:
    """The address with its domain as the wire has it, or Undeliverable with EMAIL_ADDRESS_INVALID.

    >>> mail_address("Jo.Doe+shop@Bücher.example")
    'Jo.Doe+shop@xn--bcher-kva.example'
    >>> mail_address("a@")
    Traceback (most recent call last):
    mainspring.contrib.notify.sender.Undeliverable: to: is no mail address: it has no domain
    """
    local, at, domain = text.rpartition("@")
    wrong = "it has no @" if not at else _wrong_local(local)
    if not wrong:
        domain, wrong = _wire_domain(domain)
    if not wrong and len(f"{local}@{domain}".encode()) > LONGEST_ADDRESS:
        wrong = f"it is longer than {LONGEST_ADDRESS} bytes"
    if wrong:
        raise Undeliverable(f"to: is no mail address: {wrong}", code="EMAIL_ADDRESS_INVALID")
    return f"{local}@{domain}"


def phone_number(text: str) -> str:
    """A telephone number in E.164, or Undeliverable with PHONE_NUMBER_INVALID; groups may be set apart.

    >>> phone_number("+49 30 901820")
    '+4930901820'
    >>> phone_number("030 901820")
    Traceback (most recent call last):
    mainspring.contrib.notify.sender.Undeliverable: to: is no telephone number of the form +4930901820
    """
    number = re.sub(r"[ ()./-]", "", text)
    if not _NUMBER.fullmatch(number):
        raise Undeliverable("to: is no telephone number of the form +4930901820", code="PHONE_NUMBER_INVALID")
    return number


def one_line(field: str, text: str) -> str:
    """A text that may stand in a header, or Permanent: a line break would begin another header."""
    if any(unicodedata.category(character) in ("Cc", "Zl", "Zp", "Cs") for character in text):
        raise Permanent(f"{field}: holds a line break or a control character", code="VALIDATION_ERROR")
    return text


def sender_address(text: str) -> tuple[str, str]:
    """Name and address of who sends, from `Shop <shop@example.com>`.

    >>> sender_address("Shop <shop@example.com>")
    ('Shop', 'shop@example.com')
    """
    try:
        [(name, address)] = getaddresses([one_line("sender", text)])
        return name, mail_address(address)
    except (Permanent, ValueError):
        raise ConfigurationError("sender: is not of the form Shop <shop@example.com>") from None


def _wrong_local(local: str) -> str:
    if not local:
        return "it has nothing before its @"
    if len(local.encode("utf-8", "replace")) > LONGEST_LOCAL:
        return f"more than {LONGEST_LOCAL} bytes stand before its @"
    if not _ATOM.fullmatch(local) or unicodedata.normalize("NFC", local) != local:
        return "what stands before its @ has characters or dots that no mailbox has"
    return ""


def _wire_domain(domain: str) -> tuple[str, str]:
    """The domain in ASCII, and what is wrong with it."""
    if not domain:
        return "", "it has no domain"
    if any(unicodedata.category(character)[0] in "CZ" for character in domain):  # some would vanish on the way
        return "", "its domain is none"
    try:
        wire = domain.encode("idna").decode().lower()
    except UnicodeError:
        return "", "its domain is none"
    labels = wire.split(".")
    if not all(_LABEL.fullmatch(label) for label in labels) or labels[-1].isdigit():
        return "", "its domain is none"
    return (wire, "") if len(labels) > 1 else ("", "its domain has no dot")
