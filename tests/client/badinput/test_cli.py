"""The command line: one line that names the field, exit code 2, nothing written, and no value repeated in full."""

from __future__ import annotations

import json

import pytest
from tests.cli.conftest import Cli
from tests.client.badinput.lists import BAD_PAYLOADS, ODD_BUT_FINE, UNFIT
from tests.client.badinput.test_client import generated
from tests.db.engine import Engine

from mainspring.text.texts import text_problem

#: What a shell can hand over: no NUL.
TYPED = {name: text for name, text in UNFIT.items() if name != "NUL"}
OPTIONS = {
    "queue": ["job", "enqueue", "t", "--queue"],
    "key": ["job", "enqueue", "t", "--key"],
    "org_id": ["job", "enqueue", "t", "--org"],
    "actor_id": ["job", "enqueue", "t", "--as"],
    "task": ["job", "list", "--task"],
    "reason": ["job", "cancel", "018f2f6e-7d3a-7c1e-b5a1-2f1f5b6f9a10", "--reason"],
    "org": ["audit", "list", "--org"],
    "event": ["audit", "list", "--event"],
    "actor": ["audit", "list", "--actor"],
    "head": ["audit", "verify", "--head"],
}


def nothing(engine: Engine) -> bool:
    return engine.rows("select count(*) from mainspring.job") == [(0,)]


@pytest.mark.parametrize("field", OPTIONS)
def test_unfit_texts_are_refused_by_name_in_one_short_line(cli: Cli, engine: Engine, field: str) -> None:
    for name, text in TYPED.items():
        if text in ("", " ") and field == "actor_id" and name == "empty":
            continue  # nobody is named: the user's own name
        answer = cli(*OPTIONS[field], text)
        assert (answer.code, answer.out) == (2, ""), (name, answer)
        assert answer.err.startswith(f"mainspring: {field}: ")
        assert answer.err.count("\n") == 1
        assert len(answer.err) < 200
    assert nothing(engine)


def test_odd_texts_are_kept_exactly(cli: Cli, engine: Engine) -> None:
    for text in ODD_BUT_FINE:
        if text.startswith("-"):
            continue
        job = cli(
            "job", "enqueue", text, f"--queue={text}", f"--key={text}", f"--org={text}", "-f", f"v={text}", "--json"
        )
        (row,) = engine.rows(
            "select task, queue, key, org_id, payload from mainspring.job where id = %s", job.json["id"]
        )
        assert row[:4] == (text,) * 4
        assert row[4]["v"] == {"{}": {}, "null": None}.get(text, text)  # what can be read as JSON is


@pytest.mark.parametrize(
    "name", [name for name in BAD_PAYLOADS if "depth 1,000,000" not in name and name != "too large"]
)
def test_a_payload_that_cannot_be_kept_is_refused(cli: Cli, engine: Engine, name: str) -> None:
    typed = BAD_PAYLOADS[name].decode("utf-8", "surrogateescape").replace("\0", "\\u0000")
    answer = cli("job", "enqueue", "t", typed)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("mainspring: payload")
    assert (answer.err.count("\n"), len(answer.err) < 300) == (1, True)
    assert nothing(engine)


@pytest.mark.parametrize(
    "arguments",
    [
        ["job", "show", "x" * 100_000],
        ["job", "show", "\x1b[2J"],
        ["job", "enqueue", "t", "--at", "x" * 100_000],
        ["job", "enqueue", "t", "--at", "0000-00-00"],
        ["job", "enqueue", "t", "--at", "infinity"],
        ["job", "enqueue", "t", "--at", "-infinity"],
        ["job", "enqueue", "t", "--at", "2030-01-31T08:00:00"],
        ["job", "enqueue", "t", "--at", "9999-12-31T23:59:59Z"],
        ["job", "enqueue", "t", "--at", "294277-01-01T00:00:00Z"],
        ["job", "enqueue", "t", "--at", "1767225600.5"],
        ["job", "reschedule", "--key", "k", "--at", "2030-01-31T08:00:00"],
        ["job", "reschedule", "--key", "k", "--at", "infinity"],
        ["job", "reschedule", "--key", "k", "--delay", "-1us"],
        ["job", "reschedule", "--key", "k", "--delay", "3654d"],
        ["job", "reschedule", "--key", "k", "--delay", "9" * 400 + "d"],
        ["job", "reschedule", "--key", "k"],
        ["job", "enqueue", "t", "--delay", "-5s"],
        ["job", "enqueue", "t", "--delay", "nan"],
        ["job", "enqueue", "t", "--delay", "99999999d"],
        ["job", "enqueue", "t", "--priority", "9" * 5000],
        ["job", "enqueue", "t", "-f", "x" * 100_000],
        ["job", "enqueue", "t", "-f", "a=1", "-f", "a=2"],
        ["job", "enqueue", "t", "-f", "a=" + "[" * 100_000 + "]" * 100_000],
        ["job", "enqueue", "t", "--mode", "x" * 100_000],
        ["job", "list", "--limit", "-1"],
        ["job", "list", "--limit", "x"],
        ["job", "list", "--before", "x"],
        ["job", "list", "--state", "x" * 100_000],
        ["audit", "list", "--before", "9" * 30],
        ["audit", "list", "--since", "2026-01-01"],
        ["queue", "pause", "x" * 100_000],
        ["queue", "pause", ""],
        ["queue", "pause", "q", "--reason", "\x07"],
    ],
)
def test_garbage_is_one_line_and_exit_code_two(cli: Cli, engine: Engine, arguments: list[str]) -> None:
    answer = cli(*arguments)
    assert answer.out == ""
    assert (answer.err.count("\n"), "Traceback" in answer.err, "\x1b" in answer.err) == (1, False, False)
    assert len(answer.err) < 1200
    assert answer.code == 2, answer
    assert nothing(engine)


def test_generated_texts_are_refused_or_come_back_exactly(cli: Cli, engine: Engine) -> None:
    for text in generated(7, 40):
        typed = text.replace("\0", "")
        try:
            typed.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            continue  # no shell can hand it over
        if typed.startswith("-"):
            continue
        answer = cli("job", "enqueue", "t", f"--key={typed}", "--json")
        fine = text_problem(typed, 512) is None
        assert answer.code == (0 if fine else 2), (typed, answer)
        if fine:
            (row,) = engine.rows("select key from mainspring.job where id = %s", json.loads(answer.out)["id"])
            assert row == (typed,)
