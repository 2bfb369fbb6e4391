"""The pytest plugin: the fixture `mainspring`, and those that a test suite overrides.

pytest imports it wherever Mainspring is installed, so it imports nothing of the engine until a fixture is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from mainspring import App, Registry
    from mainspring.testing.harness import Harness
    from mainspring.virtual.databases import DatabaseServer, Preparation
    from mainspring.virtual.run import RunClusters

#: Fixtures for who tests against the sandbox. By its name: the kit itself does not need it.
pytest_plugins = ("mainspring_sandbox.plugin",)

DSN = "MAINSPRING_TEST_DSN"
NEW = "mainspring_new"
_RUN = pytest.StashKey["RunClusters"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """What pytest.ini or pyproject.toml may say."""
    parser.addini("mainspring_dsn", f"server to make test databases on; {DSN} wins; without either, the embedded one")
    parser.addini("mainspring_app", "the App or Registry whose jobs tests run, as `module:name`")


def pytest_configure(config: pytest.Config) -> None:
    """What tests may be marked with."""
    config.addinivalue_line("markers", f"{NEW}: give it a database that no test has used, not one made blank again")


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the embedded PostgreSQL, unless another process of the run still needs it."""
    if (run := config.stash.get(_RUN, None)) is not None:
        run.leave()


def run_name(config: pytest.Config) -> str:
    """What the processes of one pytest-xdist run have in common, or a name of our own."""
    return str(getattr(config, "workerinput", {}).get("testrunuid") or uuid4().hex)[:12]


def run_of(config: pytest.Config) -> RunClusters:
    """The run that this process belongs to."""
    from mainspring.virtual.run import RunClusters

    if _RUN not in config.stash:
        config.stash[_RUN] = RunClusters.join(run_name(config))
    return config.stash[_RUN]


@pytest.fixture(scope="session")
def mainspring_server(pytestconfig: pytest.Config) -> Iterator[DatabaseServer]:
    """The PostgreSQL on which test databases are made: the one named by settings, or the embedded one."""
    from mainspring.embedded import VOLATILE
    from mainspring.virtual.databases import DatabaseServer

    if dsn := os.environ.get(DSN) or pytestconfig.getini("mainspring_dsn"):
        with DatabaseServer.shared(dsn, run_name(pytestconfig)) as server:
            yield server
    else:
        with DatabaseServer.of(run_of(pytestconfig).cluster("memory/18", settings=VOLATILE)).connected() as server:
            yield server


@pytest.fixture(scope="session")
def mainspring_app(pytestconfig: pytest.Config) -> App | Registry | None:
    """Whose jobs are run: override it to return your App or Registry, or name it in the setting `mainspring_app`."""
    from mainspring.virtual.tasks import find

    name = pytestconfig.getini("mainspring_app")
    return find(name) if name else None


@pytest.fixture(scope="session")
def mainspring_migrations() -> Sequence[Preparation]:
    """What makes your own tables, once a run: override it to return SQL texts or functions of a connection."""
    return ()


@pytest.fixture
def mainspring(
    request: pytest.FixtureRequest,
    mainspring_server: DatabaseServer,
    mainspring_app: App | Registry | None,
    mainspring_migrations: Sequence[Preparation],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Harness]:
    """A fresh database with virtual time, and the verbs that a test needs; an App without a DSN finds it too.

    One that an earlier test has used is made blank again, or dropped; mark a test `mainspring_new` to have a new one.
    """
    from mainspring.app import App
    from mainspring.testing.harness import Harness
    from mainspring.virtual.tasks import DeclaredTasks

    schema = DeclaredTasks.by(mainspring_app).schema if mainspring_app is not None else "mainspring"
    lines = mainspring_app.migrations if isinstance(mainspring_app, App) else ()
    prepare, reuse = (*lines, *mainspring_migrations), request.node.get_closest_marker(NEW) is None
    with mainspring_server.fresh(schema=schema, prepare=prepare, reuse=reuse) as database:
        monkeypatch.setenv("MAINSPRING_DSN", database.dsn)
        if isinstance(mainspring_app, App):
            monkeypatch.setattr(mainspring_app, "_dsn", database.dsn)
        with Harness(database.dsn, mainspring_app) as harness:
            yield harness
        if isinstance(mainspring_app, App):
            mainspring_app.close()
