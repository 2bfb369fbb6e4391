"""The measures of an application as metrics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from mainspring.health.measure import Measured


def measured(found: Sequence[Measured]) -> Iterable[Metric]:
    """Every measure that could be read, and how often each could not."""
    errors = CounterMetricFamily("mainspring_measure_errors", "Times that it could not be read", labels=("measure",))
    for one in found:
        errors.add_metric((one.measure.name,), one.errors)
        if one.error is not None:
            continue
        about = one.measure
        if about.kind == "histogram":
            histogram = HistogramMetricFamily(about.name, about.help, labels=one.labels)
            for values, buckets, total in one.histograms:
                histogram.add_metric(values, buckets, total)
            yield histogram
            continue
        kind = CounterMetricFamily if about.kind == "counter" else GaugeMetricFamily
        family = kind(about.name, about.help, labels=one.labels)
        for values, value in one.series:
            family.add_metric(values, value)
        yield family
    yield errors
