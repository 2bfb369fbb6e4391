"""The state of the database as metrics."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily, Metric

from mainspring.db.gauges import Gauges


def shown(found: Gauges) -> Iterable[Metric]:
    """Every gauge, for Prometheus."""
    ready = GaugeMetricFamily("mainspring_jobs_ready", "Jobs that are due, counted up to 10,000", labels=("queue",))
    later = GaugeMetricFamily("mainspring_jobs_later", "Jobs that are due later, up to 10,000", labels=("queue",))
    oldest = GaugeMetricFamily("mainspring_oldest_due_age_seconds", "How late the oldest is", labels=("queue",))
    target = GaugeMetricFamily("mainspring_start_target_seconds", "How late a job may start", labels=("queue",))
    paused = GaugeMetricFamily("mainspring_queue_paused", "Whether the queue is paused", labels=("queue",))
    for lane in found.lanes:
        for family, value in (
            (ready, lane.ready),
            (later, lane.later),
            (oldest, lane.oldest_s or 0),
            (paused, lane.paused),
            (target, lane.target_s),
        ):
            if value is not None:
                family.add_metric((lane.name,), float(value))
    seconds = GaugeMetricFamily("mainspring_xmin_age_seconds", "How long dead rows are kept", labels=("holder",))
    transactions = GaugeMetricFamily("mainspring_xmin_age_transactions", "The same in transactions", labels=("holder",))
    for holder in found.horizon:
        if holder.seconds is not None:
            seconds.add_metric((holder.holder,), holder.seconds)
        if holder.transactions is not None:
            transactions.add_metric((holder.holder,), holder.transactions)
    live = GaugeMetricFamily("mainspring_table_live_rows", "Live rows, by PostgreSQL's statistics", labels=("table",))
    dead = GaugeMetricFamily("mainspring_table_dead_rows", "Dead rows that are not removed yet", labels=("table",))
    size = GaugeMetricFamily("mainspring_table_bytes", "Size with its indexes", labels=("table",))
    for table in found.tables:
        for family, number in ((live, table.live), (dead, table.dead), (size, table.bytes)):
            family.add_metric((table.name,), number)
    held = GaugeMetricFamily("mainspring_breaker_open", "Whether jobs that need it wait", labels=("breaker",))
    keys = GaugeMetricFamily("mainspring_breaker_keys_open", "Keys of it whose jobs wait", labels=("breaker",))
    stopped = GaugeMetricFamily("mainspring_breaker_jobs_waiting", "Jobs that wait for it", labels=("breaker",))
    for fuse in found.breakers:
        stopped.add_metric((fuse.name,), fuse.waiting)
        held.add_metric((fuse.name,), float(fuse.open))
        keys.add_metric((fuse.name,), fuse.keys)
    killing = GaugeMetricFamily("mainspring_task_quarantined", "Tasks that have killed workers", labels=("job_type",))
    for task in found.quarantined:
        killing.add_metric((task,), 1.0)
    yield killing
    behind = GaugeMetricFamily("mainspring_jobs_limited", "Jobs that a limit holds back", labels=("limit",))
    for limit in found.limits:
        behind.add_metric((limit.name,), limit.waiting)
    alerts = GaugeMetricFamily("mainspring_alerts_open", "Alerts that are open", labels=("name", "severity"))
    for alarm in found.alerts:
        alerts.add_metric((alarm.name, alarm.severity), alarm.open)
    yield alerts
    yield from (ready, later, oldest, target, paused, held, keys, stopped, behind)
    yield from (seconds, transactions, live, dead, size)
    yield GaugeMetricFamily("mainspring_workers_alive", "Workers with a heartbeat", value=found.workers)
    text = "Since the last heartbeat job succeeded"
    yield GaugeMetricFamily("mainspring_heartbeat_age_seconds", text, value=found.heartbeat_s)
    yield GaugeMetricFamily("mainspring_deadletter_open", "Open dead letters, up to 10,000", value=found.dead.open)
    text = "Age of the oldest open dead letter"
    yield GaugeMetricFamily("mainspring_deadletter_oldest_age_seconds", text, value=found.dead.oldest_s or 0)
