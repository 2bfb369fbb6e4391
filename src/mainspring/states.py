"""The life cycle of a job, as data.

One table says which verb moves a job from which states to which, the word for a job or an attempt to which that was
done, and the events that tell it. SQL, events, logs, metrics, the command line, the simulation and the documentation
are held to it by `tests/words/test_vocabulary.py` and `tests/db/test_life_cycle.py`, which puts a job in every state
and tries every verb; `docs/life-cycle.md` is printed from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class State(StrEnum):
    """Where a job stands."""

    SCHEDULED = "scheduled"  # due later
    READY = "ready"  # due, waits for a worker
    RUNNING = "running"  # claimed under a lease
    RETRYING = "retrying"  # an attempt failed, due again later
    SUCCEEDED = "succeeded"
    FAILED = "failed"  # permanent error
    DEAD = "dead"  # attempts exhausted, or poison
    CANCELLED = "cancelled"


S = State
NO_ROW: Final = frozenset({None})  # a job that is not there
WAITING: Final = frozenset({S.SCHEDULED, S.READY, S.RETRYING})
RUNNING: Final = frozenset({S.RUNNING})
FINISHED: Final = frozenset({S.SUCCEEDED, S.FAILED, S.DEAD, S.CANCELLED})


@dataclass(frozen=True, slots=True)
class Transition:
    """What a verb does: the states it starts from and may end in, its word, and what is told of it."""

    before: frozenset[State | None]
    after: frozenset[State | None]
    word: str  # in the past tense: the outcome of an attempt, what is counted, what a time line shows
    events: tuple[str, ...]  # in this order, to observers or on the audit trail


def _to(*states: State) -> frozenset[State | None]:
    return frozenset(states)


#: Verb → what it does. An attempt whose cancellation was asked for is not tried again: whatever else would repeat it
#: ends it as cancelled. A rescue that ends its job tells that as `bury` and `stop` do.
TRANSITIONS: Final[dict[str, Transition]] = {
    "enqueue": Transition(NO_ROW, _to(S.SCHEDULED, S.READY), "enqueued", ("job.enqueued",)),
    "claim": Transition(_to(S.READY), RUNNING, "claimed", ("job.started",)),
    "complete": Transition(RUNNING, _to(S.SUCCEEDED), "succeeded", ("job.succeeded",)),
    "fail": Transition(RUNNING, _to(S.RETRYING, S.READY, S.CANCELLED), "retried", ("job.failed", "job.retried")),
    "reject": Transition(RUNNING, _to(S.FAILED), "failed", ("job.failed",)),
    "bury": Transition(RUNNING, _to(S.DEAD), "dead", ("job.failed", "job.deadlettered")),
    "snooze": Transition(RUNNING, _to(S.SCHEDULED, S.READY, S.CANCELLED), "deferred", ("job.deferred",)),
    "defer": Transition(RUNNING, _to(S.SCHEDULED, S.READY, S.CANCELLED), "deferred", ("job.deferred",)),
    "release": Transition(RUNNING, _to(S.READY, S.CANCELLED), "released", ("job.released",)),
    "stop": Transition(RUNNING, _to(S.CANCELLED), "cancelled", ("job.cancelled",)),
    "rescue": Transition(RUNNING, _to(S.READY, S.DEAD, S.CANCELLED), "rescued", ("job.lease_expired",)),
    "cancel": Transition(WAITING, _to(S.CANCELLED), "cancelled", ("job.cancel_requested", "job.cancelled")),
    "reschedule": Transition(WAITING, WAITING, "rescheduled", ("job.rescheduled",)),
    "replay": Transition(_to(S.FAILED, S.DEAD), _to(S.READY, S.SCHEDULED), "replayed", ("job.replayed",)),
    "reset": Transition(_to(S.FAILED, S.DEAD, S.CANCELLED), _to(S.SCHEDULED, S.READY), "reset", ("job.reset",)),
    "prune": Transition(FINISHED, NO_ROW, "pruned", ()),
}
#: Verb → its word.
WORDS: Final = {verb: transition.word for verb, transition in TRANSITIONS.items()}
#: How a worker ends an attempt that did not succeed; those that repeat it come first.
REPEATS: Final = ("fail", "snooze", "defer", "release")
SETTLES: Final = (*REPEATS, "reject", "bury", "stop")
#: Those that leave a row in the history of attempts, with their word as its outcome.
LEAVES_ATTEMPT: Final = ("complete", "fail", "reject", "bury", "stop", "rescue")


def allowed(verb: str, state: State | None) -> bool:
    """Whether a verb may move a job that is in this state."""
    return state in TRANSITIONS[verb].before
