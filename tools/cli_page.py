"""Prints docs/cli.md from the commands themselves: `python -m tools.cli_page > docs/cli.md`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from cyclopts import App
from cyclopts.argument import Argument

from mainspring.cli import app, guests
from mainspring.cli.exits import EXITS, USAGE_EXIT

INTRO = """\
# Commands

Printed from the commands by `python -m tools.cli_page`; a test compares. `mainspring --help` and `mainspring job show
--help` say the same in a terminal.

Every command prints a table or a few lines for people, and with `--json` one JSON document for machines. A row of a
table that has no room on the terminal takes several lines; in a pipe it is always one. Times are relative for people
("3 min ago") and absolute for machines. In both, what would drive a terminal is shown escaped, and what looks like a
secret is masked.
"""

ALIKE = "`up`, `kick`, `completion` and `alert rules` ask no database of yours, and have options of their own only."

MEANING = {
    0: "done",
    1: "something else went wrong, or you answered no; `doctor`, `audit verify`: there is a problem",
    2: "what was typed, or a setting, is wrong",
    3: "there is no such job, task, schedule, batch, limit, breaker, endpoint, token or user",
    4: "refused: the job's state, its key or your role does not allow it",
    5: "the database is away, or refused",
    6: "the schema is missing, too old or too new",
}
SHARED = ("--dsn", "--schema", "--app", "--as", "--json")


def page() -> str:
    """The whole page."""
    codes = sorted({0, USAGE_EXIT, *(code for _, code in EXITS)})
    assert codes == sorted(MEANING), "an exit code has no meaning"
    parts = [INTRO, "## Options that commands share", ALIKE, _table(_named(_arguments(app["job"]["list"]), SHARED))]
    parts += ["## Exit codes", _rows(("code", "meaning"), ((f"`{code}`", MEANING[code]) for code in codes))]
    for noun in sorted(name for name in app if not name.startswith("-") and name not in guests):
        parts += _noun(noun, app[noun])
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _noun(noun: str, group: App) -> Iterator[str]:
    verbs = [name for name in group if not name.startswith("-")]
    yield f"## mainspring {noun}"
    if not verbs:
        yield from _command([noun], group)
        return
    yield str(group.help)
    for verb in verbs:
        for path in [[verb, part] for part in group[verb] if not part.startswith("-")] or [[verb]]:
            yield f"### {' '.join(path)}"
            yield from _command([noun, *path], group[verb] if len(path) == 1 else group[verb][path[1]])


def _command(path: list[str], command: App) -> Iterator[str]:
    arguments = _arguments(command)
    typed = [_typed(argument) for argument in arguments if argument.index is not None]
    yield f"```text\n{' '.join(['mainspring', *path, *typed, '[options]'])}\n```"
    text, examples = _help(command)
    yield text
    if examples:
        yield "```bash\n" + "\n".join(examples) + "\n```"
    shared = SHARED if len(_named(arguments, SHARED)) == len(SHARED) else ()
    own = [argument for argument in arguments if argument.names[0] not in shared]
    if own:
        yield _table(own)


def _arguments(command: App) -> list[Argument]:
    return [argument for argument in command.assemble_argument_collection(parse_docstring=True) if argument.show]


def _named(arguments: list[Argument], names: tuple[str, ...]) -> list[Argument]:
    return [argument for argument in arguments if argument.names[0] in names]


def _help(command: App) -> tuple[str, list[str]]:
    """What the command does, and its examples: the indented lines."""
    lines = inspect.cleandoc(str(command.help)).partition("Args:")[0].splitlines()
    examples = [line.strip() for line in lines if line.startswith("    ") and line.strip()]
    return "\n".join(line for line in lines if not line.startswith("    ")).strip(), examples


def _typed(argument: Argument) -> str:
    name = argument.names[0].removeprefix("--").upper()
    return name if argument.required else f"[{name}]"


def _table(arguments: list[Argument]) -> str:
    return _rows(
        ("option", "meaning"),
        (
            (", ".join(f"`{name}`" for name in a.names), str(a.parameter.help or "").replace("|", r"\|"))
            for a in arguments
        ),
    )


def _rows(head: tuple[str, str], rows: Iterator[tuple[str, str]]) -> str:
    return "\n".join(f"| {left} | {right} |" for left, right in [head, ("---", "---"), *rows])


if __name__ == "__main__":
    print(page(), end="")
