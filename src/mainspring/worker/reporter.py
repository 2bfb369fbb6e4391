"""Shows how far jobs are: all of a worker's in one statement, twice a second at most, however often they report."""

from __future__ import annotations

from typing import Any

import psycopg

from mainspring.db import steps
from mainspring.db.steps import Report
from mainspring.db.wire.run import async_psycopg_door, run_async
from mainspring.db.wire.sql import Sql
from mainspring.worker.connection import SharedConnection
from mainspring.worker.service import Service

#: The last report of each attempt that is not written yet, by epoch. An attempt that ends writes its own.
Reports = dict[int, Report]


class Reporter(Service):
    """Writes what attempts have reported since it last looked."""

    def __init__(self, connection: SharedConnection, sql: Sql, worker: str, reports: Reports) -> None:
        super().__init__(0.5)
        self._connection, self._sql, self._worker = connection, sql, worker
        self._reports = reports

    async def tick(self) -> None:
        """Write."""
        taken = [self._reports.pop(epoch, None) for epoch in list(self._reports)]
        reports = [report for report in taken if report is not None]  # one may have ended meanwhile, in a thread
        if not reports:
            return

        async def write(conn: psycopg.AsyncConnection[Any]) -> None:
            async with conn.transaction():
                await conn.execute("set local synchronous_commit = off")  # losing one costs nothing but the report
                await run_async(async_psycopg_door(conn), steps.report(self._sql, self._worker, reports))

        try:
            await self._connection.use(write)
        except BaseException:
            for report in reports:
                self._reports.setdefault(report.epoch, report)
            raise
