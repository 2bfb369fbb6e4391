"""The two wheels, as others install them: what is in them, what they ask for, and what an engine alone can do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable
from email import message_from_string
from pathlib import Path
from typing import TypeAlias

import pytest
from tests.databases import Database
from tests.docs.pages import ROOT

import mainspring

LIBRARIES = Path(sysconfig.get_path("purelib"))
#: What a process needs that only enqueues, as folders and modules of site-packages.
CORE = (
    "cronsim",
    "psycopg",
    "psycopg_binary",
    "psycopg_binary.libs",
    "psycopg_pool",
    "msgspec",
    "typing_extensions.py",
)
ENQUEUE = """
import sys
import mainspring as ms

tasks = ms.Registry("shop")

@tasks.task
def greet(*, name: str) -> str:
    return f"Hello, {name}!"

rule = ms.daily("03:00")  # a module of tasks declares schedules, too
app = ms.App(tasks, dsn=sys.argv[1])
with app.client() as client:
    print(client.enqueue(greet.job(name="Ada")).answer)
"""  #: One line for each that needs an extra.
NEEDY = """
import mainspring as ms
from mainspring.errors import ConfigurationError

for line in (
    "ms.App(ms.Registry('shop'), dsn='host=x').worker()",
    "from mainspring.observe import Metrics",
    "from mainspring import web",
    "from mainspring_sandbox import Sandbox",
):
    try:
        exec(line)
    except ConfigurationError as error:
        print(error)
"""
TYPO = 'mainspring: Unknown command "jobs". Did you mean "job"? See `mainspring --help`.\n'

Run: TypeAlias = Callable[..., "subprocess.CompletedProcess[str]"]


def built(folder: Path, project: Path) -> Path:
    """Build a wheel and unpack it, which is all that an installer does with a pure one."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "wheels")]
    subprocess.run(command, cwd=project, check=True, capture_output=True)
    [wheel] = (folder / "wheels").glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(folder / "installed")
    return folder / "installed"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("engine"), ROOT)


@pytest.fixture(scope="module")
def apps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("apps"), ROOT / "apps")


def python(*folders: Path) -> Run:
    """An interpreter that finds what is in these folders, and nothing else but its own library."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("MAINSPRING", "PYTHON"))
        }
        environment |= {"PYTHONPATH": os.pathsep.join(map(str, folders)), "NO_COLOR": "1"}
        command = [sys.executable, "-S", *arguments]
        return subprocess.run(command, cwd=folders[0], env=environment, capture_output=True, text=True, check=False)

    return run


def linked(folder: Path, keep: Callable[[str], bool]) -> Path:
    """A folder with some of the libraries that are installed here."""
    folder.mkdir()
    for library in LIBRARIES.iterdir():
        if keep(library.name):
            (folder / library.name).symlink_to(library)
    return folder


@pytest.fixture
def core(engine: Path, tmp_path: Path) -> Run:
    """The engine with what it always brings."""
    return python(engine, linked(tmp_path / "core", CORE.__contains__))


@pytest.fixture
def full(engine: Path, tmp_path: Path) -> Run:
    """The engine with all that its extras bring, and no application."""
    return python(engine, linked(tmp_path / "full", lambda name: "mainspring" not in name))


def metadata(installed: Path) -> dict[str, list[str]]:
    [file] = installed.glob("*.dist-info/METADATA")
    said = message_from_string(file.read_text())
    return {name: [str(value) for value in said.get_all(name) or ()] for name in said.keys()}  # noqa: SIM118  # no dict


def packages(installed: Path) -> set[str]:
    return {place.name for place in installed.iterdir() if not place.name.endswith(".dist-info")}


def test_no_application_is_in_the_wheel_of_the_engine(engine: Path, apps: Path) -> None:
    [points] = engine.glob("*.dist-info/entry_points.txt")

    assert packages(engine) == {"mainspring", "mainspring_sandbox"}
    assert packages(apps) == {"mainspring_apps"}
    assert "mainspring.apps" not in points.read_text()
    assert "mainspring.commands" not in points.read_text()


def test_whoever_only_enqueues_installs_five_libraries(engine: Path) -> None:
    always = [said for said in metadata(engine)["Requires-Dist"] if "extra ==" not in said]

    assert [said.partition(">")[0] for said in sorted(always)] == [
        "cronsim", "msgspec", "psycopg-pool", "psycopg[binary]", "typing-extensions",
    ]  # fmt: skip


def test_both_are_of_one_version_and_ready_to_be_published(engine: Path, apps: Path) -> None:
    for said in (metadata(engine), metadata(apps)):
        assert said["Version"] == [mainspring.__version__]
        assert said["License-Expression"] == ["MIT"]
        assert said["License-File"] == ["LICENSE"]
        assert {f"Programming Language :: Python :: 3.{minor}" for minor in range(11, 15)} <= set(said["Classifier"])
        assert {url.partition(",")[0] for url in said["Project-URL"]} >= {"Documentation", "Issues", "Source"}
    assert any(said.startswith("mainspring[") for said in metadata(apps)["Requires-Dist"])
    assert (ROOT / "apps" / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


def test_a_process_with_the_core_alone_enqueues(core: Run, database: Database) -> None:
    done = core("-c", ENQUEUE, database.dsn)

    assert (done.stdout, done.stderr) == ("created\n", "")


def test_what_needs_an_extra_says_which(core: Run) -> None:
    done = core("-c", NEEDY)

    assert done.stdout.splitlines() == [
        "a worker needs an extra: pip install 'mainspring[worker]'",
        "metrics need an extra: pip install 'mainspring[metrics]'",
        "serving over HTTP needs an extra: pip install 'mainspring[web]'",
        "the sandbox needs an extra: pip install 'mainspring[sandbox]'",
    ], done.stderr


def test_the_command_without_its_extra_says_so_in_one_line(core: Run) -> None:
    done = core("-m", "mainspring", "job", "list")

    assert done.stderr == "mainspring: the command line needs an extra: pip install 'mainspring[cli]'\n"
    assert done.returncode == 2


def test_a_typo_is_answered_in_one_line_where_no_application_is_installed(full: Run) -> None:
    done = full("-m", "mainspring", "jobs")

    assert (done.returncode, done.stdout, done.stderr) == (2, "", TYPO)


def test_a_typo_is_answered_in_one_line_where_an_application_cannot_be_imported(
    engine: Path, apps: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(apps, broken, ignore=shutil.ignore_patterns("mainspring_apps"))  # its entry points are left
    run = python(engine, broken, linked(tmp_path / "full", lambda name: "mainspring" not in name))

    done = run("-m", "mainspring", "jobs")

    assert (done.returncode, done.stdout, done.stderr) == (2, "", TYPO)


def test_the_command_says_its_version(full: Run) -> None:
    assert full("-m", "mainspring", "--version").stdout == f"{mainspring.__version__}\n"


def test_a_first_job_runs_with_the_engine_alone(full: Run, database: Database) -> None:
    done = full("-c", f"{ENQUEUE}    print(app.run_due().succeeded >= 1)", database.dsn)

    assert (done.stdout, done.stderr) == ("created\nTrue\n", "")


def test_an_application_brings_its_command(engine: Path, apps: Path, tmp_path: Path) -> None:
    everything = python(engine, apps, linked(tmp_path / "all", lambda name: "mainspring" not in name))

    done = everything("-m", "mainspring", "staffing", "--help")

    assert done.stdout.startswith("Usage: mainspring staffing COMMAND")
