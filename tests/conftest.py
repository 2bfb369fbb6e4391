"""What every test may ask for: real PostgreSQL clusters, and a fresh migrated database with virtual time."""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest
from tests import costs, rule_report, sampling
from tests.databases import Database, RunClusters, check_tickets, fresh_database, server
from tests.secured import Secured, secure_template

from mainspring.embedded import VOLATILE, Cluster, find_binaries
from mainspring.observe import BatchHandler
from mainspring.testing import Harness
from mainspring.testing.plugin import NEW, run_of
from mainspring.virtual.databases import DATABASE_COUNTS, Preparation


def pytest_configure(config: pytest.Config) -> None:
    sampling.ask(config)
    costs.record(config)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell starts what runs in its background deaf to Ctrl-C
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in [name for name in os.environ if name.startswith("MAINSPRING_") and name != rule_report.ENV]:
        del os.environ[name]
    os.environ["MAINSPRING_MAINTENANCE"] = "off"  # real workers would fire it between the jobs that a test counts


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Thousands of collected tests are not garbage: not to look through them saves 6 % of the CPU time of the run.

    While they are collected it saves a third in the first run of a clone, which compiles them (12 s of CPU instead of
    18 in each process), and nothing later (6 s).
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Draw some, and begin with those that take longest: at the end of a run all processes have something to do."""
    known = costs.read(costs.FILE.read_text())
    if not sampling.wants_all():
        taken = set(sampling.draw(items, config.getoption("randomly_seed", 0), known))
        config.hook.pytest_deselected(items=[item for item in items if item not in taken])
        items[:] = [item for item in items if item in taken]
    items.sort(key=lambda item: -known.get(sampling.test_of(item), 0.0))


def pytest_sessionfinish(session: pytest.Session) -> None:
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["databases"] = dict(DATABASE_COUNTS)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Each process of the run has told how many databases it has made."""
    DATABASE_COUNTS.update(getattr(node, "workeroutput", {}).get("databases", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if DATABASE_COUNTS:
        counts = ", ".join(f"{number:,} {what}" for what, number in DATABASE_COUNTS.most_common())
        terminalreporter.write_line(f"databases: {counts}")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """For `-n auto`: two more than there are cores, because tests wait for PostgreSQL, for processes and for time.

    With one more, two idle cores had nothing to do for a third of the run.
    """
    return None if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else len(os.sched_getaffinity(0)) + 2


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    """A command that is run in this process takes over its log: given back, or later tests hear of a closed stream."""
    level = logging.root.level
    yield
    logging.root.setLevel(level)
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith("mainspring.") and isinstance(logger, logging.Logger):
            logger.disabled = False
            logger.setLevel(logging.NOTSET)
    for handler in [
        handler for handler in logging.root.handlers if type(handler) in (logging.StreamHandler, BatchHandler)
    ]:
        logging.root.removeHandler(handler)


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": False}


@pytest.fixture(scope="session")
def run(pytestconfig: pytest.Config) -> RunClusters:
    return run_of(pytestconfig)


@pytest.fixture(scope="session")
def volatile_cluster(run: RunClusters) -> Iterator[Cluster]:
    """PostgreSQL 18, fast and careless, shared by all processes of the run: leave it running."""
    cluster = run.cluster("memory/18", settings=VOLATILE)
    with server(cluster).connected():
        yield cluster


@pytest.fixture
def durable_cluster(run: RunClusters, worker_id: str) -> Cluster:
    """PostgreSQL 18 that writes durably, one for each process of the run: a test may kill it."""
    return run.cluster(f"disk/18-{worker_id}")


@pytest.fixture(scope="session")
def cluster15(run: RunClusters) -> Iterator[Cluster]:
    """PostgreSQL 15, the oldest we support, from Debian's packages."""
    if not find_binaries(15).is_dir():
        reason = "PostgreSQL 15 is not installed: run apt-get install postgresql-15"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    cluster = run.cluster("memory/15", version=15, settings=VOLATILE)
    with server(cluster).connected():
        yield cluster


@pytest.fixture(scope="session")
def own_tables() -> Sequence[str]:
    """SQL for tables of the tests' own, run once: who makes one in a test uses up its database. Override it."""
    return ()


@pytest.fixture
def database15(cluster15: Cluster, request: pytest.FixtureRequest) -> Iterator[Database]:
    with fresh_database(cluster15, reuse=may_reuse(request), check=check_tickets) as database:
        yield database


@pytest.fixture
def database(
    volatile_cluster: Cluster, own_tables: Sequence[str], request: pytest.FixtureRequest
) -> Iterator[Database]:
    reuse = may_reuse(request)
    with fresh_database(volatile_cluster, prepare=own_tables, reuse=reuse, check=check_tickets) as database:
        yield database


@pytest.fixture
def secured(volatile_cluster: Cluster, own_tables: Sequence[str], request: pytest.FixtureRequest) -> Iterator[Secured]:
    """A secured database with a login of each role, and without jobs."""
    prepare: list[Preparation] = [*own_tables, secure_template]
    with (
        fresh_database(volatile_cluster, prepare=prepare, reuse=may_reuse(request)) as database,
        closing(Secured(database)) as secured,
    ):
        yield secured


@pytest.fixture
def mainspring(mainspring: Harness) -> Iterator[Harness]:
    """What users have, with our invariants."""
    yield mainspring
    check_tickets(mainspring.conn)


def may_reuse(request: pytest.FixtureRequest) -> bool:
    return request.node.get_closest_marker(NEW) is None


def check_invariants(database: Database) -> None:
    """What must hold in every database when its test is over, whatever the test did."""
    with database.connect() as conn:
        check_tickets(conn)
