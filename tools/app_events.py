"""Prints the events of an application: `python -m tools.app_events staffing > docs/apps/staffing-events.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from tools.apps import APPS, AboutApp

from mainspring.declare.registry import ENGINE_REGISTRY


def page(name: str) -> str:
    """The whole page."""
    about = APPS[name]
    sections = (
        f"# {about.title}: events and tasks",
        f"What people can do to the [{about.noun}]({name}.md), and what it does by itself. Printed from the code by\n"
        f"`python -m tools.app_events {name}`; a test compares, and another tries every cell of the table.",
        "## Who may cause what",
        about.who,
        _table(_parts(about)),
        "## What each event does",
        f"Over HTTP each is a `POST` below `{about.site.base}`; `GET {about.site.base}` lists their fields.",
        _table(_events(about)),
        "## Tasks",
        "What runs by the clock, after an event or when a provider says something;\n"
        f"`mainspring task show NAME --app {name}` shows one with all its options.",
        _table(_tasks(about)),
    )
    return "\n\n".join(part.strip() for part in sections) + "\n"


def _parts(about: AboutApp) -> Iterator[list[str]]:
    yield ["event", *about.parts]
    for line, may in about.events.table.items():
        yield [f"`{line}`", *("yes" if part in may else "" for part in about.parts)]


def _events(about: AboutApp) -> Iterator[list[str]]:
    yield ["event", "about", "address", "what it does"]
    paths = {one.event: one.path.replace(":int}", "}") for one in about.site.endpoints}
    for name in dict.fromkeys(line.partition(" ")[0] for line in about.events.table):
        act = about.events.declared[name]
        first = about.subjects.get(list(act.__annotations__)[2], about.where)
        yield [f"`{name}`", first, f"`{paths[act]}`" if act in paths else "", (act.__doc__ or "").split("\n")[0]]


def _tasks(about: AboutApp) -> Iterator[list[str]]:
    yield ["task", "queue", "what it does"]
    ours = (task for task in about.app().registry if task.app != ENGINE_REGISTRY)
    for task in sorted(ours, key=lambda task: (task.queue, task.name)):
        yield [f"`{task.name}`", f"`{task.queue}`", (task.doc or "").split("\n")[0]]


def _table(rows: Iterator[list[str]]) -> str:
    head, *body = rows
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *body])


if __name__ == "__main__":
    print(page(sys.argv[1]), end="")
