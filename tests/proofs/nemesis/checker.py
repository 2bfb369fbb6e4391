"""The verdict of a run, from stamps of handlers, notes of clients and the ledger of effects.

Of the engine it asks only how each job ended. Effects of transactional jobs are judged by the crash test's checker.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from tests.proofs.chaos.checker import check
from tests.proofs.chaos.journal import lines
from tests.proofs.nemesis.journal import Attempt, attempts
from tests.proofs.nemesis.plan import HOLDS, RATES, SLOTS, Plan
from tests.proofs.nemesis.workload import CRASHING, ENDS

from mainspring.outcome import CRASH_BUDGET
from mainspring.states import FINISHED

#: Between the engine's last look and a handler's first line a process may be put aside by the system for so long.
SLIP = 0.05
#: No job of a run is due later than this after its end: whoever waits longer waits for nothing.
LATEST = 60.0


class Wrong(NamedTuple):
    """One violation: what, and which job where it is one job's."""

    what: str
    job: str | None
    detail: str


@dataclass(slots=True)
class Seen:
    """What the supervisor saw itself."""

    peace: float = 0.0  # when the last fault had ended
    drained: float = 0.0  # so many seconds later nothing was left
    quiet: float = 0.0  # the longest time in which nothing moved though somebody could have
    pulses: dict[str, list[str]] = field(default_factory=dict)  # sent alone, and beside an open breaker
    calm: float = 0.0  # what some work took in peace,
    aftermath: float = 0.0  # and what the same took when two workers died with it
    stuck: bool = False
    starts: list[float] = field(default_factory=list)  # what it took to start each worker
    ends: Counter[int] = field(default_factory=Counter)  # exit codes of workers that ended by themselves
    thaws: list[tuple[int, float]] = field(default_factory=list)
    faults: list[tuple[float, str]] = field(default_factory=list)
    finale: dict[str, list[str]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)  # why some jobs had not ended, as the engine explains it
    violations: list[Wrong] = field(default_factory=list)

    def wrong(self, what: str, job: str | None, detail: str) -> None:
        self.violations.append(Wrong(what, job, detail))


@dataclass(slots=True)
class Verdict:
    """What was found, and numbers for people."""

    violations: list[Wrong]
    numbers: dict[str, float]

    @property
    def clean(self) -> bool:
        return not self.violations

    @property
    def faults(self) -> str:
        """What is wrong, in words."""
        kinds = Counter(wrong.what for wrong in self.violations)
        return ", ".join(f"{what} ({count})" if count > 1 else what for what, count in kinds.items())


class End(NamedTuple):
    """How the engine says that a job ended."""

    task: str
    state: str
    attempt: int
    crashes: int
    unseen: int  # deaths that nobody saw, of processes that ran it alone: they use up no budget
    waits: float  # seconds until it is due
    error: str


