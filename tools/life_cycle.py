"""Prints docs/life-cycle.md from the life-cycle table: `python -m tools.life_cycle > docs/life-cycle.md`."""

from __future__ import annotations

from mainspring.states import TRANSITIONS, State

INTRO = """\
# The life cycle of a job

Which verb moves a job from which state to which; what is not here cannot happen. Printed from
`mainspring.states.TRANSITIONS` by `python -m tools.life_cycle`; a test compares the two, and another puts
a job in every state and tries every verb on it. `scheduled` and `retrying` become `ready` by the clock alone.

The word is what logs, counts, time lines and the history of attempts call a job, or an attempt, to which that was
done. The events are told to observers, or stand on the audit trail, or both. `job.started` comes when the handler
is entered; a rescue that ends its job tells `job.deadlettered` or `job.cancelled` as well. A job that is deferred or
released before its handler was entered leaves nothing on the trail.
"""


def diagram() -> str:
    """The table as a Mermaid state diagram: one arrow for all verbs between two states."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for verb, transition in TRANSITIONS.items():
        for source in _ordered(transition.before):
            for result in _ordered(transition.after):
                if source != result:  # moved in time, not in state
                    arrows.setdefault((source or "[*]", result or "[*]"), []).append(verb)
    lines = [f"    {source} --> {result}: {', '.join(verbs)}" for (source, result), verbs in arrows.items()]
    return "\n".join(["stateDiagram-v2", *lines])


def table() -> str:
    """The table itself."""
    rows = ["| verb | from | to | word | events |", "| --- | --- | --- | --- | --- |"]
    for verb, t in TRANSITIONS.items():
        events = ", ".join(f"`{event}`" for event in t.events)
        rows.append(f"| {verb} | {_listed(t.before)} | {_listed(t.after)} | {t.word} | {events} |")
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
