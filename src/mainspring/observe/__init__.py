"""Subscribers of events: logs, metrics, traces, alerts. `mainspring.observe.sentry` needs its extra."""

from mainspring.observe.alerts import Alerts
from mainspring.observe.formatters import JsonFormatter, TerminalFormatter
from mainspring.observe.handlers import BatchHandler
from mainspring.observe.logs import Log
from mainspring.observe.metrics import Metrics

__all__ = ["Alerts", "BatchHandler", "JsonFormatter", "Log", "Metrics", "TerminalFormatter"]
