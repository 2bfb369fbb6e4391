"""Names of metrics without our prefix, under which some are shown as well where somebody asks for them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from prometheus_client.core import Metric

from mainspring.errors import ConfigurationError

#: A metric, and its other name.
ALIASES: Final = {
    "mainspring_jobs_enqueued": "jobs_enqueued",
    "mainspring_jobs_started": "jobs_started",
    "mainspring_jobs_succeeded": "jobs_succeeded",
    "mainspring_jobs_failed": "jobs_failed",
    "mainspring_jobs_deadlettered": "deadletter",
    "mainspring_jobs_duration_seconds": "jobs_duration_seconds",
    "mainspring_jobs_attempts": "jobs_attempts_histogram",
}


def wants_aliases() -> bool:
    """Whether MAINSPRING_METRICS_ALIASES asks for them."""
    said = os.environ.get("MAINSPRING_METRICS_ALIASES") or "off"
    if said not in ("on", "off"):
        raise ConfigurationError("MAINSPRING_METRICS_ALIASES: is not on or off")
    return said == "on"


def under_alias(metric: Metric) -> Iterator[Metric]:
    """The same numbers under their other name, if they have one."""
    if (name := ALIASES.get(metric.name)) is not None:
        other = Metric(name, metric.documentation, metric.type)
        other.samples = [one._replace(name=name + one.name.removeprefix(metric.name)) for one in metric.samples]
        yield other
