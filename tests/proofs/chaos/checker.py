"""The verdict: from the producers' files, the workers' journals and the effect ledger, never from the engine's tables.

- lost: acknowledged, but no effect; or an effect that its handler saw committed is gone
- doubled: more than one effect of one job, or of one key that stands for one job
- stale: an effect by an attempt that another attempt of the same job had superseded
- unexpected: an effect of a job that nobody sent, or whose enqueue was rolled back
- early: an effect before the job's time
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.proofs.chaos.journal import lines
from tests.proofs.chaos.producer import ONCE

#: job id, epoch, key, time in seconds
Effect = tuple[str, int, str | None, float]


@dataclass(slots=True)
class Verdict:
    """What was found; the sets name the jobs."""

    acknowledged: int = 0
    lost: set[str] = field(default_factory=set)
    doubled: set[str] = field(default_factory=set)
    stale: set[str] = field(default_factory=set)
    unexpected: set[str] = field(default_factory=set)
    early: set[str] = field(default_factory=set)
    refused: int = 0  # late commits that the fence stopped: shows that it was tried
    repeated: set[str] = field(default_factory=set)  # jobs that were started more than once

    @property
    def clean(self) -> bool:
        return not (self.lost or self.doubled or self.stale or self.unexpected or self.early)

    @property
    def faults(self) -> str:
        """What is wrong, in words."""
        names = ("lost", "doubled", "stale", "unexpected", "early")
        return " ".join(f"{name}={len(getattr(self, name))}" for name in names if getattr(self, name))


def acknowledged(folder: Path) -> set[str]:
    """The jobs whose enqueue returned."""
    return {words[0] for words in lines(folder, "acked")}


def plain_effects(folder: Path) -> set[str]:
    """The jobs without a transaction that ran, by the workers' journals."""
    return {words[1] for words in lines(folder, "worker") if words[0] == "plain"}


def check(folder: Path, ledger: Sequence[Effect]) -> Verdict:
    """Compare what was promised with what happened."""
    effects, keys = Counter(row[0] for row in ledger), Counter(row[2] for row in ledger if row[2])
    committed = {(row[0], row[1]) for row in ledger}
    first = {row[0]: row[3] for row in reversed(ledger)}
    acked = acknowledged(folder)
    unsure = {words[0] for words in lines(folder, "unsure")}
    undone = {words[0] for words in lines(folder, "undone")}
    plain = plain_effects(folder)
    epochs: dict[str, set[int]] = defaultdict(set)
    verdict = Verdict(len(acked))
    for said, job, epoch, *_ in lines(folder, "worker"):
        epochs[job].add(int(epoch))
        if said == "committed" and (job, int(epoch)) not in committed:
            verdict.lost.add(job)
        verdict.refused += said == "refused"
    verdict.lost |= acked - effects.keys() - plain
    verdict.doubled = {job for job, count in effects.items() if count > 1}
    verdict.doubled |= {key for key, count in keys.items() if count > 1 and key.startswith(ONCE)}
    verdict.stale = {job for job, epoch in committed if epoch < max(epochs[job], default=epoch)}
    verdict.unexpected = (effects.keys() | plain) - acked - (unsure - undone)
    verdict.repeated = {job for job, seen in epochs.items() if len(seen) > 1}
    verdict.early = {
        words[0] for words in lines(folder, "acked") if first.get(words[0], float("inf")) < float(words[1]) - 0.001
    }
    return verdict
