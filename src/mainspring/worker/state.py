"""What the parts of one worker share."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from mainspring.config import WorkerConfig
from mainspring.worker.announcer import Announcer
from mainspring.worker.attempt import LiveAttempt
from mainspring.worker.outbox import Outbox
from mainspring.worker.rates import Rates
from mainspring.worker.signal import Signal


@dataclass(frozen=True, slots=True)
class WorkerState:
    """Made before any part, so that each gets what it needs when it is built."""

    worker: str  # its id
    config: WorkerConfig
    signal: Signal
    outbox: Outbox
    rates: Rates
    announcer: Announcer | None = None  # where somebody observes
    counts: Counter[str] = field(default_factory=Counter)
    attempts: dict[int, LiveAttempt] = field(default_factory=dict)  # by epoch: all jobs that it holds
