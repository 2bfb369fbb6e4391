"""While the provider does not answer, what asks it waits: an outage burns no attempt and leaves no dead letter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import mainspring as ms
from mainspring_apps.staffing.desk import Desk

#: No answer, or none but that it is busy: nothing was said of what was asked.
UNANSWERED: Final = frozenset({"HttpException", "RATE_LIMITED"})


@contextmanager
def patient(desk: Desk, ctx: ms.SyncContext) -> Iterator[None]:
    """Around what is asked of the provider: the job comes again for as long as that does not answer (STAFF-20.15).

    Every pause is twice as long as the one before, up to the setting. The breaker is told, and parks the job while it
    is open. A refusal is an answer, and raised.
    """
    try:
        with ctx.breaker("stripe"):
            yield
    except ms.Failure as failure:
        if failure.code not in UNANSWERED:
            raise
        ctx.log.warning("the provider did not answer: %s", failure)
        base = desk.settings.retry_base  # as of any retry (STAFF-16.01)
        pauses = ms.exponential(base=base, cap=desk.settings.longest_pause, jitter="spread")
        raise ms.Snooze(pauses.delay(1 + ctx.job.snoozes)) from None
