"""`mainspring completion`: a script that the shell takes, and that knows every command."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import redirect_stdout
from io import StringIO

import pytest
from tests.cli.conftest import Cli

from mainspring.cli import main


def complete(script: str, *words: str) -> set[str]:
    """What bash offers after these words."""
    asks = (
        f"COMP_WORDS=({' '.join(words)} ''); COMP_CWORD={len(words)}; _mainspring; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    done = subprocess.run(["bash"], input=f"{script}\n{asks}", capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.fixture(scope="module")
def script() -> str:
    """Made once: it imports every command."""
    out = StringIO()
    with redirect_stdout(out):
        assert main(["completion", "bash"]) == 0
    return out.getvalue()


def test_bash_accepts_the_script(script: str) -> None:
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_bash_completes_nouns_and_verbs(script: str) -> None:
    assert {"job", "dead", "queue", "worker", "schema", "top", "doctor"} <= complete(script, "mainspring")
    assert {"enqueue", "explain", "list", "show", "cancel", "retry"} <= complete(script, "mainspring", "job")
    assert {"bash", "zsh", "fish"} <= complete(script, "mainspring", "completion")


@pytest.mark.parametrize(("shell", "begins"), [("zsh", "#compdef mainspring"), ("fish", "# Fish completion")])
def test_other_shells_have_theirs(cli: Cli, shell: str, begins: str) -> None:
    answer = cli("completion", shell)
    assert answer.out.startswith(begins)
    assert "explain" in answer.out
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=answer.out, text=True, check=True)


def test_shell_that_is_unknown_is_refused(cli: Cli) -> None:
    answer = cli("completion", "tcsh")
    assert (answer.code, answer.out) == (2, "")
