"""What a worker process shows of itself: its log, its metrics port, its alerts."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from mainspring.errors import ConfigurationError
from mainspring.extras import installed, needs

if TYPE_CHECKING:
    from mainspring.app import App
    from mainspring.events import Observer
    from mainspring.observe import Metrics
    from mainspring.worker import Worker

ALERT_LOOK_S = 30.0  # seconds between looks at the database for alerts


class Observers:
    """The observers of one process: the application's own, and those of the command line.

    `told` are all but the one that looks for alerts of the engine's own: it tells the others.
    """

    def __init__(self, app: App, dsn: str, schema: str) -> None:
        from mainspring.db.gauges import Reader
        from mainspring.db.measures import Measures
        from mainspring.observe import Alerts, Log

        self._reader = Reader(dsn, schema)
        self._metrics: Metrics | None = None
        if installed("prometheus_client"):
            from mainspring.observe import Metrics

            measures = Measures(dsn, app.measures, schema) if app.measures else None
            self._metrics = Metrics(app.registry, gauges=self._reader, measures=measures)
        logs = [] if any(isinstance(one, Log) for one in app.observers) else [Log(app.registry)]
        self.told: list[Observer] = [*logs, *([self._metrics] if self._metrics else []), *app.observers]
        self._alerts = Alerts(self.told)
        self.all: list[Observer] = [*self.told, self._alerts]

    def serve(self, worker: Worker, host: str, port: int) -> None:
        """Show metrics to Prometheus, by a thread of its own."""
        needs("metrics need", "metrics", "prometheus_client")
        from prometheus_client import CollectorRegistry, start_http_server

        assert self._metrics is not None
        self._metrics.state = worker.state
        registry = CollectorRegistry()
        registry.register(self._metrics)
        try:
            start_http_server(port, addr=host, registry=registry)
        except OSError as error:
            raise ConfigurationError(f"metrics-port: cannot listen on {host}:{port}: {error.strerror}") from None

    async def look(self) -> None:
        """Look for alerts in the database, now and then, until cancelled."""
        while True:
            await asyncio.sleep(ALERT_LOOK_S)
            with suppress(Exception):  # the database is away: that is told already
                found = await asyncio.to_thread(self._reader)
                if found is not None:
                    self._alerts.look(found)


def checked_port(given: int | None) -> int | None:
    """The port that an option or MAINSPRING_METRICS_PORT names."""
    try:
        port = given if given is not None else int(os.environ.get("MAINSPRING_METRICS_PORT") or -1)
    except ValueError:
        port = 0
    if port == -1:
        return None
    if not 1 <= port <= 65535:
        raise ConfigurationError("metrics-port: is not a port from 1 to 65535")
    return port
