"""Compares the package's rules with the walked minutes."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise, product

from tests.when.oracle.brute import DAY, EPOCH, MARGIN, MINUTE, Walk, quiet, walk, windows

from mainspring.when.occurrences import Gap, Overlap
from mainspring.when.rule import Rule, cron

POLICIES: list[tuple[Gap, Overlap]] = list(product(("shift", "skip"), ("first", "last", "both")))
#: Between changes of the clocks policies make no difference: one is compared there.
DEFAULT = POLICIES[0]
#: Fixed hours.
FIXED = (
    "30 2 * * *",
    "0 0 * * *",
    "30 1 * * *",
    "0,30 2 * * *",
    "0 0,23 * * *",
    "0 10 * * WED",
    "0 0 * * THU",
    "15 2 * * *",
    "0 18 L * *",
    "15 3 1 * *",
    "30 2 13 * FRI",
    "45 23 */3 MAR,OCT SUN",
    "*/10 0-3,23 * * *",
)
#: Hours that follow elapsed time: no policy applies.
STEADY = ("0 */6 * * *", "*/15 * * * *", "7 * * * *", "30 */2 * * *")
#: Many ticks: compared where minutes are walked only.
DENSE = ("*/10 0-3,23 * * *", "*/15 * * * *", "7 * * * *", "30 */2 * * *")


FIRST_DAY = EPOCH.toordinal()


@dataclass
class Verdict:
    """How many ticks were compared, and which were wrong."""

    ticks: int = 0
    wrong: list[str] = field(default_factory=list)


def rules(zone: str) -> list[tuple[Rule, bool]]:
    """The rules in a zone, and whether each is compared outside of walked minutes, too."""
    return [
        (cron(text, zone=zone, gap=gap, overlap=overlap), text not in DENSE and (gap, overlap) == DEFAULT)
        for texts, policies in ((FIXED, POLICIES), (STEADY, [DEFAULT]))
        for text in texts
        for gap, overlap in policies
    ]


def compare(zone: str, first: int, end: int, rng: random.Random, weeks: int) -> Verdict:
    """Compare all rules in one zone: walk around changes and through some weeks, and compute the quiet time between."""
    verdict = Verdict()
    spans = list(windows(zone, first, end, rng, weeks))
    walks = [walk(zone, span, first, end) for span in spans]
    edges = [range(first, first), *spans, range(end, end)]
    between = [(a.stop, b.start) for a, b in pairwise(edges) if a.stop < b.start]
    for rule, everywhere in rules(zone):
        for walked in walks:
            judge(verdict, rule, walked)
        for span in between if everywhere else ():
            assert rule.expression is not None
            note(verdict, rule, quiet(zone, rule.expression, *span), got(rule, *span))
    return verdict


def compare_plainly(zone: str, first: int, end: int) -> Verdict:
    """Compare all rules in one zone by walking every minute."""
    verdict = Verdict()
    walked = walk(zone, range(first - MARGIN, end + MARGIN), first, end)
    for rule, _ in rules(zone):
        judge(verdict, rule, walked)
    return verdict


def judge(verdict: Verdict, rule: Rule, walked: Walk) -> None:
    assert rule.expression is not None
    note(verdict, rule, walked.due(rule.expression, rule.gap, rule.overlap), got(rule, walked.first, walked.end))


def got(rule: Rule, first: int, end: int) -> list[tuple[int, int]]:
    """The ticks that the package names: each instant, and the local time that it shows."""
    start, stop = (EPOCH + MINUTE * edge - timedelta(microseconds=1) for edge in (first, end))
    return [
        ((at - EPOCH) // MINUTE, (local.toordinal() - FIRST_DAY) * DAY + local.hour * 60 + local.minute)
        for at, local in rule.ticks(start, stop)
    ]


def note(verdict: Verdict, rule: Rule, right: list[tuple[int, int]], found: list[tuple[int, int]]) -> None:
    verdict.ticks += len(right)
    if right != found:
        what = f"{rule.zone} {rule.expression} {rule.gap} {rule.overlap}"
        for kind, ticks in (("missing", set(right) - set(found)), ("too much", set(found) - set(right))):
            verdict.wrong += [f"{what}: {kind} {EPOCH + MINUTE * instant:%F %R}Z" for instant, _ in sorted(ticks)]
        if set(right) == set(found):
            verdict.wrong.append(f"{what}: not in order, or twice")
