"""The words of alerts that last: what somebody should look at, until it is over."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias, get_args
from uuid import UUID

import msgspec

from mainspring.audit import written_detail
from mainspring.checks import check_subject
from mainspring.errors import ValidationError
from mainspring.text.sanitize import sanitize
from mainspring.text.texts import text_problem

#: Critical: somebody should look now. Warning: somebody should look today.
Severity: TypeAlias = Literal["critical", "warning"]
SEVERITIES: Final[tuple[str, ...]] = get_args(Severity)
#: What to do about each alert of the engine.
RUNBOOK: Final = "docs/operations/alerts.md"
#: The alert of a task whose handlers failed after they had completed their jobs (settle.sql).
FAILED_LATE_ALERT: Final = "failed-late"
#: The alert of a task whose handlers left the transaction of `ctx.complete_in` open, where the worker could not end it.
LEFT_OPEN_ALERT: Final = "left-open"
MAX_ALERT: Final = 100  # characters of a name
MAX_ALERT_TEXT: Final = 2000  # bytes
_NAME: Final = re.compile(r"[a-z][a-z0-9._-]*")


class AlertRow(msgspec.Struct, frozen=True, kw_only=True):
    """An alert: what is wrong, with what, since when, and how often it was seen; open until `closed_at`."""

    id: UUID
    org_id: str
    name: str
    subject: str
    severity: Severity
    text: str
    detail: dict[str, Any]
    opened_at: datetime
    last_at: datetime
    count: int
    closed_at: datetime | None = None
    closed_by: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether it is not over yet."""
        return self.closed_at is None


class Wrong(msgspec.Struct, frozen=True, kw_only=True):
    """What an opening says: checked, bounded, without secrets."""

    name: str
    subject: str
    text: str
    severity: Severity
    detail: str = "{}"


def wrong(
    name: object,
    subject: object = "",
    text: object = "",
    severity: object = "warning",
    detail: Mapping[str, Any] | None = None,
) -> Wrong:
    """An opening as it is stored; a text may hold what a provider said, so secrets and addresses are masked in it.

    >>> wrong("payment-needs-a-person", "booking 17", "declined for jane@example.com").text
    'declined for j***@example.com'
    """
    if not isinstance(text, str):
        raise ValidationError("text: is not a text", field="text")
    if severity not in SEVERITIES:
        raise ValidationError("severity: is not critical or warning", field="severity")
    written = written_detail(detail or {})
    return Wrong(
        name=check_name(name), subject=alert_subject(subject), text=sanitize(text, MAX_ALERT_TEXT),
        severity=severity, detail=written,  # type: ignore[arg-type]  # it is one of the two
    )  # fmt: skip


def check_name(name: object) -> str:
    """The name of an alert, or the error that says what is wrong with it.

    >>> check_name("Needs a person")
    Traceback (most recent call last):
    mainspring.errors.ValidationError: name: is not in lower case, with digits, dots, dashes and underscores
    """
    if problem := text_problem(name, MAX_ALERT):
        raise ValidationError(f"name: {problem}", field="name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValidationError("name: is not in lower case, with digits, dots, dashes and underscores", field="name")
    return name


def alert_subject(subject: object) -> str:
    """What an alert is about, as it is stored; it may be empty."""
    return "" if subject == "" else check_subject(subject)
