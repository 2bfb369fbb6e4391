"""What a benchmark run found: ratios against their targets, absolute numbers, and the settings they were taken with.

The machine drifts by tens of percent within minutes, so a ratio is never taken from two numbers measured apart: both
sides run in turn, each pair gives one ratio, and their median counts.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

LATEST = Path(__file__).parent / "results" / "latest.json"

Measure = Callable[[], Awaitable[float]]


@dataclass(frozen=True)
class Target:
    """What a number must reach."""

    sign: Literal[">=", "<=", "<"]
    bound: float

    def met(self, value: float) -> bool:
        """Whether a value is good enough."""
        if self.sign == ">=":
            return value >= self.bound
        return value <= self.bound if self.sign == "<=" else value < self.bound

    def __str__(self) -> str:
        return f"{self.sign} {self.bound:g}"


#: Every key that a full run reports; None is reported without a bound.
TARGETS: Mapping[str, Target | None] = {
    "drain_vs_floor": Target(">=", 0.7),
    "drain_vs_pgqueuer": Target(">=", 1.8),
    "drain_vs_procrastinate": Target(">=", 30),
    "transactional_drain_vs_floor": Target(">=", 0.7),
    "observability_cost": Target(">=", 0.6),
    "bulk_enqueue_vs_floor": Target(">=", 0.6),
    "single_enqueue_vs_floor": Target(">=", 0.8),
    "coalesced_vs_single": Target(">=", 10),
    "pickup_vs_floor": Target("<=", 2),
    "pickup_in_caller_tx": Target("<=", 2),
    "wakeups_16": Target(">=", 0.85),
    "wakeups_64": Target(">=", 0.85),
    "pickup_broker_vs_poll": Target("<=", 0.2),
    "enqueue_with_broker": Target(">=", 0.8),
    "bulk_enqueue_with_broker": Target(">=", 0.8),
    "plan_stability": Target(">=", 0.7),
    "claim_1m_timers": Target("<=", 1.5),
    "claim_1m_timers_pg15": Target("<=", 1.5),
    "claim_1m_finished": Target("<=", 1.2),
    "claim_held_snapshot": Target("<=", 2),
    "timer_ops_1m": Target("<=", 1.5),
    "rate_limit_max_window": Target("<=", 50),
    "rate_limit_achieved": Target(">=", 0.95),
    "rate_beyond_4_round_trips": Target(">=", 0.95),  # the worst of all distances, idle and busy, 1 to 4 workers
    "rate_within_4_round_trips": Target(">=", 0.9),
    "rate_exceeded": Target("<=", 0),
    "rate_moved_s": None,
    "concurrency_refill": Target(">=", 0.9),
    "strand_vs_claims": Target("<=", 3),
    "fair_vs_claims": Target("<=", 3),
    "unneeded_limit_cost": Target(">=", 0.65),  # 0.8 until drains without a limit became a fifth faster
    "fair_share_slowdown": Target("<=", 3),
    "timers_early": Target("<=", 0),
    "timer_late_p99_ms": None,
    "worker_growth_mb": Target("<", 20),
    "simulate_year_s": Target("<=", 30),
}


@dataclass(frozen=True)
class Sample:
    """Several runs of one measurement."""

    runs: Sequence[float]

    @property
    def median(self) -> float:
        """The middle run."""
        return statistics.median(self.runs)

    @property
    def spread(self) -> tuple[float, float]:
        """The lowest and the highest run."""
        return min(self.runs), max(self.runs)


@dataclass(frozen=True)
class Pairs:
    """Two measurements that ran in turn."""

    ours: Sample
    theirs: Sample

    @property
    def ratios(self) -> Sample:
        """Ours over theirs, pair by pair: their median is the ratio that counts."""
        return Sample([a / b for a, b in zip(self.ours.runs, self.theirs.runs, strict=True)])


async def repeat(measure: Measure, runs: int = 3) -> Sample:
    """Measure at least three times."""
    return Sample([await measure() for _ in range(max(runs, 3))])


async def rotate(*measures: Measure, runs: int = 3) -> list[Sample]:
    """Measure all in turn, at least three times; each round goes through them the other way."""
    results: list[list[float]] = [[] for _ in measures]
    for number in range(max(runs, 3)):
        order = list(zip(measures, results, strict=True))
        for measure, found in order if number % 2 == 0 else reversed(order):
            found.append(await measure())
    return [Sample(found) for found in results]


async def interleave(ours: Measure, theirs: Measure, runs: int = 3) -> Pairs:
    """Measure both sides in turn."""
    return Pairs(*await rotate(ours, theirs, runs=runs))


@dataclass
class Report:
    """Collects numbers, prints them and writes them down."""

    ratios: dict[str, float] = field(default_factory=dict)
    absolute: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    spreads: dict[str, tuple[float, float]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)  # that each part took

    def add(self, key: str, value: Sample | float) -> None:
        """Record a number that has a target, with its spread if it comes from several runs."""
        if key not in TARGETS:
            raise KeyError(f"{key} is not in TARGETS")
        sample = value if isinstance(value, Sample) else Sample([value])
        self.ratios[key] = sample.median
        if len(sample.runs) > 1:
            self.spreads[key] = sample.spread

    def compare(self, key: str, pairs: Pairs, unit: str, ours: str = "ours", theirs: str = "floor") -> None:
        """Record a ratio, and both sides of it as absolute numbers."""
        self.add(key, pairs.ratios)
        self.absolute[key] = {"unit": unit, ours: _numbers(pairs.ours), theirs: _numbers(pairs.theirs)}

    def measured(self, key: str, sample: Sample, unit: str) -> None:
        """Record an absolute number that has no target."""
        self.absolute[key] = {"unit": unit, **_numbers(sample)}

    @property
    def failures(self) -> list[str]:
        """Keys that missed their target; a key that was not measured is not among them."""
        return [key for key, value in self.ratios.items() if (target := TARGETS[key]) and not target.met(value)]

    def table(self) -> str:
        """Lay the numbers out for a reader."""
        lines = [f"{'key':30} {'ratio':>9}  {'wanted':8} {'':5} spread"]
        for key in TARGETS:
            if key not in self.ratios:
                continue
            target = TARGETS[key]
            verdict = "" if target is None else "pass" if target.met(self.ratios[key]) else "FAIL"
            low_high = " to ".join(f"{bound:.3g}" for bound in self.spreads.get(key, ()))
            lines.append(f"{key:30} {self.ratios[key]:9.3g}  {target or '-'!s:8} {verdict:5} {low_high}".rstrip())
        lines.append(f"seconds: {', '.join(f'{part} {taken:.0f}' for part, taken in self.seconds.items())}")
        missing = [key for key in TARGETS if key not in self.ratios]
        if missing:
            lines.append(f"not measured: {', '.join(missing)}")
        return "\n".join(lines)

    def print(self) -> None:
        """Print the table."""
        print(self.table())

    def write(self, path: Path = LATEST) -> None:
        """Write everything as JSON: the ratios at the top level, then the absolute numbers and the settings."""
        spreads = {key: list(bounds) for key, bounds in self.spreads.items()}
        absolute = {**self.absolute, "spreads": spreads, "seconds": self.seconds}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**self.ratios, "absolute": absolute, "settings": self.settings}, indent=2) + "\n")


def _numbers(sample: Sample) -> dict[str, Any]:
    return {"median": sample.median, "runs": list(sample.runs)}
