"""What may happen in a step of the machine, how often, and with what."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from tests.db.engine import ALL

from mainspring.dedupe import MODES
from mainspring.outcome import Error, Failed, Interrupted, Outcome, Snoozed, Stopped

WORKERS = ("w1", "w2", "w3")
QUEUES = ("q:default", "q:other")
OUTCOMES: dict[str, Outcome] = {
    "retryable": Failed(Error("INTERNAL_ERROR", "retryable", "no answer")),
    "permanent": Failed(Error("BUSINESS_RULE", "permanent", "closed")),
    "snoozed": Snoozed(timedelta(seconds=45)),
    "stopped": Stopped(),
    "interrupted": Interrupted(),
}

index = st.integers(0, 255)  # of a job, a claim …: taken modulo their number
workers = st.sampled_from(WORKERS)
spans = st.sampled_from([1, 15, 45, 61, 600, 86_400, 8 * 86_400]).map(lambda seconds: timedelta(seconds=seconds))
enqueues: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    org=st.sampled_from(["a", "b"]),
    task=st.sampled_from(["t", "t", "t", "u"]),
    queue=st.sampled_from(QUEUES),
    priority=st.integers(0, 3),
    max_attempts=st.sampled_from([1, 2, 3, 9]),
    cancellable=st.sampled_from([True, True, False]),
    n=st.sampled_from([0, 0, 0, 1]),
    delay=st.sampled_from([None, None, timedelta(seconds=30), timedelta(hours=1)]),
    key=st.sampled_from([None, "k1", "k1", "k2"]),
    mode=st.sampled_from([None, None, *MODES]),
    reset=st.sampled_from([False, False, False, True]),
)

#: How often, and with what. Rules of their own would be switched off in whole worlds.
ACTIONS: dict[str, tuple[int, st.SearchStrategy[dict[str, Any]]]] = {
    "enqueue": (4, st.builds(dict, batch=st.lists(enqueues, min_size=1, max_size=3))),
    "race": (1, st.builds(dict, fields=enqueues)),
    "roll_back": (1, st.builds(dict, batch=st.lists(enqueues, min_size=1, max_size=2))),
    "claim": (
        5,
        st.builds(
            dict,
            worker=workers,
            total=st.integers(1, 6),
            queues=st.sampled_from([QUEUES, QUEUES[::-1], QUEUES[:1], QUEUES[1:]]),
            limit=st.integers(1, 4),
            tasks=st.sampled_from([("t", "u"), ("t",)]),
            oldest=st.booleans(),
            rescued=st.integers(0, 3),
            alone=st.sampled_from([False, False, False, True]),
        ),
    ),
    "end": (
        7,
        st.builds(
            dict,
            i=index,
            stale=st.sampled_from([False, False, True]),
            thief=st.sampled_from([None, None, None, *WORKERS]),
            how=st.sampled_from(["plain", "result", "own", *OUTCOMES]),
        ),
    ),
    "renew": (1, st.builds(dict, worker=workers)),
    "advance": (3, st.builds(dict, span=spans)),
    "rescue": (3, st.builds(dict, crash=st.booleans())),
    "cancel": (2, st.builds(dict, i=index)),
    "reschedule": (1, st.builds(dict, i=index, span=spans)),
    "prioritize": (1, st.builds(dict, i=index, priority=st.integers(0, 3))),
    "replay": (2, st.builds(dict, i=index)),
    "discard": (2, st.builds(dict, i=index)),
    "pause": (1, st.builds(dict, queue=st.sampled_from(QUEUES))),
    "resume": (2, st.builds(dict, queue=st.sampled_from(QUEUES))),
    "prune": (
        1,
        st.builds(
            dict,
            states=st.sampled_from([ALL, ("succeeded",), ("failed", "dead", "cancelled")]),
            age=st.sampled_from([0, 600]),
        ),
    ),
}
actions = st.sampled_from([name for name, (weight, _) in ACTIONS.items() for _ in range(weight)]).flatmap(
    lambda name: st.tuples(st.just(name), ACTIONS[name][1])
)
