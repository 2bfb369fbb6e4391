"""The embedded PostgreSQL: it starts, stops, survives, and never runs as root or with a superuser's login."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from tests.databases import RunClusters

from mainspring.embedded import VOLATILE, Cluster, find_binaries, places
from mainspring.errors import ConfigurationError


@pytest.fixture(scope="module")
def cluster(run: RunClusters, worker_id: str) -> Iterator[Cluster]:
    """One for this file, because its tests stop and kill it; stopped, until a test starts it."""
    cluster = run.cluster(f"memory/embedded-{worker_id}", settings=VOLATILE)
    cluster.stop()
    yield cluster
    cluster.remove()


@pytest.fixture
def running(cluster: Cluster) -> Cluster:
    cluster.start()
    return cluster


@pytest.fixture
def private(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory that only we may enter, and an empty one in place of the shared one."""
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryDirectory() as shared:
        monkeypatch.setattr(places, "SHARED_FOLDER", Path(shared))
        yield Path(home)


def select(cluster: Cluster, query: str, *, user: str = "mainspring") -> object:
    with psycopg.connect(cluster.dsn(user=user)) as conn:
        row = conn.execute(query.encode()).fetchone()
    return row[0] if row else None


def write(cluster: Cluster, table: str) -> None:
    with psycopg.connect(cluster.dsn()) as conn:
        conn.execute(f"drop table if exists {table}; create table {table} as select 42 as answer".encode())


def test_server_does_not_know_the_secrets_of_whoever_starts_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.stop()
    monkeypatch.setenv("STRIPE_API_KEY", "sk_live_canary")
    cluster.start()

    assert "sk_live_canary" not in Path(f"/proc/{cluster.pid}/environ").read_text(errors="replace")
    assert select(cluster, "select 1") == 1


def test_login_role_is_no_superuser_and_owns_its_database(running: Cluster) -> None:
    assert select(running, "select current_user") == "mainspring"
    assert select(running, "select rolsuper from pg_roles where rolname = current_user") is False
    assert select(running, "select rolcreatedb from pg_roles where rolname = current_user") is True
    assert select(running, "select datdba::regrole::text from pg_database where datname = 'mainspring'") == "mainspring"
    assert select(running, "select rolsuper from pg_roles where rolname = current_user", user="postgres") is True


def test_server_listens_on_its_socket_only(running: Cluster) -> None:
    assert select(running, "select current_setting('listen_addresses')") == ""
    assert running.socket_dir.stat().st_mode & 0o077 == 0


def test_server_never_runs_as_root(running: Cluster) -> None:
    assert Path(f"/proc/{running.pid}").stat().st_uid != 0


def test_server_is_not_in_our_process_group(running: Cluster) -> None:
    assert running.pid is not None
    assert os.getsid(running.pid) != os.getsid(0)


def test_data_survive_a_restart(running: Cluster) -> None:
    write(running, "restarted")

    running.restart()

    assert select(running, "select answer from restarted") == 42


def test_killed_server_recovers_what_was_committed(durable_cluster: Cluster) -> None:
    write(durable_cluster, "crashed")
    session = psycopg.connect(durable_cluster.dsn())

    durable_cluster.kill()

    assert not durable_cluster.running
    with pytest.raises(psycopg.OperationalError):
        session.execute("select 1")
    session.close()
    assert durable_cluster.start()
    assert select(durable_cluster, "select answer from crashed") == 42


def test_sessions_that_outlive_a_killed_postmaster_do_not_prevent_a_start(running: Cluster) -> None:
    assert running.pid is not None
    with psycopg.connect(running.dsn()) as session, ThreadPoolExecutor() as pool:
        session.execute("set statement_timeout = '10s'")
        busy = pool.submit(session.execute, "do $$ begin loop end loop; end $$")
        while select(running, "select state from pg_stat_activity where query like 'do %'") != "active":
            time.sleep(0.01)
        os.kill(running.pid, signal.SIGKILL)

        assert running.start()

        assert isinstance(busy.exception(), psycopg.OperationalError)


def test_lock_of_a_number_that_another_process_has_by_now_is_ignored(running: Cluster) -> None:
    running.kill()
    lock = running.data / "postmaster.pid"
    first, rest = lock.read_text().split("\n", 1)
    lock.write_text(f"{os.getpid()}\n{rest}")

    assert first != str(os.getpid())
    assert not running.running
    assert running.start()


def test_second_start_finds_the_first_server(running: Cluster) -> None:
    other = Cluster(running.path)

    assert not other.start()

    assert other.pid == running.pid
    assert other.dsn() == running.dsn()


def test_starts_at_the_same_time_make_one_server(cluster: Cluster) -> None:
    cluster.stop()

    with ThreadPoolExecutor(4) as pool:
        launched = list(pool.map(lambda _: Cluster(cluster.path, settings=VOLATILE).start(), range(4)))

    assert sorted(launched) == [False, False, False, True]


def test_context_stops_only_what_it_started(cluster: Cluster) -> None:
    cluster.stop()

    with Cluster(cluster.path, settings=VOLATILE) as first:
        with Cluster(cluster.path):
            pass
        assert first.running

    assert not first.running


def test_stop_without_a_server_is_harmless(running: Cluster, private: Path) -> None:
    running.stop()
    running.stop()
    Cluster(private / "never").stop()
    Cluster(private / "never").kill()

    assert not running.running


def test_database_is_created_once(running: Cluster) -> None:
    running.ensure_database("Twice, quoted")
    running.ensure_database("Twice, quoted")

    with psycopg.connect(running.dsn("Twice, quoted")) as conn:
        assert conn.info.dbname == "Twice, quoted"


def test_long_path_gets_a_short_socket_directory_of_our_own(run: RunClusters) -> None:
    cluster = Cluster(run.path / "memory" / ("long" * 25), settings=VOLATILE)
    try:
        with cluster:
            assert select(cluster, "select 1") == 1
            assert len(str(cluster.socket_dir)) < 85
            assert cluster.socket_dir.stat().st_mode & 0o077 == 0
    finally:
        cluster.remove()
    assert not cluster.socket_dir.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a home that the server's account cannot enter")
def test_server_of_root_starts_below_a_private_home(private: Path) -> None:
    binaries = find_binaries(18)
    wheel = binaries.parent.parent
    for part in (binaries.parent.relative_to(wheel.parent), f"{wheel.name}.libs"):
        shutil.copytree(wheel.parent / part, private / "site-packages" / part)
    own_binaries = private / "site-packages" / binaries.relative_to(wheel.parent)
    cluster = Cluster(private / "clone" / "data", settings=VOLATILE, bin_dir=own_binaries)

    with cluster:
        write(cluster, "kept")
        cluster.restart()

        assert select(cluster, "select answer from kept") == 42
        assert private.stat().st_mode & 0o077 == 0
        assert (cluster.path / "data").readlink() == cluster.data
        assert cluster.data.is_relative_to(places.SHARED_FOLDER)

    cluster.remove()
    assert not cluster.data.parent.exists()


def test_missing_binaries_are_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match=r"pip install 'mainspring\[embedded\]'"):
        Cluster(tmp_path, bin_dir=tmp_path / "nowhere").start()

    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match=r"pip install 'mainspring\[embedded\]'"):
        Cluster(tmp_path).start()


def test_failed_start_shows_the_end_of_the_log(cluster: Cluster) -> None:
    cluster.stop()

    with pytest.raises(ConfigurationError, match='invalid value for parameter "shared_buffers"'):
        Cluster(cluster.path, settings={"shared_buffers": "plenty"}).start()
