"""The transcript in docs/guides/dead-letters.md: a newcomer types it, and sees what the page shows."""

from __future__ import annotations

import re
import shlex

import pytest
from tests.cli.conftest import Cli, cli
from tests.databases import Database
from tests.docs.pages import ROOT, blocks

from mainspring import example
from mainspring.db.schema.migrate import migrate
from mainspring.worker import Worker

__all__ = ["cli"]  # a fixture
PAGE = ROOT / "docs" / "guides" / "dead-letters.md"
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def transcript() -> list[tuple[str, str]]:
    """Each command of the page's first section, with what it prints."""
    end = PAGE.read_text().split("\n## Many at once\n")[0].count("\n")
    found = [block for block in blocks(PAGE) if block.line < end]
    assert [block.language for block in found] == ["bash", "text"] * (len(found) // 2)
    return [(found[n].code.strip(), found[n + 1].code) for n in range(0, len(found), 2)]


def stable(text: str, ids: dict[str, str]) -> list[str]:
    """The lines without what differs from run to run: ids by their order, instants, widths of columns."""
    text = UUID.sub(lambda match: ids.setdefault(match[0], f"<{len(ids)}>"), text)
    text = re.sub(r"\b(?:now|\d+ \w+ ago)\b", "<then>", text)
    return [" ".join(line.split()) for line in text.splitlines() if line.strip("─ ")]


@pytest.mark.anyio
async def test_a_newcomer_finds_explains_and_repairs_a_dead_job_in_six_commands(cli: Cli, database: Database) -> None:
    with database.connect() as conn:
        migrate(conn, line=example.MIGRATIONS)
    shown: dict[str, str] = {}  # ids on the page, ids of this run: both by the order of their appearance
    real: dict[str, str] = {}
    commands = transcript()
    assert len(commands) <= 6

    for command, output in commands:
        words = [
            UUID.sub(lambda match: {v: k for k, v in real.items()}[shown[match[0]]], w) for w in shlex.split(command)
        ]
        answer = cli(*words[1:])
        assert (words[0], answer.code, answer.err) == ("mainspring", 0, "")
        lines = iter(stable(answer.out, real))
        for line in stable(output, shown):
            assert line == "…" or line in lines, f"{command}: {line!r} is not printed, or not there"
        await Worker(database.dsn, example.tasks, config=example.app.config).drain()  # `mainspring up` runs one

    with database.connect() as conn:
        assert conn.execute("select order_id, cents from mainspring.shop_order").fetchall() == [(7, 1250)]
        assert conn.execute("select count(*) from mainspring.dead_letters").fetchone() == (0,)
