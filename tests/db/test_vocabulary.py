"""SQL has the words of the life-cycle table: what it records, what its checks let in, what its statements look for."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from tests.db.engine import Engine
from tests.db.test_life_cycle import VERBS, put

import mainspring.db
from mainspring.states import FINISHED, LEAVES_ATTEMPT, REPEATS, SETTLES, TRANSITIONS, WORDS, State

FILES = sorted((Path(mainspring.db.__file__).parent).rglob("*.sql"))
OUTCOMES = {WORDS[verb] for verb in LEAVES_ATTEMPT}
#: What stands on the trail of a job although it moves no job, by whoever writes it.
BESIDES = {
    "job.cancel_too_late", "job.crash_taken_back", "job.discarded", "job.failed_late", "job.fixed_forward",
    "job.prioritized", "job.replaced", "job.split",
}  # fmt: skip


def trail(engine: Engine, job: object) -> Counter[str]:
    return Counter(event for (event,) in engine.rows("select event from mainspring.trail where job_id = %s", job))


def outcomes(engine: Engine, job: object) -> Counter[str]:
    rows = engine.rows("select outcome from mainspring.attempts where job_id = %s and outcome <> 'running'", job)
    return Counter(outcome for (outcome,) in rows)


@pytest.mark.parametrize("verb", [verb for verb in TRANSITIONS if verb != "claim"])
def test_a_verb_leaves_its_events_on_the_trail_and_its_word_in_the_history(engine: Engine, verb: str) -> None:
    transition = TRANSITIONS[verb]
    job = put(engine, next(state for state in (None, *State) if state in transition.before))
    engine.clock.advance(seconds=2)
    before, history = trail(engine, job.id), outcomes(engine, job.id)

    VERBS[verb](engine, job)

    told = trail(engine, job.id) - before
    del told["job.started"]  # recorded with the end of its attempt
    assert told == Counter(transition.events)
    assert outcomes(engine, job.id) - history == Counter([transition.word] if verb in LEAVES_ATTEMPT else [])


def test_a_rescue_that_ends_its_job_records_that_as_other_ends_are(engine: Engine) -> None:
    dead = put(engine, State.RUNNING)
    engine.clock.advance(seconds=2)
    assert [state for _, _, state in engine.rescue(budget=1)] == ["dead"]
    asked = engine.started(worker="w2")
    engine.cancel(asked.id)
    engine.clock.advance(minutes=2)
    assert [state for _, _, state in engine.rescue()] == ["cancelled"]

    (rescued,) = TRANSITIONS["rescue"].events
    for job, verb in ((dead, "bury"), (asked, "stop")):
        assert trail(engine, job.id) >= Counter([rescued, TRANSITIONS[verb].events[-1]])


def test_the_checks_of_the_tables_let_in_what_the_table_says(engine: Engine) -> None:
    def let_in(table: str, column: str) -> set[str]:
        query = """select pg_get_constraintdef(c.oid) from pg_constraint c
                   join pg_attribute a on a.attrelid = c.conrelid and a.attnum = any(c.conkey)
                   where c.contype = 'c' and c.conrelid = %s::regclass and a.attname = %s"""
        return set(re.findall(r"'(\w+)'", " ".join(text for (text,) in engine.rows(query, table, column))))

    assert let_in("mainspring.attempt", "outcome") == OUTCOMES
    assert let_in("mainspring.finished", "state") == FINISHED
    assert let_in("mainspring.member", "state") == FINISHED


def test_settle_knows_the_verbs_that_end_an_attempt(engine: Engine) -> None:
    (source,) = engine.rows("select prosrc from pg_proc where oid = 'mainspring.settle'::regproc")[0]
    lists = [tuple(re.findall(r"'(\w+)'", found)) for found in re.findall(r"m\.verb (?:not )?in \(([^)]*)\)", source)]

    assert SETTLES in lists
    assert lists.count(REPEATS) == 2  # what a cancellation stops, and what waits again
    assert {verb for found in lists for verb in found} <= set(SETTLES)


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_sql_has_no_other_words(file: Path) -> None:
    text = re.sub(r"--.*", "", file.read_text())

    events = {event for verb in TRANSITIONS.values() for event in verb.events}
    assert set(re.findall(r"'(job\.\w+)'", text)) <= events | BESIDES
    compared = re.findall(r"\boutcome (?:=|<>) '(\w+)'", text)
    compared += [
        word for found in re.findall(r"\boutcome in \(([^)]*)\)", text) for word in re.findall(r"'(\w+)'", found)
    ]
    assert set(compared) <= OUTCOMES
    if file.parent.name == "tables":
        return  # the check above reads them from the catalogue; others have states of their own
    states = [word for found in re.findall(r"\bstate in \(([^)]*)\)", text) for word in re.findall(r"'(\w+)'", found)]
    assert set(states) <= {*State, "discarded"}  # which is what a dead letter becomes, for those that wait for it
