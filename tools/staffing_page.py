"""Prints docs/apps/staffing-events.md from the code: `python -m tools.staffing_page > docs/apps/staffing-events.md`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from mainspring.declare.registry import ENGINE_REGISTRY
from mainspring_apps.staffing.events import EVENTS
from mainspring_apps.staffing.market import Market
from mainspring_apps.staffing.people import SUBJECTS
from mainspring_apps.staffing.rules.parts import MAY, Part
from mainspring_apps.staffing.web import ENDPOINTS

INTRO = """\
# Staffing: events and tasks

What people can do to the [marketplace](staffing.md), and what it does by itself. Printed from the code by
`python -m tools.staffing_page`; a test compares, and another tries every cell of the table.
"""
WHO = """\
## Who may cause what

A part is played towards what the event is about: a Lending Admin is one of the company that lends the worker of this
booking, or of the company whose account, policy or worker it is; their like of another company has no part in it.
Whoever has none of the marked parts is refused with 403 before anything is written or locked. `SYSTEM` is the
marketplace itself, in a terminal.
"""
ADDRESSES = """\
## What each event does

Over HTTP each is a `POST` below `/staffing`; `GET /staffing` lists their fields.
"""
TASKS = """\
## Tasks

What runs by the clock, after an event or when a provider says something; `mainspring task show charge_week --app
staffing` shows one with all its options.
"""


def page() -> str:
    """The whole page."""
    sections = [INTRO, WHO, _table(_parts()), ADDRESSES, _table(_events()), TASKS, _table(_tasks())]
    return "\n\n".join(part.strip() for part in sections) + "\n"


def _parts() -> Iterator[list[str]]:
    parts = get_args(Part)
    yield ["event", *parts]
    for line, may in MAY.items():
        yield [f"`{line}`", *("yes" if part in may else "" for part in parts)]


def _events() -> Iterator[list[str]]:
    yield ["event", "about", "address", "what it does"]
    paths = {one.event: one.path.replace(":int}", "}") for one in ENDPOINTS}
    for name in dict.fromkeys(line.partition(" ")[0] for line in MAY):
        act = EVENTS.declared[name]
        about = SUBJECTS.get(list(act.__annotations__)[2], "the marketplace")
        yield [f"`{name}`", about, f"`{paths[act]}`" if act in paths else "", (act.__doc__ or "").split("\n")[0]]


def _tasks() -> Iterator[list[str]]:
    yield ["task", "queue", "what it does"]
    registry = Market({"STRIPE_WEBHOOK_SECRET": "whsec_none"}, maintenance=False).registry
    ours = (task for task in registry if task.app != ENGINE_REGISTRY)
    for task in sorted(ours, key=lambda task: (task.queue, task.name)):
        yield [f"`{task.name}`", f"`{task.queue}`", (task.doc or "").split("\n")[0]]


def _table(rows: Iterator[list[str]]) -> str:
    head, *body = rows
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *body])


if __name__ == "__main__":
    print(page(), end="")
