"""The measures of an application as metrics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from mainspring.health.measure import Measured


def measured(found: Sequence[Measured]) -> Iterable[Metric]:
    """Every measure that could be read, and how often each could not."""
    errors = CounterMetricFamily("mainspring_measure_errors", "Times that it could not be read", labels=("measure",))
    for one in found:
        errors.add_metric((one.measure.name,), one.errors)
        if one.error is not None:
            continue
        kind = CounterMetricFamily if one.measure.kind == "counter" else GaugeMetricFamily
        family = kind(one.measure.name, one.measure.help, labels=one.labels)
        for values, value in one.series:
            family.add_metric(values, value)
        yield family
    yield errors
