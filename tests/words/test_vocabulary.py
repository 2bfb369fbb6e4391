"""What is said in Python of the life cycle has the words of its table; SQL is held to it by tests/db."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from tests.docs.pages import ROOT, table
from tests.worker.test_outbox import run

import mainspring
from mainspring import events
from mainspring.cli.batch import BATCH_COUNTS
from mainspring.cli.live import STYLES
from mainspring.db.pulse import Pulse
from mainspring.events import Bus, Event, JobEvent
from mainspring.observe.logs import CAMEL_NAMES, LEVELS
from mainspring.observe.metrics import COUNTERS
from mainspring.outcome import Error, Move
from mainspring.states import (
    FINISHED,
    LEAVES_ATTEMPT,
    REPEATS,
    RUNNING,
    SETTLES,
    TRANSITIONS,
    WAITING,
    WORDS,
    State,
)
from mainspring.worker.announcer import Announcer
from mainspring.worker.run_due import ENDS, Summary
from mainspring.worker.statements import VERBS

TELLS = {event for verb in TRANSITIONS.values() for event in verb.events}
#: What people do to a job that no worker holds stands on the audit trail alone.
TRAIL_ONLY = {"job.cancel_requested", "job.rescheduled", "job.replayed", "job.reset"}
#: Words that the life cycle had beside those of the table.
BANNED = re.compile(r"\b(?:snoozed|put off|buried|rejected|dead-lettered|expired)\b", re.IGNORECASE)
#: Where one of them is the word of something else: a lease, a card, a session at the checkout.
ELSEWHERE = re.compile(
    r"expired lease|^ expired up to |card has expired|can be expired|^checkout\.session\.expired$|^expired$"
)


def classes() -> dict[str, type[Event]]:
    """Event → its class."""
    found = [kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, Event)]
    return {str(kind.__struct_config__.tag): kind for kind in found if kind not in (Event, JobEvent)}


def told(tell: str, *args: object) -> list[str]:
    """The events that an announcer makes of something."""
    heard: list[str] = []
    announcer = Announcer(Bus([lambda batch: heard.extend(event.name for event in batch)]), "w1")
    getattr(announcer, tell)(*args)
    return heard


def test_the_verbs_that_end_an_attempt_are_those_that_start_from_running() -> None:
    assert {*SETTLES, "complete", "rescue"} == {verb for verb, t in TRANSITIONS.items() if t.before == RUNNING}
    assert set(REPEATS) == {verb for verb in SETTLES if TRANSITIONS[verb].after & WAITING}
    for verb in SETTLES:
        assert verb in REPEATS or TRANSITIONS[verb].after <= FINISHED
        assert (State.CANCELLED in TRANSITIONS[verb].after) is (verb in REPEATS or verb == "stop")


def test_a_verb_that_ends_in_one_finished_state_has_that_word() -> None:
    for verb, t in TRANSITIONS.items():
        if len(t.after) == 1 and t.after <= FINISHED:
            assert {t.word} == t.after, verb


def test_every_event_of_the_table_has_a_class_of_its_name_or_stands_on_the_trail_alone() -> None:
    assert TELLS - classes().keys() == TRAIL_ONLY
    for name, kind in classes().items():
        if issubclass(kind, JobEvent):
            assert kind.__name__ == "".join(map(str.capitalize, re.split(r"[._]", name)))


@pytest.mark.parametrize("verb", SETTLES)
def test_a_worker_tells_of_an_end_what_the_table_says(verb: str) -> None:
    error = Error("TIMEOUT", "retryable", "too slow") if "job.failed" in TRANSITIONS[verb].events else None
    attempt = run(1)
    attempt.deadline = 60.0  # it had begun

    assert told("moved", attempt, Move(verb, timedelta(seconds=5), error), verb) == [*TRANSITIONS[verb].events]


@pytest.mark.parametrize(("state", "ends_as"), [("ready", None), ("dead", "bury"), ("cancelled", "stop")])
def test_a_worker_tells_of_a_rescue_what_the_table_says(state: str, ends_as: str | None) -> None:
    row = (UUID(int=1), "w0", state, "t", "q:default", "default", None, "r", "c", 1, False, False)

    last = [TRANSITIONS[ends_as].events[-1]] if ends_as else []
    assert told("rescued", [row]) == [*TRANSITIONS["rescue"].events, *last]


def test_a_worker_tells_of_starts_successes_and_refusals_what_the_table_says() -> None:
    assert told("started", run(1))[:1] == [*TRANSITIONS["claim"].events]
    assert told("succeeded", [run(1)]) == [*TRANSITIONS["complete"].events]
    heard: list[Event] = []
    for verb in ("complete", *SETTLES):
        Announcer(Bus([heard.extend]), "w1").stale(run(1), verb)
    assert [getattr(event, "outcome", None) for event in heard] == [WORDS[verb] for verb in ("complete", *SETTLES)]


def test_what_runs_once_counts_ends_by_their_words() -> None:
    counted = {WORDS[verb] for verb in (*ENDS, "complete")}

    assert counted | {"claimed", "processed", "skipped", "remaining", "as_of"} == set(Summary.__struct_fields__)
    assert {*SETTLES} - {*ENDS} == {"release"}  # which is skipped


def test_a_history_that_is_looked_up_gives_the_verb_of_its_word() -> None:
    assert {word: verb or "complete" for word, verb in VERBS.items()} == {
        WORDS[verb]: verb for verb in LEAVES_ATTEMPT if verb != "rescue"
    }


def test_who_watches_reads_the_words_of_the_table() -> None:
    words = {*WORDS.values(), "started"}
    about = {"since", "until", "ready", "later", "running", "pickup_ms", "pickup_p95_ms"}

    assert set(Pulse.__struct_fields__) - about <= words
    assert STYLES.keys() <= words
    assert set(BATCH_COUNTS) - {"total", "waiting"} <= {*State}


def test_logs_are_named_after_events() -> None:
    assert CAMEL_NAMES.keys() <= TELLS
    assert LEVELS.keys() <= classes().keys()


def test_metrics_are_named_after_the_words_of_the_table() -> None:
    named = {event: COUNTERS[kind][0] for event, kind in classes().items() if event in TELLS and kind in COUNTERS}
    own = {"job.lease_expired": "mainspring_lease_rescues"}

    assert named == own | {
        event: name for event in named.keys() - own for name in [named[event]] if name == f"mainspring_jobs_{event[4:]}"
    }


def texts(tree: ast.Module) -> Iterator[str]:
    """What a module may log, raise or print: its texts, f-strings by their parts, without what documents it."""
    documents = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documents:
            yield node.value


def test_no_other_word_is_said_of_a_job_in_python() -> None:
    root = Path(mainspring.__file__).parent
    found = {
        (str(file.relative_to(root.parent)), text)
        for file in (*root.rglob("*.py"), *root.with_name("mainspring_sandbox").rglob("*.py"))
        for text in texts(ast.parse(file.read_text()))
        if BANNED.search(text)
    }

    assert {(file, text) for file, text in found if not ELSEWHERE.search(text)} == set()
    assert len(found) >= 4  # it sees what it allows


def test_no_other_word_is_said_of_a_job_in_sql() -> None:
    said: set[tuple[str, str]] = set()
    for file in Path(mainspring.__file__).parent.rglob("*.sql"):
        text = re.sub(r"--.*", "", file.read_text())
        # the lease of a running job may have expired: that is no end of an attempt
        said |= {(file.name, word) for word in re.findall(r"'([\w -]+)'(?!, (?:r\.lease|\())", text)}

    tokens = {("access.sql", "expired")}  # those of people who ask over HTTP
    assert {(file, word) for file, word in said if BANNED.fullmatch(word)} - tokens == set()


@pytest.mark.parametrize(
    ("code", "seen"),
    [
        ('log.warning("put off, as %s does not answer", name)', ["put off, as %s does not answer"]),
        ('raise ValueError(f"snoozed for {after}")', ["snoozed for "]),
        ('def f():\n    "A job that was put off."', []),
        ('code = "SNOOZED_TOO_LONG"', []),
    ],
)
def test_words_inside_of_texts_are_seen(code: str, seen: list[str]) -> None:
    assert [text for text in texts(ast.parse(code)) if BANNED.search(text)] == seen


def test_the_pages_have_the_words_of_the_table() -> None:
    assert {row[0].strip("`") for row in table(ROOT / "docs" / "events.md", "## All events")} >= TELLS - TRAIL_ONLY
    fields = re.findall(r"^\| (`.*?) \|", (ROOT / "docs" / "guides" / "run-due.md").read_text(), re.MULTILINE)
    assert set(Summary.__struct_fields__) <= set(re.findall(r"`(\w+)`", " ".join(fields)))
