"""What is wrong with the surroundings, and what to do about it: a pure function from facts to findings.

`mainspring.db.doctor` gathers the facts; each check looks at some of them and answers with findings.
"""

from __future__ import annotations

from mainspring.health.doctor import engine, surroundings
from mainspring.health.doctor.facts import Facts
from mainspring.health.doctor.finding import Finding, Level

__all__ = ["Facts", "Finding", "Level", "findings"]


def findings(facts: Facts) -> list[Finding]:
    """Every check, in the order in which a person would ask."""
    found = [finding for check in surroundings.SURROUNDINGS_CHECKS for finding in check(facts)]
    if facts.engine is not None:
        found += [finding for look in engine.ENGINE_CHECKS for finding in look(facts.engine)]
    if facts.tickets is not None:
        found += engine.tickets(facts.tickets)
    return found
