"""Mainspring in a transaction that the test began and rolls back."""

from __future__ import annotations

from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, TypeVar

from mainspring.app import App
from mainspring.db.cipher import Keyring
from mainspring.db.wire.run import psycopg_door, run
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue
from mainspring.errors import ConfigurationError
from mainspring.testing.enqueued import EnqueuedVerbs
from mainspring.virtual.calling_thread import run_from_thread
from mainspring.virtual.joined import AsyncView, Joined, View, join, join_async, refresh
from mainspring.virtual.ran import Drained
from mainspring.virtual.runner import MOST_DRAINED, Runner
from mainspring.virtual.tasks import DeclaredTasks, Tasks

T = TypeVar("T")


class Guest(EnqueuedVerbs):
    """Jobs in a test's own open transaction, on its own connection: of psycopg, SQLAlchemy or Django.

    ::

        def test_checkout_sends_a_receipt(db):  # pytest-django's fixture
            checkout(order_id=7)
            Guest(connection, app).assert_enqueued(send_receipt, payload={"order_id": 7})
            drain(connection, app)
            assert Mail.objects.count() == 1
    """

    def __init__(self, conn: Any, app: Tasks) -> None:
        self._conn, self._tasks = conn, DeclaredTasks.by(app)
        self._sql = Sql(self._tasks.schema)
        dsn = app.dsn if isinstance(app, App) and app.cipher is not None else ""  # the keys are not the test's to undo
        self._ring = Keyring(self._tasks.cipher, dsn, self._sql)

    def drain(self, *, queue: str | None = None, raise_errors: bool = True, limit: int = MOST_DRAINED) -> Drained:
        """Run everything that is due, inside of the transaction; see `drain`."""
        pgconn = join(self._conn)
        try:
            return run_from_thread(
                lambda threads: self._drain(pgconn, threads, queue=queue, raise_errors=raise_errors, limit=limit)
            )
        finally:
            refresh(self._conn)

    async def adrain(
        self, *, queue: str | None = None, raise_errors: bool = True, limit: int = MOST_DRAINED
    ) -> Drained:
        """`drain`, in the test's own loop; the connection may be an async one."""
        pgconn = await join_async(self._conn)
        try:
            with ThreadPoolExecutor(1) as threads:
                return await self._drain(pgconn, threads, queue=queue, raise_errors=raise_errors, limit=limit)
        finally:
            refresh(self._conn)

    async def _drain(self, pgconn: Any, threads: Executor, *, queue: str | None, **options: Any) -> Drained:
        joined, view = Joined(pgconn), AsyncView(pgconn)
        if (at_work := await (await view.execute(self._sql["at_work"])).fetchone()) is not None:
            place = f"worker {at_work[0]} serves database {view.info.dbname}"
            raise ConfigurationError(f"conn: {place}: its jobs are not the test's, and effects outside it would remain")
        runner = Runner(
            self._tasks, view, self._ring, transactions=joined, pool=joined, threads=threads, queue=queue,
            attempt=joined.attempt,
        )  # fmt: skip
        return await runner.drain(**options)

    def _ask(self, dialogue: Dialogue[T]) -> T:
        return run(psycopg_door(View(join(self._conn))), dialogue)


def drain(
    conn: Any, app: Tasks, *, queue: str | None = None, raise_errors: bool = True, limit: int = MOST_DRAINED
) -> Drained:
    """Run the due jobs of an App or Registry inside of a test's own open transaction, on its own connection.

    Nothing commits: handlers' transactions are savepoints, and everything goes when the test rolls back. A handler that
    raises fails the test with its traceback, unless `raise_errors=False`.
    """
    return Guest(conn, app).drain(queue=queue, raise_errors=raise_errors, limit=limit)


async def adrain(
    conn: Any, app: Tasks, *, queue: str | None = None, raise_errors: bool = True, limit: int = MOST_DRAINED
) -> Drained:
    """`drain` for async tests: in their own loop, on a sync or async connection."""
    return await Guest(conn, app).adrain(queue=queue, raise_errors=raise_errors, limit=limit)