def judge(folder: Path, dsn: str, plan: Plan, seen: Seen) -> Verdict:
    """Compare what was promised with what happened."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        ends = _ends(conn)
        ledger = [
            (row[0], row[1], row[2], row[3])
            for row in conn.execute(
                "select job_id::text, epoch, key, extract(epoch from at)::float8 from ledger order by at"
            )
        ]
    begun = attempts(folder)
    sent = list(lines(folder, "sent"))
    crash = check(folder, ledger)
    found = [*seen.violations]
    waiting = {job for job, end in ends.items() if end.state not in FINISHED}
    crash.lost -= waiting  # it may come yet: that it has not ended is told once
    for what in ("lost", "doubled", "stale", "unexpected", "early"):
        found += [Wrong(what, job, "by the ledger of effects") for job in sorted(getattr(crash, what))]
    found += sorted(_ended(ends, sent, begun, folder), key=lambda wrong: wrong.job not in seen.reasons)
    found += _budgets(begun, ends)
    found += _windows(begun, seen.thaws)
    found += _places(begun)
    found += _order(begun)
    found += _keys(begun, sent if not waiting else [])
    found += _wholes(begun, sent if not waiting else [], folder)
    found += _instants(begun, whole=not waiting)
    found += _steps(folder)
    found += _calls(folder, plan)
    numbers = _numbers(begun, ends, seen, plan, crash.acknowledged)
    if not seen.stuck:
        found += _used(numbers, plan)
    if (late := numbers.get("pulse_shadowed", 0.0)) > (most := plan.unhurried(numbers.get("pulse_alone", 0.0))):
        found.append(Wrong("waits for another's breaker", None, f"a job waited {late:.1f} s; {most:.1f} s are enough"))
    if seen.aftermath > (most := plan.comes_back(seen.calm)):
        told = f"{seen.aftermath:.1f} s after two workers died, {seen.calm:.1f} s in peace: {most:.1f} s are enough"
        found.append(Wrong("slow to come back", None, told))
    return Verdict(found, numbers)


def _ends(conn: psycopg.Connection[Any]) -> dict[str, End]:
    query = """
        select id::text, task, state, attempt, crashes,
               (select count(*) from mainspring.attempt a
                where a.org_id = j.org_id and a.job_id = j.id and a.error ->> 'counted' = 'false'),
               coalesce(extract(epoch from due_at - now()), 0)::float8, coalesce(error->>'message', '')
        from mainspring.jobs j
    """
    return {row[0]: End(*row[1:]) for row in conn.execute(query)}


def _last(begun: Iterable[Attempt]) -> dict[str, Attempt]:
    """The last attempt of each job: what an earlier one did after its lease was gone counts for nothing."""
    return {one.job: one for one in sorted(begun, key=lambda one: one.epoch)}


# -- safety -----------------------------------------------------------------------------------------------------------


def _ended(ends: dict[str, End], sent: Sequence[list[str]], begun: Sequence[Attempt], folder: Path) -> Iterator[Wrong]:
    """Every acknowledged job has ended, as it may; nobody is buried who is innocent."""
    for job, end in ends.items():
        may = ENDS.get(end.task, {"succeeded"})
        if end.state in ("dead", "failed") and end.state not in may:
            yield Wrong("buried", job, f"{end.task}: {end.state} after {end.crashes} crashes: {end.error[:120]}")
        elif end.state in FINISHED:
            if end.state not in may:
                yield Wrong("ended wrongly", job, f"{end.task} is {end.state}")
        elif end.waits > LATEST:
            yield Wrong("waits for nothing", job, f"{end.task} is {end.state}, due in {end.waits:.0f} s")
        else:
            yield Wrong("has not ended", job, f"{end.task} is {end.state}, attempt {end.attempt}")
    done = {one.job for one in begun if one.how == "done"} | {
        words[2] for words in lines(folder, "stamp") if words[0] == "crunched"
    }
    for what, job, *_ in sent:
        if what == "job" and job not in ends:
            yield Wrong("lost", job, "it was acknowledged, and is not there")
        elif what == "job" and ends[job].state == "succeeded" and ends[job].task != "crunch" and job not in done:
            yield Wrong("never ran", job, f"{ends[job].task} succeeded without its handler")
        elif what == "cancelled" and job in done:
            yield Wrong("ran though cancelled", job, "cancel had answered that it would not")


def _budgets(begun: Sequence[Attempt], ends: dict[str, End]) -> Iterator[Wrong]:
    """Who kills is let in no more often than its budget says."""
    for job, times in Counter(one.job for one in begun if one.task in CRASHING).items():
        if times > CRASH_BUDGET + ends[job].unseen:
            yield Wrong("over its crash budget", job, f"{ends[job].task} was entered {times} times")


def _windows(begun: Sequence[Attempt], thaws: Sequence[tuple[int, float]]) -> Iterator[Wrong]:
    """In any window of a rate no more handlers are entered than it says."""
    for name, (most, per) in RATES.items():
        # Who was frozen between the engine's look and its own first line comes late, and nobody could know.
        stamps = [
            one
            for one in begun
            if one.task == name and not any(one.pid == pid and 0 <= one.began - at < SLIP for pid, at in thaws)
        ]
        for first, beyond in zip(stamps, stamps[most:], strict=False):
            if (span := beyond.began - first.began) < per - min(SLIP, per / 10):
                yield Wrong("rate exceeded", beyond.job, f"{name}: {most + 1} entered within {span:.3f} s of {per:g} s")


def _places(begun: Sequence[Attempt]) -> Iterator[Wrong]:
    """At no time more handlers run than there are places."""
    runs = [one for one in _last(begun).values() if one.task == "slot" and one.ended is not None]
    steps = sorted([(one.began, 1, one.job) for one in runs] + [(one.ended or 0.0, -1, one.job) for one in runs])
    inside = 0
    for at, step, job in steps:
        inside += step
        if inside > SLOTS:
            yield Wrong("too many at once", job, f"{inside} in {SLOTS} places at {at:.3f}")


def _order(begun: Sequence[Attempt]) -> Iterator[Wrong]:
    """Of a strand the next starts when the one before has ended."""
    last, first = _last(begun), {one.job: one for one in reversed(begun)}
    strands: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for one in last.values():
        if one.task == "change":
            strand, _, number = one.label.partition("/")
            strands[strand].append((int(number), one.job))
    for strand, jobs in strands.items():
        for (before, job), (after, next_job) in pairwise(sorted(jobs)):
            ended = last[job].ended
            if ended is None or first[next_job].began < ended:
                yield Wrong("out of order", next_job, f"{strand}: {after} began before {before} had ended")


def _keys(begun: Sequence[Attempt], sent: Sequence[list[str]]) -> Iterator[Wrong]:
    """Of a key at most one runs, and its last word is heard."""
    heard: dict[str, int] = defaultdict(int)
    by_key: dict[str, list[Attempt]] = defaultdict(list)
    for one in _last(begun).values():
        if one.task in ("version", "quieten", "seldom"):
            key, _, number = one.label.partition("/")
            by_key[key].append(one)
            heard[key] = max(heard[key], int(number or 0)) if one.how == "done" else heard[key]
    for key, runs in by_key.items():
        for one, other in pairwise(sorted(runs, key=lambda run: run.began)):
            if one.ended is not None and other.began < one.ended:
                yield Wrong("two of one key at once", other.job, key)
    last = {words[1]: int(words[2]) for words in sent if words[0] == "latest"}
    for key, said in last.items():
        if heard[key] < said:
            yield Wrong("a key's last word is lost", None, f"{key}: {said} was acknowledged, {heard[key]} was heard")


def _wholes(begun: Sequence[Attempt], sent: Sequence[list[str]], folder: Path) -> Iterator[Wrong]:
    """A child starts after all its parents have ended well; who ends a batch, after all its members, once."""
    last, first = _last(begun), {one.job: one for one in reversed(begun)}
    parts: dict[str, dict[str, list[Attempt]]] = defaultdict(lambda: {"p": [], "c": []})
    for one in last.values():
        if one.task == "part":
            whole, _, place = one.label.rpartition("/")
            parts[whole][place].append(one)
    for whole, found in parts.items():
        for child in found["c"]:
            late = [one for one in found["p"] if one.ended is None or one.ended > first[child.job].began]
            if late:
                yield Wrong("a child before its parent", child.job, f"{whole}: {len(late)} parents had not ended")
        if len(found["c"]) > 1:
            yield Wrong("ended twice", found["c"][1].job, whole)
    for words in sent:
        if words[0] == "whole":
            found = parts[words[1]]
            if len(found["p"]) != int(words[2]) or len(found["c"]) != 1:
                yield Wrong(
                    "lost", None, f"{words[1]}: {len(found['p'])} of {words[2]} parents, {len(found['c'])} of 1"
                )
    for what, _, *words in lines(folder, "stamp"):
        if what == "waited" and (words[2] != words[3] or set(words[1].split("-")) - {"succeeded", ""}):
            yield Wrong("a child before its parent", words[0], f"it was told {' '.join(words[1:])}")


def _instants(begun: Sequence[Attempt], *, whole: bool) -> Iterator[Wrong]:
    """Each instant of the schedule makes one job, and none is missing between the first and the last."""
    jobs: dict[int, set[str]] = defaultdict(set)
    for one in begun:
        if one.task == "tick":
            jobs[int(float(one.label))].add(one.job)
    for instant, found in jobs.items():
        if len(found) > 1:
            yield Wrong("an instant twice", sorted(found)[1], f"{instant} made {len(found)} jobs")
    for instant in set(range(min(jobs), max(jobs))) - jobs.keys() if jobs and whole else ():
        yield Wrong("an instant is missing", None, str(instant))


def _steps(folder: Path) -> Iterator[Wrong]:
    """What a step has returned once it returns again."""
    kept: dict[tuple[str, str], set[str]] = defaultdict(set)
    for what, _, *words in lines(folder, "stamp"):
        if what == "kept":
            kept[words[0], words[1]].add(words[2])
    for (job, step), values in kept.items():
        if len(values) > 1:
            yield Wrong("a step forgot", job, f"step {step} returned {len(values)} values")


# -- liveness ---------------------------------------------------------------------------------------------------------


def _calls(folder: Path, plan: Plan) -> Iterator[Wrong]:
    """No call of a client waits for longer than a run may stand still; and none says what it should not."""
    asked: dict[str, tuple[float, str]] = {}
    for what, number, *words in lines(folder, "call"):
        if what == "asked":
            asked[number] = (float(words[0]), words[1])
        elif what == "odd":
            yield Wrong("an odd answer", None, f"{asked[number][1]}: {' '.join(words)[:200]}")
        else:
            at, name = asked.pop(number)
            if (took := float(words[0]) - at) > 2 * plan.stall:
                yield Wrong("a client waited", None, f"{name} took {took:.1f} s")
    for at, name in asked.values():
        yield Wrong("a client hangs", None, f"{name}, asked at {at:.1f}, was never answered")


def _numbers(
    begun: Sequence[Attempt], ends: dict[str, End], seen: Seen, plan: Plan, acknowledged: int
) -> dict[str, float]:
    """For the summary: how much was done, how quickly, and how well limits are used once the faults are over."""
    states = Counter(end.state for end in ends.values())
    waits = sorted(one.began - float(one.label) for one in begun if one.task == "pulse")
    numbers: dict[str, float] = {
        "jobs": len(ends),
        "attempts": len(begun),
        "effects_acknowledged": acknowledged,
        "dead": states["dead"],
        "most_crashes": max((end.crashes for end in ends.values()), default=0),
        "drained_in": round(seen.drained, 1),
        "longest_quiet": round(seen.quiet, 1),
        "slowness": round(plan.slowness, 1),
    }
    if waits:
        numbers["pulse_p50"] = round(waits[len(waits) // 2], 3)
        numbers["pulse_max"] = round(waits[-1], 3)
    if seen.aftermath:
        numbers |= {"calm": round(seen.calm, 1), "aftermath": round(seen.aftermath, 1)}
    first = {one.job: one for one in reversed(begun)}
    for name, ids in seen.pulses.items():
        late = [first[job].began - float(first[job].label) for job in ids if job in first]
        numbers[f"pulse_{name}"] = round(max(late, default=0.0), 3)
    last = _last(begun)
    for name, ids in seen.finale.items():
        runs = [last[job] for job in ids if job in last]
        numbers[f"used_{name}"] = round(_used_part(name, runs), 2) if len(runs) == len(ids) else 0.0
    return numbers


def _used_part(name: str, runs: Sequence[Attempt]) -> float:
    """Which part of a rate, or of a limit's places, was used while there was demand."""
    begins = sorted(one.began for one in runs)
    if name == "slot":
        span = max(one.ended or one.began for one in runs) - begins[0]
        return len(runs) * HOLDS / (SLOTS * span)
    most, per = RATES[name]
    span = begins[-1] - begins[0]
    return ((len(runs) - 1) // most) * per / span if span else 1.0


def _used(numbers: dict[str, float], plan: Plan) -> Iterator[Wrong]:
    for name, part in numbers.items():
        if name.startswith("used_") and part < plan.used:
            yield Wrong(
                "a limit is not used", None, f"{name[5:]}: {part:.0%} of what it allows, with demand all the time"
            )
