"""Install the wheels as a stranger would, apart from the checkout, and run the examples with them.

Builds both wheels; installs the engine alone into a fresh environment, extra by extra; runs examples/hello.py with it;
then adds the applications. At last: both resolve for the Pythons that they claim, and mypy passes for each.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from mainspring.embedded import Cluster

ROOT = Path(__file__).parent.parent
UV = shutil.which("uv") or str(ROOT / ".uv" / "bin" / "uv")
NEWER = ("3.12", "3.13", "3.14")  # than the one that runs all tests
CORE = {"cronsim", "mainspring", "msgspec", "psycopg", "psycopg-binary", "psycopg-pool", "typing-extensions"}
ENQUEUE = "from hello import app, greet; print(app.client().enqueue(greet.job(name='Ada')).answer)"
RUN = "from hello import app, greet; print(app.run_due().succeeded > 0)"


class Environment:
    """A fresh environment in a folder of its own, and what is typed there."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self.folder, self.bin = folder, folder / "venv" / "bin"
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        self._environment |= {"MAINSPRING_DSN": dsn, "NO_COLOR": "1", "PATH": f"{self.bin}:{os.environ['PATH']}"}
        self._run([UV, "venv", "--quiet", "--python", sys.executable, "venv"])

    def install(self, *what: str) -> None:
        """Install wheels with their extras, as pip would."""
        self._run([UV, "pip", "install", "--quiet", "--python", str(self.bin / "python"), *what])
        print(f"installed {', '.join(Path(name).name for name in what)}: {self.size():.1f} MB", flush=True)

    def packages(self) -> set[str]:
        """What is installed."""
        listed = self._run([UV, "pip", "list", "--quiet", "--format", "freeze", "--python", str(self.bin / "python")])
        return {line.partition("==")[0].partition(" @")[0] for line in listed.stdout.split()}

    def size(self) -> float:
        """How much of the disk it takes, in MB, without what Python compiles."""
        files = (file for file in self.folder.glob("venv/lib/*/site-packages/**/*") if file.suffix != ".pyc")
        return sum(file.stat().st_size for file in files if file.is_file()) / 1e6

    def type(self, *command: str, answers: str, code: int = 0, lines: int | None = None) -> None:
        """Type a command, and see that it says what it should."""
        done = self._run([str(self.bin / command[0]), *command[1:]], code)
        said = done.stdout + done.stderr
        print(f"$ {' '.join(command)}\n  {said.strip().splitlines()[0]}", flush=True)
        if answers not in said or (lines is not None and said.count("\n") != lines):
            sys.exit(f"examples: expected {answers!r} in\n{said}")

    def _run(self, command: Sequence[str], code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command, cwd=self.folder, env=self._environment, capture_output=True, text=True, check=False
        )
        if done.returncode != code:
            sys.exit(f"examples: {' '.join(command)} ended with {done.returncode}\n{done.stdout}{done.stderr}")
        return done


def built() -> tuple[str, str]:
    """Both wheels, and that each can be built from what would be published of it."""
    place = ROOT / "build" / "wheels"
    shutil.rmtree(place, ignore_errors=True)
    for project in (ROOT, ROOT / "apps"):
        subprocess.run([UV, "build", "--quiet", "--out-dir", str(place)], cwd=project, check=True)
    [engine], [apps] = place.glob("mainspring-*.whl"), place.glob("mainspring_apps-*.whl")
    return str(engine), str(apps)


def tried(engine: str, apps: str) -> None:
    """Install and use them, beginning with the least."""
    with tempfile.TemporaryDirectory(prefix="mainspring-examples-") as folder:
        cluster = Cluster(Path(folder) / "postgres")
        cluster.start()
        try:
            there = Environment(Path(folder), cluster.dsn())
            shutil.copy(ROOT / "examples" / "hello.py", folder)
            there.install(engine)
            if (packages := there.packages()) != CORE:
                sys.exit(f"examples: the engine alone brings {sorted(packages)}")
            there.type("mainspring", "job", "list", answers="pip install 'mainspring[cli]'", code=2, lines=1)
            there.install(f"{engine}[cli]")
            there.type("mainspring", "--version", answers="0.", lines=1)
            there.type("mainspring", "jobs", answers='Did you mean "job"?', code=2, lines=1)
            there.type("mainspring", "schema", "migrate", answers="")
            there.type("python", "-c", ENQUEUE, answers="created", lines=1)
            wants = "pip install 'mainspring[worker]'"
            there.type("mainspring", "run-due", "--app", "hello:app", answers=wants, code=2, lines=1)
            there.install(f"{engine}[worker]")
            there.type("python", "-c", RUN, answers="True", lines=1)
            there.type("mainspring", "job", "list", answers="succeeded")
            there.install(f"{engine}[up]", apps)
            there.type("mainspring", "staffing", "--help", answers="Usage: mainspring staffing COMMAND")
            there.type("mainspring", "simulate", "staffing", "--from", "2026-03-02", "--for", "1d", answers="attempts")
        finally:
            cluster.stop()


def resolved(engine: str, apps: str) -> None:
    """Everything that they ask for has wheels for each Python that they claim."""
    wanted = f"mainspring[all] @ file://{engine}\nmainspring-apps @ file://{apps}\n"
    for version in NEWER:
        command = [UV, "pip", "compile", "--quiet", "--only-binary", ":all:", "--python-version", version, "-"]
        done = subprocess.run(command, input=wanted, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"examples: they do not resolve for Python {version}\n{done.stderr}")
        print(f"Python {version}: {done.stdout.count('==')} libraries resolve", flush=True)


def checked() -> None:
    """Types hold for the newer Pythons as well."""
    for version in NEWER:
        command = [sys.executable, "-m", "mypy", "--python-version", version, "src", "apps", "examples"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"examples: types do not hold for Python {version}\n{done.stdout}")
        print(f"Python {version}: {done.stdout.strip()}", flush=True)


def main() -> None:
    wheels = built()
    tried(*wheels)
    resolved(*wheels)
    checked()


if __name__ == "__main__":
    main()
