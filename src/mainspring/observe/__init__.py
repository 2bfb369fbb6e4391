"""Subscribers of events: logs, metrics, traces, alerts. `Metrics` and `mainspring.observe.sentry` need their extras."""

from typing import TYPE_CHECKING, Any

from mainspring.extras import needs
from mainspring.observe.alerts import Alerts
from mainspring.observe.formatters import JsonFormatter, TerminalFormatter
from mainspring.observe.handlers import BatchHandler
from mainspring.observe.logs import Log

if TYPE_CHECKING:
    from mainspring.observe.metrics import Metrics
else:

    def __getattr__(name: str) -> Any:
        if name != "Metrics":
            raise AttributeError(f"module 'mainspring.observe' has no attribute {name!r}")
        needs("metrics need", "metrics", "prometheus_client")
        from mainspring.observe.metrics import Metrics

        return Metrics


__all__ = ["Alerts", "BatchHandler", "JsonFormatter", "Log", "Metrics", "TerminalFormatter"]
