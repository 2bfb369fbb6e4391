"""Alerts: what somebody should look at, as one table; each has a section in docs/operations/alerts.md."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from mainspring.db.gauges import Gauges
from mainspring.events import Alert, Event, JobDeadlettered, JobLeaseExpired, Observer, WorkerStuck, tell
from mainspring.health.alert import RUNBOOK, Severity


@dataclass(frozen=True, slots=True)
class AlertRule:
    """When an alert fires: `check` names what is wrong in the gauges, `expr` says the same to Prometheus."""

    name: str
    severity: Severity
    text: str
    expr: str
    wait: str = "1m"  # how long Prometheus lets it last first
    check: Callable[[Gauges], Iterable[tuple[str | None, str]]] | None = None  # (queue, what) for each that is wrong

    @property
    def runbook(self) -> str:
        """Where it says what to do."""
        return f"{RUNBOOK}#{self.name}"


def _old_letters(found: Gauges) -> Iterable[tuple[str | None, str]]:
    age = found.dead.oldest_s or 0
    return [(None, f"the oldest has waited {age / 3600:.0f} h")] if age > 24 * 3600 else []


def _late(found: Gauges) -> Iterable[tuple[str | None, str]]:
    for lane in found.lanes:
        if lane.target_s and (lane.oldest_s or 0) > lane.target_s and not lane.paused:
            yield lane.name, f"{lane.name}: the oldest is {lane.oldest_s:.0f} s late, {lane.target_s:.0f} s are allowed"


def _nobody(found: Gauges) -> Iterable[tuple[str | None, str]]:
    return [] if found.workers else [(None, "no worker has a heartbeat")]


def _silent(found: Gauges) -> Iterable[tuple[str | None, str]]:
    seconds = found.heartbeat_s or 0
    return [(None, f"{seconds / 60:.0f} min")] if seconds > 300 else []


def _broken(found: Gauges) -> Iterable[tuple[str | None, str]]:
    for fuse in found.breakers:
        if (fuse.open_s or 0) > 600:
            yield None, f"{fuse.name} for {(fuse.open_s or 0) / 60:.0f} min"


def _killing(found: Gauges) -> Iterable[tuple[str | None, str]]:
    return [(None, ", ".join(found.quarantined))] if found.quarantined else []


def _horizon(found: Gauges) -> Iterable[tuple[str | None, str]]:
    for holder in found.horizon:
        if (holder.seconds or 0) > 600:
            yield None, f"a {holder.holder} has held its snapshot for {(holder.seconds or 0) / 60:.0f} min"


def _bloat(found: Gauges) -> Iterable[tuple[str | None, str]]:
    for table in found.tables:
        if table.name in ("waiting", "running") and table.dead > 100_000 + table.live:
            yield None, f"{table.name} holds {table.dead} dead rows beside {table.live} live ones"


RULES: tuple[AlertRule, ...] = (
    AlertRule(
        "dead-letter-entry", "warning", "a job entered the dead letter",
        "increase(mainspring_jobs_deadlettered_total[5m]) > 0", wait="0m",
    ),
    AlertRule(
        "dead-letter-old", "warning", "a dead letter has waited for more than a day",
        "mainspring_deadletter_oldest_age_seconds > 86400", check=_old_letters,
    ),
    AlertRule(
        "queue-late", "critical", "a queue starts its jobs later than its target",
        "mainspring_oldest_due_age_seconds > mainspring_start_target_seconds unless mainspring_queue_paused == 1",
        wait="2m", check=_late,
    ),
    AlertRule(
        "no-worker", "critical", "no worker is alive",
        "mainspring_workers_alive == 0 or absent(mainspring_workers_alive)", wait="1m", check=_nobody,
    ),
    AlertRule(
        "heartbeat-silent", "critical", "no heartbeat job has succeeded for more than five minutes",
        "mainspring_heartbeat_age_seconds > 300", check=_silent,
    ),
    AlertRule(
        "breaker-open", "warning", "jobs wait because a dependency does not answer, or somebody holds its breaker open",
        "mainspring_breaker_open == 1", wait="10m", check=_broken,
    ),
    AlertRule(
        "loop-stuck", "critical", "a worker cannot go on: its loop stands still or was ended, or its slots are held",
        "mainspring_loop_still_seconds > 30 or increase(mainspring_loop_stuck_total[10m]) > 0", wait="0m",
    ),
    AlertRule(
        "lease-rescues", "warning", "workers die or freeze while they run jobs",
        "sum(increase(mainspring_lease_rescues_total[10m])) > 10", wait="0m",
    ),
    AlertRule(
        "task-quarantined", "critical", "a task is held back because its jobs kill workers",
        "mainspring_task_quarantined == 1", wait="0m", check=_killing,
    ),
    AlertRule(
        "lease-losses", "warning", "a worker lost leases: it froze, or the database was away",
        "sum(increase(mainspring_lease_losses_total[10m])) + sum(increase(mainspring_stale_outcomes_total[10m])) > 10",
        wait="0m",
    ),
    AlertRule(
        "horizon-held", "warning", "something keeps dead rows from being removed, which slows claims",
        "mainspring_xmin_age_seconds > 600", check=_horizon,
    ),
    AlertRule(
        "tickets-bloated", "warning", "dead rows pile up in the hot tables",
        'mainspring_table_dead_rows{table=~"waiting|running"} > 100000 + mainspring_table_live_rows', wait="10m",
        check=_bloat,
    ),
    AlertRule(
        "wakeups-lost", "warning", "a worker hears no hints: jobs start up to a poll interval later",
        "mainspring_wakeups_up == 0", wait="5m",
    ),
    AlertRule(
        "database-away", "critical", "a worker cannot reach the database",
        "mainspring_database_up == 0 or mainspring_gauges_up == 0", wait="1m",
    ),
)  # fmt: skip
RULES_BY_NAME = {rule.name: rule for rule in RULES}
INTERESTING = {JobDeadlettered, JobLeaseExpired, WorkerStuck}
_STORM_RESCUES = 10  # rescues that one process makes at once


class Alerts:
    """Turns events into alerts for its observers: one for each entry into the dead letter, one when a state changes.

    ::

        alerts = Alerts([page_somebody])
        app = ms.App(tasks, dsn=dsn, observers=[alerts])
    """

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = tuple(observers)
        self._firing: dict[tuple[str, str | None], str] = {}

    def __call__(self, batch: Sequence[Event]) -> None:
        """Look at a batch."""
        if INTERESTING.isdisjoint(map(type, batch)):
            return
        entries = [event for event in batch if isinstance(event, JobDeadlettered)]
        found = [
            raised("dead-letter-entry", f"{e.task}: {e.code} after {e.attempt} attempts", e.job_id, e.queue)
            for e in entries
        ]
        rescued = sum(isinstance(event, JobLeaseExpired) for event in batch)
        if rescued >= _STORM_RESCUES:
            found.append(raised("lease-rescues", f"{rescued} jobs were taken back at once"))
        found += [
            raised("loop-stuck", f"{e.worker} for {e.seconds:.0f} s, by {e.task or 'nobody knows what'}", e.job_id)
            for e in batch
            if isinstance(e, WorkerStuck)
        ]
        if found:
            tell(self._observers, found)

    def look(self, gauges: Gauges) -> list[Alert]:
        """Compare with the gauges; tells what began and what is over since the last look, and returns it."""
        now = dict(wrong(gauges))
        changes = [raised(name, text, None, queue) for (name, queue), text in now.items()
                   if (name, queue) not in self._firing]  # fmt: skip
        changes += [over(name, queue) for name, queue in self._firing if (name, queue) not in now]
        self._firing = now
        if changes:
            tell(self._observers, changes)
        return changes


def wrong(gauges: Gauges) -> Iterable[tuple[tuple[str, str | None], str]]:
    """Every alert that fires by these gauges: (name, queue) and what is wrong."""
    for rule in RULES:
        for queue, text in rule.check(gauges) if rule.check else ():
            yield (rule.name, queue), text


def raised(name: str, text: str, job_id: UUID | None = None, queue: str | None = None) -> Alert:
    """An alert that begins."""
    rule = RULES_BY_NAME[name]
    return Alert(name, rule.severity, f"{rule.text}: {text}", rule.runbook, True, job_id, queue)


def over(name: str, queue: str | None) -> Alert:
    """An alert that is over."""
    rule = RULES_BY_NAME[name]
    return Alert(name, rule.severity, f"over: {rule.text}", rule.runbook, False, None, queue)


def prometheus_rules(base: str = "") -> str:
    """The table as a rules file of Prometheus; `base` begins the links to the runbook.

    Texts are quoted as in JSON, which is YAML too: a colon would end them otherwise.
    """
    base = f"{base.rstrip('/')}/" if base else ""
    lines = ["groups:", "- name: mainspring", "  rules:"]
    for rule in RULES:
        lines += [
            f"  - alert: {rule.name}",
            f"    expr: {json.dumps(rule.expr)}",
            f"    for: {rule.wait}",
            "    labels:",
            f"      severity: {rule.severity}",
            "    annotations:",
            f"      summary: {json.dumps(rule.text)}",
            f"      runbook: {json.dumps(base + rule.runbook)}",
        ]
    return "\n".join(lines) + "\n"
