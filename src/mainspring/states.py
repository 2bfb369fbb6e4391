"""The life cycle of a job, as data.

One table says which verb moves a job from which states to which. The SQL is held to it by
`tests/db/test_life_cycle.py`, which puts a job in every state and tries every verb; the diagram in the
documentation is printed from it.
"""

from __future__ import annotations

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
WAITING: Final = frozenset({S.SCHEDULED, S.READY, S.RETRYING})
FINISHED: Final = frozenset({S.SUCCEEDED, S.FAILED, S.DEAD, S.CANCELLED})

#: verb → (states it starts from, states it may end in). A job that has no row yet is `None`.
#: An attempt whose cancellation was asked for is not tried again: whatever else would repeat it ends it as cancelled.
TRANSITIONS: Final[dict[str, tuple[frozenset[State | None], frozenset[State | None]]]] = {
    "enqueue": (frozenset({None}), frozenset({S.SCHEDULED, S.READY})),
    "claim": (frozenset({S.READY}), frozenset({S.RUNNING})),
    "complete": (frozenset({S.RUNNING}), frozenset({S.SUCCEEDED})),
    "fail": (frozenset({S.RUNNING}), frozenset({S.RETRYING, S.READY, S.CANCELLED})),
    "reject": (frozenset({S.RUNNING}), frozenset({S.FAILED})),
    "bury": (frozenset({S.RUNNING}), frozenset({S.DEAD})),
    "snooze": (frozenset({S.RUNNING}), frozenset({S.SCHEDULED, S.READY, S.CANCELLED})),
    "release": (frozenset({S.RUNNING}), frozenset({S.READY, S.CANCELLED})),
    "stop": (frozenset({S.RUNNING}), frozenset({S.CANCELLED})),
    "rescue": (frozenset({S.RUNNING}), frozenset({S.READY, S.DEAD, S.CANCELLED})),
    "cancel": (WAITING, frozenset({S.CANCELLED})),
    "reschedule": (WAITING, frozenset({S.SCHEDULED, S.READY, S.RETRYING})),
    "replay": (frozenset({S.FAILED, S.DEAD}), frozenset({S.READY, S.SCHEDULED})),
    "reset": (frozenset({S.FAILED, S.DEAD, S.CANCELLED}), frozenset({S.SCHEDULED, S.READY})),
    "prune": (FINISHED, frozenset({None})),
}


def allowed(verb: str, state: State | None) -> bool:
    """Whether a verb may move a job that is in this state."""
    return state in TRANSITIONS[verb][0]
