"""A rule as the command line and the HTTP API are told it: a cron expression, or an interval, never both."""

from __future__ import annotations

from datetime import datetime

from mainspring.errors import ValidationError
from mainspring.text.span import Span
from mainspring.when.occurrences import Gap, Overlap
from mainspring.when.rule import Rule, cron, every

_SAID = {"expression": "cron", "interval": "every"}


def spoken_rule(
    expression: str | None,
    interval: Span | None,
    *,
    zone: str = "UTC",
    gap: Gap = "shift",
    overlap: Overlap = "first",
    anchor: datetime | None = None,
) -> Rule:
    """The rule; what is wrong with it is said by the name that its part was given under.

    >>> spoken_rule(None, "15m").describe()
    'every 15 minutes'
    """
    if (expression is None) == (interval is None):
        raise ValidationError("cron: give either cron or every", field="cron")
    if expression is not None and anchor is not None:
        raise ValidationError("anchor: belongs to every", field="anchor")
    try:
        if expression is not None:
            return cron(expression, zone=zone, gap=gap, overlap=overlap)
        return every(interval, zone=zone, anchor=anchor)
    except ValidationError as refused:
        field = _SAID.get(refused.field or "", refused.field)
        raise ValidationError(f"{field}: {str(refused).partition(': ')[2]}", field=field) from None
