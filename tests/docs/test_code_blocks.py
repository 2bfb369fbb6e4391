"""Every code block that people read is run: Python and SQL on a real database, commands by their help."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.databases import Database
from tests.docs.pages import LANGUAGES, PAGES, ROOT, Block, blocks, name

import mainspring as ms
from mainspring.cli import main

RUNNABLE = [page for page in PAGES if any(block.language in {"python", "sql"} for block in blocks(page))]
COMMANDS = [block for page in PAGES for block in blocks(page) if block.language in {"bash", "ini", "dockerfile"}]
TARGETS = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
#: Programs of the reader's own machine.
FOREIGN = {"kill", "export", "source", "python3", "pip"}


def run_page(page: Path, database: Database, module: ModuleType) -> dict[str, Any]:
    """Run the blocks of a page in order: all its Python in one module, all its SQL in one database."""
    for block in blocks(page):
        if block.language == "python":
            code = "\n" * (block.line - 1) + block.code  # so that a traceback names the line of the page
            exec(compile(code, name(page), "exec"), module.__dict__)
        elif block.language == "sql":
            with database.connect() as conn:
                conn.execute(block.code.encode())
    return module.__dict__


@pytest.fixture
def shop(database: Database, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module that a page writes, with the database where its readers have theirs."""
    module = ModuleType("shop")
    monkeypatch.setitem(sys.modules, "shop", module)
    monkeypatch.setenv("MAINSPRING_DSN", database.dsn)
    monkeypatch.setenv("STRIPE_API_KEY", "sk_test_1")
    return module


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_says_its_language(page: Path) -> None:
    fences = sum(line.lstrip().startswith("```") for line in page.read_text().splitlines())
    found = blocks(page)

    assert fences == 2 * len(found)
    assert [str(block) for block in found if block.language not in LANGUAGES] == []


@pytest.mark.parametrize("page", RUNNABLE, ids=name)
def test_code_on_the_page_runs(page: Path, database: Database, shop: ModuleType) -> None:
    run_page(page, database, shop)


def test_jobs_that_the_readme_enqueues_run(database: Database, shop: ModuleType) -> None:
    app: ms.App = run_page(ROOT / "README.md", database, shop)["app"]

    asyncio.run(_drain(app))

    with app.client() as client, database.connect() as conn:
        states = {job.task: job.state for job in client.jobs()}
        mails = conn.execute("select array_agg(order_id) from shop.mail").fetchone()
    assert states == {"send_receipt": "succeeded", "ask_for_review": "scheduled"}
    assert mails == ([7, 7],)  # one by Python, one by SQL


async def _drain(app: ms.App) -> None:
    await app.worker().drain()


@pytest.mark.parametrize("block", COMMANDS, ids=str)
def test_commands_exist_with_their_options(block: Block, capsys: pytest.CaptureFixture[str]) -> None:
    for line in command_lines(block):
        words = shlex.split(re.sub(r'^eval "\$\((.*)\)"$', r"\1", line), comments=True)  # what a shell takes over
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words = words[1:]
        if not words:
            continue
        match words[0].rpartition(".venv/bin/")[2]:
            case "make":
                target, *options = words[1:]
                assert target in TARGETS, line
                for option in options:
                    assert option.startswith("ARGS="), line
                    if target == "up":
                        check_command("up", *shlex.split(option.removeprefix("ARGS=")), line=line, capsys=capsys)
            case "mainspring":
                check_command(*words[1:], line=line, capsys=capsys)
            case program:
                assert program in FOREIGN, line


def command_lines(block: Block) -> list[str]:
    """The commands of a block: of a systemd unit what it starts, of a container what it runs."""
    match block.language:
        case "ini":
            return re.findall(r"^ExecStart=(.*)$", block.code, re.MULTILINE)
        case "dockerfile":
            return [shlex.join(json.loads(command)) for command in re.findall(r"^CMD (.*)$", block.code, re.MULTILINE)]
        case _:
            return block.code.splitlines()


def check_command(*words: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Ask the command for its help, and look there for every option of the line."""
    path = list(words[:1])
    if path and path[0] not in {"up", "top", "doctor", "simulate", "completion", "run-due", "serve", "kick"}:
        nested = path == ["staffing"] or (path == ["webhook"] and words[1] != "test")
        path += words[1 : 3 if nested else 2]  # a noun of a noun
    assert main([*path, "--help"]) == 0, line
    help_text = capsys.readouterr().out
    assert f"Usage: mainspring {' '.join(path)} " in help_text, line
    for word in words:
        if word.startswith("-"):
            assert re.search(rf"(?<![\w-]){re.escape(word.partition('=')[0])}(?![\w-])", help_text), f"{word}: {line}"
