"""The plugin in somebody's project: found by pytest, on a server of theirs, with their tables, in parallel."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from tests.databases import superuser
from tests.docs.pages import ROOT, blocks

from mainspring.embedded import Cluster
from mainspring.virtual.databases import DatabaseServer
from mainspring.virtual.run import RunClusters

SHOP = """
import mainspring as ms

tasks = ms.Registry("shop")
app = ms.App(tasks, dsn="postgresql://production.example/shop")


@tasks.task
async def pay(ctx: ms.Context, *, order: int) -> None:
    async with ctx.complete() as tx:
        await tx.execute("insert into payment values (%s)", [order])
"""
CONFTEST = """
import pytest


def add_column(conn):
    conn.execute("alter table payment add at timestamptz default mainspring.now()")


@pytest.fixture(scope="session")
def mainspring_migrations():
    return ["create table payment (order_id integer)", add_column]
"""
TESTS = """
import pytest
import shop


@pytest.mark.parametrize("order", range(4))
def test_each_test_has_its_own_database(mainspring, order):
    with shop.app.client() as client:
        client.enqueue(shop.pay.job(order=order).after(3600))
    mainspring.advance(hours=1)
    rows = mainspring.conn.execute("select order_id, at from payment").fetchall()
    assert rows == [(order, mainspring.now())]
"""
#: What pytest-django's fixture does.
DJANGO = """
import pytest


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def db(engine):
    import django
    from django.conf import settings
    from django.db import connections, transaction

    with engine.connect() as conn:
        info = conn.connection.driver_connection.info
        address = {"NAME": info.dbname, "USER": info.user, "HOST": info.host, "PORT": info.port}
    settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", **address}}, USE_TZ=True)
    django.setup()
    with transaction.atomic():
        yield
        transaction.set_rollback(True)
    connections.close_all()
"""


def run_pytest(folder: Path, *arguments: str, dsn: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environment |= {"MAINSPRING_TEST_DSN": dsn, "NO_COLOR": "1", "PYTHONPATH": str(folder)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def databases(cluster: Cluster, run: str) -> list[str]:
    with superuser(cluster) as conn:
        rows = conn.execute("select datname from pg_database where datname like %s", [f"mainspring%{run}%"])
        return [row[0] for row in rows]


def test_a_project_runs_on_its_own_server_in_parallel_and_leaves_nothing(
    tmp_path: Path, volatile_cluster: Cluster
) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_shop.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmainspring_app = shop:app\n")
    run = uuid4().hex

    said = run_pytest(tmp_path, "-n", "2", "--testrunuid", run, dsn=volatile_cluster.dsn("postgres"))

    assert "4 passed" in said
    left = sha256(run[:12].encode()).hexdigest()[:7]
    deadline = time.monotonic() + 60  # another run that leaves just now may be the one that drops ours
    while databases(volatile_cluster, left) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert databases(volatile_cluster, left) == []


def test_the_guide_s_tests_pass(tmp_path: Path, volatile_cluster: Cluster) -> None:
    code = [block.code for block in blocks(ROOT / "docs" / "guides" / "test.md") if block.language == "python"]
    (tmp_path / "test_shop.py").write_text("\n\n".join(code))
    (tmp_path / "conftest.py").write_text(DJANGO)

    said = run_pytest(tmp_path, dsn=volatile_cluster.dsn("postgres"))

    assert f"{sum(block.count('def test_') for block in code)} passed" in said


def test_what_a_killed_run_left_on_a_server_is_dropped_by_the_next(volatile_cluster: Cluster) -> None:
    dsn = volatile_cluster.dsn("postgres")
    killed = pytest.raises(psycopg.errors.AdminShutdown)
    with DatabaseServer.shared(dsn, uuid4().hex) as living, killed, DatabaseServer.shared(dsn, uuid4().hex) as dead:
        template, other = dead.template(), living.template()
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute(f'create database "mainspring_test_{dead.run}_left" template "{template}"'.encode())
            conn.execute(
                "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and objid = %s",
                [int(dead.run, 16)],
            )
        with DatabaseServer.shared(dsn, uuid4().hex):
            assert databases(volatile_cluster, dead.run) == []
            assert databases(volatile_cluster, living.run) == [other]


CHILD = """
import sys, time
from mainspring.virtual.run import RunClusters
from mainspring.embedded import VOLATILE

run = RunClusters.join("killed")
print(run.cluster("memory/18", settings=VOLATILE).pid, flush=True)
time.sleep(60)
"""


def runs(pid: int) -> bool:
    """Whether a process is there, and is more than a name that nobody has asked for."""
    with suppress(FileNotFoundError):
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    return False


def test_what_a_killed_run_left_is_removed_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(prefix="mainspring-killed-") as folder:
        Path(folder).chmod(0o755)  # for the account that runs PostgreSQL when we are root
        monkeypatch.setattr(tempfile, "tempdir", folder)
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD], stdout=subprocess.PIPE, env=os.environ | {"TMPDIR": folder}
        )
        assert child.stdout is not None
        with child.stdout:
            server = int(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        child.wait()
        assert runs(server), "PostgreSQL goes on"
        memory = Path(folder, "mainspring-tests-killed", "memory").resolve()

        RunClusters.join("next").leave()

        assert list(Path(folder).iterdir()) == []
        assert not memory.exists()
        assert not runs(server)


def test_the_processes_of_a_run_share_its_clusters_and_the_last_one_removes_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with tempfile.TemporaryDirectory(prefix="mainspring-shared-") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        first, second = RunClusters.join("one"), RunClusters.join("one")

        assert first.path == second.path
        first.leave()
        assert second.path.is_dir()
        second.leave()
        assert list(Path(folder).iterdir()) == []


def test_the_plugin_brings_nothing_heavy_until_a_fixture_is_used() -> None:
    script = "import mainspring.testing.plugin, sys; print(sorted({'psycopg', 'asyncio'} & set(sys.modules)))"

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
