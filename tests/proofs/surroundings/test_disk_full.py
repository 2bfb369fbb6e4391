"""A full disk: nothing is lost, nothing runs twice, and work goes on when there is room again."""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg.sql import SQL, Identifier, Literal
from tests.conftest import check_invariants
from tests.databases import Database, fresh_database, superuser
from tests.worker.stage import Stage

from mainspring import Registry
from mainspring.embedded import Cluster
from mainspring.embedded.account import account

pytestmark = pytest.mark.anyio

SIZE = 40 * 2**20


class Disk:
    """A small file system that can be filled up."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def fill(self) -> None:
        with self._ballast.open("wb", buffering=0) as file:
            for size in (2**20, 4096):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError:
                    continue

    def clear(self) -> None:
        self._ballast.unlink(missing_ok=True)


@pytest.fixture
def disk(volatile_cluster: Cluster) -> Iterator[Disk]:
    path = Path(tempfile.mkdtemp(prefix="mainspring-disk-"))
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        path.rmdir()
        reason = "only root may mount a small file system"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    try:
        path.chmod(0o755)
        (path / "space").mkdir(mode=0o700)
        os.chown(path / "space", *(account(volatile_cluster.data) or (-1, -1)))
        yield Disk(path)
    finally:
        subprocess.run(["umount", str(path)], check=True)
        path.rmdir()


@pytest.fixture
def database(volatile_cluster: Cluster, disk: Disk) -> Iterator[Database]:
    """A database whose files, but not the log, lie on the small disk."""
    space = Identifier(f"disk_{uuid4().hex[:8]}")
    with superuser(volatile_cluster) as conn:
        conn.execute(SQL("create tablespace {} location {}").format(space, Literal(str(disk.path / "space"))))
        try:
            with fresh_database(volatile_cluster) as database:
                name = Identifier(str(psycopg.conninfo.conninfo_to_dict(database.dsn)["dbname"]))
                conn.execute(SQL("alter database {} set tablespace {}").format(name, space))
                yield database
                disk.clear()
                check_invariants(database)
        finally:
            conn.execute(SQL("drop tablespace {}").format(space))


async def test_what_a_full_disk_does_not_take_is_kept_and_written_when_there_is_room(
    stage: Stage, tasks: Registry, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    runs: Counter[int] = Counter()

    @tasks.task
    async def work(*, n: int) -> None:
        runs[n] += 1
        await asyncio.sleep(0.002)

    jobs = 4000
    for start in range(0, jobs, 1000):
        await stage.enqueue_many([work.job(n=n) for n in range(start, start + 1000)])
    worker = stage.worker(tasks, poll_interval=timedelta(seconds=0.2), batch=100)
    await worker.start()
    try:
        await stage.until(lambda: worker.counts["succeeded"] > 100)
        disk.fill()
        await stage.until(lambda: "the database is away" in caplog.text and "No space left on device" in caplog.text)
        await asyncio.sleep(0.3)
        started = runs.total()
        sessions = _sessions(stage)
        await asyncio.sleep(1.5)
        assert runs.total() == started  # nothing more is begun
        assert _sessions(stage) - sessions < 20

        disk.clear()
        await stage.until(lambda: worker.counts["succeeded"] >= jobs)
    finally:
        disk.clear()
        await worker.stop()

    assert set(runs.values()) == {1}
    assert len(runs) == jobs
    assert stage.one("select count(*) from mainspring.finished where state = 'succeeded'") == jobs


def _sessions(stage: Stage) -> int:
    return int(stage.one("select sessions from pg_stat_database where datname = current_database()"))
