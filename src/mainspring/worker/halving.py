"""A chunk that failed, or whose worker died, makes way for two jobs, each with half of what is left of it."""

from __future__ import annotations

import asyncio
from typing import Final

from mainspring.db.wire.translate import first_words
from mainspring.outcome import Error, Failed, Move, Outcome, decide
from mainspring.together.chunk import fails, halved
from mainspring.worker.attempt import NO_DEADLINE, LiveAttempt
from mainspring.worker.context import JobContext
from mainspring.worker.resources import Resources
from mainspring.worker.service import job_log, log

#: Why a chunk whose worker died is halved before it is run again.
CRASHED: Final = Failed(Error("LEASE_EXPIRED", "retryable", "A worker died while it ran this chunk."))


async def halve(attempt: LiveAttempt, outcome: Outcome, resources: Resources) -> bool:
    """Whether two jobs have taken its place."""
    field, decision = attempt.task.halve, decide(attempt.claim, outcome, attempt.task.retry)
    if field is None or not isinstance(outcome, Failed) or not isinstance(decision, Move):
        return False
    attempt.deadline = NO_DEADLINE  # its time is over, ours is not
    context = JobContext(attempt, resources)
    try:
        done, moved_on = await context.done()
        parts = halved(attempt.claim.payload, field, done) if fails(outcome, decision, moved_on) else None
        if parts is None:
            return False
        await context.split([attempt.task.half(part, attempt.claim) for part in parts], done, outcome.error)
    except (Exception, asyncio.CancelledError) as error:  # then it is tried again as it is; the fence knows better
        log.warning("job %s of %s could not be halved: %s", attempt.claim.id, attempt.claim.task, first_words(error))
        return attempt.settled and attempt.why != "lost"
    why = outcome.error
    job_log.warning("job %s of %s: split %s: %s", attempt.claim.id, attempt.claim.task, why.code, why.message)
    return True
