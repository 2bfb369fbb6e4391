"""The application: a database, the tasks, and who may run them. The composition root of user code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mainspring.caller import NOBODY, Caller
from mainspring.cipher import Cipher
from mainspring.client import AsyncClient, Client
from mainspring.config import DEFAULT_SCHEMA, WorkerConfig, database, worker_config
from mainspring.errors import ConfigurationError
from mainspring.events import Observer
from mainspring.registry import Registry

if TYPE_CHECKING:
    from mainspring.observe.traces import Spans
    from mainspring.worker import Worker
    from mainspring.worker.executor import Authorize


class App:
    """What `mainspring worker run --app module:app` and the other commands need to know.

    ::

        app = ms.App("postgresql://localhost/shop", tasks, authorize=may_run)
        client = app.client()

    Without a DSN it comes from MAINSPRING_DSN or DATABASE_URL, or is that of `mainspring up` in the same directory.
    `authorize` is asked before each attempt: it gets the claimed job and returns None, or the reason why not.
    `secured` makes its clients bind each statement to its organisation, as `mainspring schema secure` asks for.
    `observers` are told what happens, in batches: see `mainspring.events`.
    `cipher` encrypts what jobs carry, with a key for each organisation.
    """

    def __init__(
        self,
        dsn: str | None = None,
        *registries: Registry,
        schema: str = DEFAULT_SCHEMA,
        caller: Caller = NOBODY,
        config: WorkerConfig | None = None,
        authorize: Authorize | None = None,
        secured: bool = False,
        observers: Sequence[Observer] = (),
        cipher: Cipher | None = None,
    ) -> None:
        self.registry = Registry("app")
        self.registry.include(*registries)
        self.schema = schema
        self.caller = caller
        self.config = config
        self.authorize = authorize
        self.secured = secured
        self.observers = tuple(observers)
        self.cipher = cipher
        self._dsn = dsn

    @property
    def dsn(self) -> str:
        """The database's address."""
        found = database(self._dsn)
        if found is None:
            from mainspring.embedded.home import here

            found = here()
        if found is None:
            way = "give App a DSN, or set MAINSPRING_DSN, or run `mainspring up` in this directory"
            raise ConfigurationError(f"no database: {way}")
        return found

    def client(self) -> Client:
        """A client for sync code."""
        return Client(self.dsn, **self._about())

    def async_client(self) -> AsyncClient:
        """A client for async code."""
        return AsyncClient(self.dsn, **self._about())

    def worker(self, config: WorkerConfig | None = None) -> Worker:
        """A worker for this process; without a configuration, the environment's."""
        from mainspring.worker import Worker

        chosen = config or worker_config(self.config)
        return Worker(
            self.dsn,
            self.registry,
            config=chosen,
            schema=self.schema,
            authorize=self.authorize,
            observers=self.observers,
            trace=spans(),
            cipher=self.cipher,
        )

    def _about(self) -> Any:
        about = {"schema": self.schema, "caller": self.caller, "secured": self.secured}
        return about | {"observers": self.observers, "cipher": self.cipher}


def spans() -> Spans | None:
    """What traces attempts, where this program has set OpenTelemetry up."""
    if "opentelemetry.sdk.trace" not in sys.modules:  # nothing is imported for those who do not trace
        return None
    from mainspring.observe.traces import Spans, in_use

    return Spans() if in_use() else None
