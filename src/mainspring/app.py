"""The application: a database, the tasks, and who may run them. The composition root of user code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.caller import NOBODY, Caller
from mainspring.client import AsyncClient, Client
from mainspring.config import DEFAULT_SCHEMA, WorkerConfig, database, worker_config
from mainspring.errors import ConfigurationError
from mainspring.registry import Registry

if TYPE_CHECKING:
    from mainspring.worker import Worker
    from mainspring.worker.executor import Authorize


class App:
    """What `mainspring worker run --app module:app` and the other commands need to know.

    ::

        app = ms.App("postgresql://localhost/shop", tasks, authorize=may_run)
        client = app.client()

    Without a DSN it comes from MAINSPRING_DSN or DATABASE_URL; `mainspring up` brings the embedded PostgreSQL.
    `authorize` is asked before each attempt: it gets the claimed job and returns None, or the reason why not.
    """

    def __init__(
        self,
        dsn: str | None = None,
        *registries: Registry,
        schema: str = DEFAULT_SCHEMA,
        caller: Caller = NOBODY,
        config: WorkerConfig | None = None,
        authorize: Authorize | None = None,
    ) -> None:
        self.registry = Registry("app")
        self.registry.include(*registries)
        self.schema = schema
        self.caller = caller
        self.config = config
        self.authorize = authorize
        self._dsn = dsn

    @property
    def dsn(self) -> str:
        """The database's address."""
        found = database(self._dsn)
        if found is None:
            raise ConfigurationError("no database: give App a DSN, or set MAINSPRING_DSN, or use `mainspring up`")
        return found

    def client(self) -> Client:
        """A client for sync code."""
        return Client(self.dsn, schema=self.schema, caller=self.caller)

    def async_client(self) -> AsyncClient:
        """A client for async code."""
        return AsyncClient(self.dsn, schema=self.schema, caller=self.caller)

    def worker(self, config: WorkerConfig | None = None) -> Worker:
        """A worker for this process; without a configuration, the environment's."""
        from mainspring.worker import Worker

        chosen = config or worker_config(self.config)
        return Worker(self.dsn, self.registry, config=chosen, schema=self.schema, authorize=self.authorize)
