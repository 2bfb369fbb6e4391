"""Prometheus metrics: counters and histograms from events, gauges from the database when somebody scrapes.

Labels come from bounded sets: the tasks that are declared, the queues that are known, the two classes of errors. Never
an organisation, a job or a text. Counting is a dictionary and an addition per event: prometheus-client renders, but its
own labelled counters would cost five times as much.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from mainspring.db.gauges import Gauges
from mainspring.declare.registry import Registry
from mainspring.events import (
    Alert,
    DatabaseAway,
    DatabaseBack,
    Event,
    JobCancelled,
    JobDeadlettered,
    JobDeferred,
    JobEnqueued,
    JobEvent,
    JobFailed,
    JobLate,
    JobLeaseExpired,
    JobLeaseLost,
    JobRetried,
    JobStale,
    JobStarted,
    JobSucceeded,
    SweepFound,
    WakeupsLost,
    WakeupsRestored,
)
from mainspring.health.measure import Measured
from mainspring.observe.aliases import under_alias, wants_aliases
from mainspring.observe.gauges import shown
from mainspring.observe.measures import measured
from mainspring.queue import QUEUES

OTHER = "other"
MOST_QUEUES = 50  # that callers invent; more are counted as one
SECONDS_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
_FEW_VALUES = 10
ATTEMPT_BUCKETS = (1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 20.0, 50.0)
#: What a worker says of itself when somebody scrapes.
WORKER_GAUGES = {
    "mainspring_worker_running": "Jobs that this worker holds",
    "mainspring_worker_outbox": "Outcomes that this worker has not written yet",
    "mainspring_loop_still_seconds": "For how long this worker's event loop has stood still",
    "mainspring_loop_stuck_total": "How often it could not go on: a loop that stood still or was ended, lost slots",
    "mainspring_errors_unread_total": "Exceptions whose text could not be read within a second",
    "mainspring_hints_heard_total": "Hints that this worker heard",
    "mainspring_limits_late_total": "Jobs that a rate let in and that went back, because they could not start in time",
    "mainspring_wakeups_listening": "Whether this worker listens for hints",
    "mainspring_transactions_in_use": "Connections in use by handlers' own transactions",
    "mainspring_transactions_size": "Connections for handlers' own transactions",
    "mainspring_thread_connections_in_use": "Connections in use by plain functions",
    "mainspring_thread_connections_size": "Connections for plain functions",
}


class Histogram:
    """Counts by bucket."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds, self._counts, self._sum = bounds, [0] * (len(bounds) + 1), 0.0

    def observe(self, values: list[float]) -> None:
        """Count these. Sorted, they need one look a bucket; a few are counted one by one."""
        self._sum += sum(values)
        if len(values) < _FEW_VALUES:
            for value in values:
                self._counts[bisect_left(self._bounds, value)] += 1
            return
        values.sort()
        below = 0
        for bucket, bound in enumerate(self._bounds):
            upto = bisect_right(values, bound, below)
            self._counts[bucket] += upto - below
            below = upto
            if below == len(values):
                return
        self._counts[-1] += len(values) - below

    def add_to(self, family: HistogramMetricFamily, labels: Sequence[str]) -> None:
        """Render."""
        total, buckets = 0, []
        for bound, count in zip((*(str(b) for b in self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            buckets.append((bound, float(total)))
        family.add_metric(labels, buckets, self._sum)


class TaskCounts:
    """What is counted for one task in one queue; the attempts are of the task, whatever the queue."""

    __slots__ = ("attempts", "counts", "duration", "failed", "labels", "lateness")

    def __init__(self, task: str, queue: str, attempts: Histogram) -> None:
        self.labels = (task, queue)
        self.attempts = attempts
        self.counts: Counter[type[Event]] = Counter()
        self.failed: Counter[str] = Counter()
        self.duration, self.lateness = Histogram(SECONDS_BUCKETS), Histogram(SECONDS_BUCKETS)


#: Event → the counter that it raises, by (job_type, queue).
COUNTERS: dict[type[Event], tuple[str, str]] = {
    JobEnqueued: ("mainspring_jobs_enqueued", "Jobs created"),
    JobStarted: ("mainspring_jobs_started", "Attempts begun"),
    JobLate: ("mainspring_jobs_late", "Attempts that began more than 60 s after their job was due"),
    JobSucceeded: ("mainspring_jobs_succeeded", "Jobs succeeded"),
    JobDeadlettered: (
        "mainspring_jobs_deadlettered",
        "Entries into the dead letter, by the queue that the job came from",
    ),
    JobRetried: ("mainspring_jobs_retried", "Failed attempts that are tried again"),
    JobDeferred: ("mainspring_jobs_deferred", "Claimed jobs that were deferred"),
    JobCancelled: ("mainspring_jobs_cancelled", "Claimed jobs that were cancelled"),
    JobLeaseExpired: ("mainspring_lease_rescues", "Jobs taken back from workers that stopped renewing their leases"),
    JobLeaseLost: ("mainspring_lease_losses", "Attempts stopped because this worker could not trust its lease"),
    JobStale: ("mainspring_stale_outcomes", "Outcomes refused because the job was no longer this worker's"),
}


class Metrics(Collector):
    """An observer that counts, and a collector that shows.

    ::

        metrics = Metrics(tasks)
        app = ms.App(tasks, dsn=dsn, observers=[metrics])
        prometheus_client.REGISTRY.register(metrics)

    With `gauges`, a function that reads them, it also shows the state of the database; with `measures` the
    application's own numbers; with `aliases` some metrics under names without our prefix as well.
    """

    def __init__(
        self,
        tasks: Registry | None = None,
        *,
        gauges: Callable[[], Gauges | None] | None = None,
        state: Callable[[], dict[str, float]] | None = None,
        measures: Callable[[], Sequence[Measured]] | None = None,
        aliases: bool | None = None,
    ) -> None:
        self._tasks = None if tasks is None else set(tasks.names())
        self._queues = {*QUEUES, *(task.queue for task in tasks or ())}
        self._known = len(self._queues)
        self._cells: dict[tuple[str, str], TaskCounts] = {}  # by the names as they come; several may share a cell
        self._shared: dict[tuple[str, str], TaskCounts] = {}
        self._attempts: dict[str, Histogram] = {}
        for task in tasks or ():
            self._cell(task.name, task.queue)
        self._alerts: Counter[str] = Counter()
        self._swept: Counter[str] = Counter()
        self._database_away = self._wakeups_lost = False
        self.gauges, self.state, self.measures = gauges, state, measures
        self._aliases = aliases if aliases is not None else wants_aliases()

    def __call__(self, batch: Sequence[Event]) -> None:
        """Count a batch."""
        groups: defaultdict[Any, list[Any]] = defaultdict(list)  # a batch holds many events of few kinds
        for event in batch:
            if isinstance(event, JobEvent):
                groups[type(event), event.task, event.queue].append(event)
            else:
                self._other(event)
        for (kind, task, queue), events in groups.items():
            self._count(self._cells.get((task, queue)) or self._cell(task, queue), kind, events)

    def _count(self, cell: TaskCounts, kind: type[JobEvent], events: list[Any]) -> None:
        cell.counts[kind] += len(events)
        ended: list[Any] = []
        if kind is JobStarted:
            cell.lateness.observe([event.lateness for event in events])
        elif kind is JobSucceeded:
            cell.duration.observe([event.duration for event in events])
            ended = events
        elif kind is JobFailed:
            cell.duration.observe([event.duration for event in events])
            cell.failed.update("permanent" if e.error_class == "permanent" else "retryable" for e in events)
            ended = [event for event in events if event.final]
        elif kind is JobCancelled:
            ended = events
        elif kind is JobLeaseExpired:
            ended = [event for event in events if event.state == "dead"]
        if ended:
            cell.attempts.observe([event.attempt for event in ended])

    def collect(self) -> Iterator[Metric]:
        """Show everything, for Prometheus."""
        for metric in self._counted():
            yield metric
            yield from under_alias(metric) if self._aliases else ()
        for name, value in self.state().items() if self.state is not None else ():
            family = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            yield family(name, WORKER_GAUGES[name], value=value)
        if self.gauges is not None:
            found = self.gauges()
            text = "Whether the state of the database could be read"
            yield GaugeMetricFamily("mainspring_gauges_up", text, value=float(found is not None))
            yield from shown(found) if found is not None else ()
        if self.measures is not None:
            yield from measured(self.measures())

    def _counted(self) -> Iterator[Metric]:
        cells = list(self._shared.values())
        pair = ("job_type", "queue")
        for kind, (name, text) in COUNTERS.items():
            counter = CounterMetricFamily(name, text, labels=pair)
            for cell in cells:
                counter.add_metric(cell.labels, cell.counts[kind])  # from 0 on: the first one must show as a rise
            yield counter
        failed = CounterMetricFamily("mainspring_jobs_failed", "Failed attempts", labels=(*pair, "error_class"))
        duration = HistogramMetricFamily("mainspring_jobs_duration_seconds", "How long attempts took", labels=pair)
        text = "How late attempts began, after their job was due"
        lateness = HistogramMetricFamily("mainspring_jobs_lateness_seconds", text, labels=pair)
        for cell in cells:
            for error_class, count in cell.failed.items():
                failed.add_metric((*cell.labels, error_class), count)
            if cell.counts.total():
                cell.duration.add_to(duration, cell.labels)
                cell.lateness.add_to(lateness, cell.labels)
        text = "Attempts of jobs that ended"
        attempts = HistogramMetricFamily("mainspring_jobs_attempts", text, labels=("job_type",))
        for task, histogram in list(self._attempts.items()):
            histogram.add_to(attempts, (task,))
        alerts = CounterMetricFamily("mainspring_alerts", "Alerts raised by this process", labels=("alert",))
        for alert, count in list(self._alerts.items()):
            alerts.add_metric((alert,), count)
        swept = CounterMetricFamily("mainspring_swept", "Jobs that a sweep had to enqueue", labels=("sweep",))
        for sweep, count in list(self._swept.items()):
            swept.add_metric((sweep,), count)
        yield from (failed, duration, lateness, attempts, alerts, swept)
        yield GaugeMetricFamily("mainspring_database_up", "Whether it answers", value=float(not self._database_away))
        yield GaugeMetricFamily("mainspring_wakeups_up", "Whether hints arrive", value=float(not self._wakeups_lost))

    def _other(self, event: Event) -> None:
        match event:
            case DatabaseAway() | DatabaseBack():
                self._database_away = isinstance(event, DatabaseAway)
            case WakeupsLost() | WakeupsRestored():
                self._wakeups_lost = isinstance(event, WakeupsLost)
            case Alert(alert=alert, firing=True):
                self._alerts[alert] += 1
            case SweepFound(sweep=sweep, count=count):
                self._swept[sweep] += count

    def _cell(self, task: str, queue: str) -> TaskCounts:
        """Where a job is counted: under its names where they are known, else as one of the others."""
        known = self._tasks is None or task in self._tasks
        if queue not in self._queues and len(self._queues) < self._known + MOST_QUEUES:
            self._queues.add(queue)
        labels = task if known and len(self._cells) < 10_000 else OTHER, queue if queue in self._queues else OTHER
        attempts = self._attempts.get(labels[0]) or self._attempts.setdefault(labels[0], Histogram(ATTEMPT_BUCKETS))
        cell = self._shared.get(labels) or self._shared.setdefault(labels, TaskCounts(*labels, attempts))
        if labels == (task, queue):
            self._cells[labels] = cell
        return cell
