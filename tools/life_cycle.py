"""Prints docs/life-cycle.md from the life-cycle table: `python -m tools.life_cycle > docs/life-cycle.md`."""

from __future__ import annotations

from mainspring.states import TRANSITIONS, State

INTRO = """\
# The life cycle of a job

Which verb moves a job from which state to which; what is not here cannot happen. Printed from
`mainspring.states.TRANSITIONS` by `python -m tools.life_cycle`; a test compares the two, and another puts
a job in every state and tries every verb on it. `scheduled` and `retrying` become `ready` by the clock alone.
"""


def diagram() -> str:
    """The table as a Mermaid state diagram: one arrow for all verbs between two states."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for verb, (sources, results) in TRANSITIONS.items():
        for source in _ordered(sources):
            for result in _ordered(results):
                if source != result:  # moved in time, not in state
                    arrows.setdefault((source or "[*]", result or "[*]"), []).append(verb)
    lines = [f"    {source} --> {result}: {', '.join(verbs)}" for (source, result), verbs in arrows.items()]
    return "\n".join(["stateDiagram-v2", *lines])


def table() -> str:
    """The table itself."""
    rows = ["| verb | from | to |", "| --- | --- | --- |"]
    for verb, (sources, results) in TRANSITIONS.items():
        rows.append(f"| {verb} | {_listed(sources)} | {_listed(results)} |")
    return "\n".join(rows)


def page() -> str:
    """The whole page."""
    return f"{INTRO}\n```mermaid\n{diagram()}\n```\n\n{table()}\n"


def _ordered(states: frozenset[State | None]) -> list[State | None]:
    return [state for state in (None, *State) if state in states]


def _listed(states: frozenset[State | None]) -> str:
    return ", ".join(f"`{state}`" if state else "(no row)" for state in _ordered(states))


if __name__ == "__main__":
    print(page(), end="")
