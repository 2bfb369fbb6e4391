"""Who gets notifications, as dialogues."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, time
from typing import Any, Final, Literal

import msgspec

from mainspring.db.jobs import check_texts
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue, Params, Row, Statement, ask, nothing, scalar
from mainspring.errors import ValidationError
from mainspring.job import DEFAULT_ORG
from mainspring.text.texts import MAX_NAME
from mainspring.when.zones import check_zone

Channel = Literal["email", "sms", "push", "in_app"]
_json = msgspec.json.Encoder().encode

MAX_ADDRESS: Final = 4096
MAX_OPT_OUTS: Final = 1000
_TAG: Final = re.compile(r"[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8}){0,4}")


class Recipient(msgspec.Struct, frozen=True, kw_only=True):
    """Who gets notifications: addresses, the zone, quiet hours in it, the language, and what they do not want.

    `opt_out` names channels, templates, or both as `template/channel`. Where `quiet_from` is `quiet_to` there are no
    quiet hours.
    """

    recipient_id: str
    email: str | None = None
    phone: str | None = None
    push_token: str | None = None
    zone: str = "UTC"
    language: str = ""  # a tag such as pt-BR; "": that of the templates themselves
    quiet_from: time = time(22)
    quiet_to: time = time(7)
    opt_out: tuple[str, ...] = ()
    spam_limit: int | None = None

    def __repr__(self) -> str:  # personal data do not go to logs
        return f"<Recipient {self.recipient_id}>"

    def address(self, channel: Channel) -> str | None:
        """Where messages of a channel go."""
        return {"email": self.email, "sms": self.phone, "push": self.push_token, "in_app": self.recipient_id}[channel]


_decode = msgspec.json.Decoder(Recipient).decode


def save(sql: Sql, org: str | None, recipient: str, about: dict[str, Any]) -> Dialogue[None]:
    """Write a recipient; what is not named keeps its value."""
    check_texts(MAX_NAME, org=org, recipient=recipient)
    for name in about.keys() - set(Recipient.__struct_fields__[1:]):
        raise ValidationError(f"{name}: is not a field of a recipient", field=name)
    for name in ("email", "phone", "push_token"):
        if about.get(name) is not None:
            check_texts(MAX_ADDRESS, **{name: about[name]})
    if "zone" in about:
        check_zone(about["zone"])
    if about.get("language") and (problem := tag_problem(about["language"])):
        raise ValidationError(f"language: {problem}", field="language")
    for name in ("quiet_from", "quiet_to"):
        if name in about:
            about = about | {name: _time(name, about[name])}
    if "opt_out" in about:
        wanted = about["opt_out"]
        if isinstance(wanted, str) or not isinstance(wanted, Sequence) or len(wanted) > MAX_OPT_OUTS:
            raise ValidationError("opt_out: is not a list of channels and templates", field="opt_out")
        for one in wanted:
            check_texts(MAX_NAME + 20, opt_out=one)
        about = about | {"opt_out": list(wanted)}
    limit = about.get("spam_limit")
    if limit is not None and (type(limit) is not int or not 1 <= limit <= 100_000):
        raise ValidationError("spam_limit: is not a whole number from 1 to 100000", field="spam_limit")
    params: Params = {"org": org or DEFAULT_ORG, "recipient": recipient, "about": _json(about).decode()}
    yield from ask(Statement(sql["save_recipient"], params, nothing))


def tag_problem(tag: object) -> str | None:
    """Why a text is no tag of a language; None: it is one.

    >>> tag_problem("pt-BR"), tag_problem("german (Austria)")
    (None, 'is not the tag of a language, such as de or pt-BR')
    """
    known = isinstance(tag, str) and _TAG.fullmatch(tag)
    return None if known else "is not the tag of a language, such as de or pt-BR"


def _time(field: str, value: object) -> str:
    try:
        value = value if isinstance(value, time) else time.fromisoformat(str(value))
    except ValueError:
        raise ValidationError(f"{field}: is not a time of day such as 22:00", field=field) from None
    if value.tzinfo is not None or value.microsecond:
        raise ValidationError(f"{field}: is not a time of day such as 22:00", field=field)
    return value.isoformat()


def forget(sql: Sql, org: str | None, recipient: str) -> Dialogue[bool]:
    """Remove a recipient; False: there was none."""
    check_texts(MAX_NAME, org=org, recipient=recipient)
    params: Params = {"org": org or DEFAULT_ORG, "recipient": recipient}
    found: bool = yield from ask(Statement(sql["forget_recipient"], params, scalar))
    return found


def find(sql: Sql, org: str, ids: Sequence[str]) -> Dialogue[tuple[datetime, dict[str, Recipient]]]:
    """Those of the ids that exist, and the time."""

    def read(rows: Sequence[Row]) -> tuple[datetime, dict[str, Recipient]]:
        return rows[0][0].astimezone(UTC), {row[1]: _decode(row[2]) for row in rows if row[1] is not None}

    return (yield from ask(Statement(sql["recipients"], {"org": org, "ids": _json(ids).decode()}, read)))
