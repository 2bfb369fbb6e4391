"""`mainspring dead`, as a person types it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest
from tests.cli.conftest import Answer, Cli, cli
from tests.client.dead.conftest import Kill, events
from tests.databases import Database
from tests.db.engine import Engine

from mainspring.uuid7 import uuid7

__all__ = ["cli"]  # a fixture
APP = ("--app", "tests.cli.shop:app")
ROOT = Path(__file__).parents[3]


def refused(answer: Answer, code: int, *parts: str) -> None:
    assert answer.code == code, answer.err
    assert answer.out == ""
    assert answer.err.count("\n") == 1
    for part in parts:
        assert part in answer.err


def test_dead_letters_are_listed_and_grouped_for_people_and_machines(cli: Cli, kill: Kill) -> None:
    assert cli("dead", "list").out == "There are no such dead letters.\n"
    ids = [str(kill(message=f"order {n} not found", code="HttpException", queue="q:exports")) for n in range(3)]
    other = str(kill("reject", task="mail"))

    found = cli("dead", "list", "--task", "t", "--queue", "q:exports", "--code", "HttpException", "--json").json
    assert [letter["id"] for letter in found] == ids[::-1]
    assert {letter["state"] for letter in found} == {"dead"}
    group, _ = cli("dead", "list", "--groups", "--json").json
    assert (group["count"], group["code"]) == (3, "HttpException")
    assert len(cli("dead", "list", "--fingerprint", group["fingerprint"], "--json").json) == 3
    assert [d["id"] for d in cli("dead", "list", "--state", "failed", "--newer-than", "1h", "--json").json] == [other]
    assert cli("dead", "list", "--older-than", "30d", "--json").json == []
    assert cli("dead", "list", "--org", "acme", "--json").json == []
    first = cli("dead", "list", "--limit", 1, "--json").json
    assert [d["id"] for d in cli("dead", "list", "--before", first[0]["id"], "--json").json] == ids[::-1]
    lines = cli("dead", "list").out.splitlines()
    assert [line.split()[0] for line in lines if "q:" in line] == [other, *ids[::-1]]
    assert "HttpException: order 2 not found" in cli("dead", "list", "--groups").out


@pytest.mark.rule("ENG-12.03", "ENG-12.12")
def test_one_is_shown_with_its_history_its_meaning_and_what_to_do(cli: Cli, engine: Engine, kill: Kill) -> None:
    job = kill(
        "reject", code="VALIDATION_ERROR", message="cents: expected int", stack="File shop.py", payload={"cents": "x"}
    )

    for command in ("dead", "job"):
        shown = cli(command, "show", job).out
        for part in (
            str(job),
            "cents: expected int",
            "File shop.py",
            "The job's input is malformed.",
            "fix-forward",
            "ATTEMPT",
        ):
            assert part in shown
    assert f"mainspring dead fix {job} --set field=value" in cli("dead", "show", job).out
    case = cli("dead", "show", job, "--json").json
    assert [attempt["error"]["message"] for attempt in case["attempts"]] == ["cents: expected int"]
    assert (len(case["about"]["payload_hash"]), case["plan"]["advised"]) == (64, "fix-forward")
    assert cli("job", "show", job, "--json").json["plan"]["advised"] == "fix-forward"
    engine.discard(job, reason="a typo")
    assert "discarded, says ada" in cli("dead", "show", job).out
    assert "command" not in cli("dead", "show", job).out
    refused(cli("dead", "show", engine.enqueue().id), 4, "is ready, which is no dead letter")
    refused(cli("dead", "show", (missing := uuid7())), 3, f"there is no job {missing}")


def test_operators_are_told_what_the_codes_of_blocks_mean_without_the_application() -> None:
    known = "import mainspring.cli.dead, mainspring.codes; print(*mainspring.codes.CODES)"
    found = subprocess.run([sys.executable, "-c", known], capture_output=True, text=True, timeout=30, check=True)
    documented = re.findall(r"^\| `(\w+)` \| .* \| .* \|$", (ROOT / "docs/codes.md").read_text(), re.MULTILINE)

    assert "CARD_DECLINED" in documented
    assert set(documented) <= set(found.stdout.split())


@pytest.mark.parametrize(("verb", "done", "event"), [("replay", "replayed", "ready"), ("discard", "discarded", "dead")])
def test_some_are_decided_about_by_id_in_the_users_name_and_each_refusal_is_said(
    cli: Cli, engine: Engine, kill: Kill, verb: str, done: str, event: str
) -> None:
    one, other, missing = kill(), kill(), uuid7()

    answer = cli("dead", verb, one, missing, other, "--reason", "it is back", "--as", "eve")

    assert answer.code == 3
    assert answer.out == f"{one}: {done}\n{other}: {done}\n"
    assert answer.err == f"mainspring: there is no job {missing}\n"
    assert [engine.state(job) for job in (one, other)] == [event, event]
    assert [detail["by"] for detail in events(engine, f"job.{done}")] == ["eve", "eve"]
    again = cli("dead", verb, one, "--reason", "again", "--json")
    assert (again.code, verb in again.err) == (4, True)


@pytest.mark.rule("ENG-12.10")
def test_many_are_counted_first_and_decided_about_only_when_confirmed(
    cli: Cli, engine: Engine, kill: Kill, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(5):
        kill()
    kept = kill(task="mail")
    common = ("dead", "replay", "--task", "t", "--rate", 2)

    assert cli(*common, "--dry-run").out == "5 would be replayed, over 2.5 s.\n"
    assert cli(*common, "--dry-run", "--json").json["matched"] == 5
    refused(cli(*common, "--reason", "x"), 2, "replay: 5 dead letters are meant, over 2.5 s; give --yes")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda prompt: "n")
    assert (cli(*common, "--reason", "x").code, engine.claim()) == (1, [])
    monkeypatch.setattr("builtins.input", lambda prompt: pytest.fail("asked before the reason was"))
    refused(cli(*common), 2, "reason: is missing")
    monkeypatch.setattr("builtins.input", lambda prompt: "y")
    assert cli(*common, "--reason", "x", "--limit", 2).out == "2 replayed, over 1 s.\n"
    assert cli(*common, "--reason", "x", "--yes", "--json").json == {
        "matched": 3,
        "moved": 3,
        "next_due_at": None,
        "skipped": 0,
        "dry_run": False,
    }
    assert cli(*common, "--reason", "x", "--yes").out == "There are no such dead letters.\n"
    assert engine.state(kept) == "dead"
    assert cli("dead", "discard", "--all", "--reason", "x", "--yes").out == "1 discarded.\n"
    assert engine.job(kept).resolution == "discarded"


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["replay", "--reason", "x"], "job: give either ids, or a filter, or --all"),
        (["discard", "{job}", "--task", "t", "--reason", "x"], "job: give either ids, or a filter, or --all"),
        (["discard", "--all", "--task", "t", "--reason", "x"], "job: give either ids, or a filter, or --all"),
        (["replay", "{job}"], "reason: is empty"),
        (["discard", "--task", "t", "--yes"], "reason: is missing"),
        (["fix", "{job}", "--set", "n=1"], "--reason"),
        (["fix", "{job}", "--reason", "x"], "payload: give either --set and --unset, or --payload, or --edit"),
        (["fix", "{job}", "--reason", "x", "--set", "n"], "is not of the form name=value"),
        (["fix", "{job}", "--reason", "x", "--payload", "[]"], "payload: is not a JSON object"),
        (["fix", "{job}", "--reason", "x", "--payload", '{"a":1,"a":2}'], "payload.a: appears twice"),
        (["list", "--state", "ready"], "ready"),
        (["list", "--groups", "--before", "{job}"], "before: goes with a list"),
        (["replay", "--task", "t", "--rate", "0", "--reason", "x", "--yes"], "rate: "),
    ],
)
def test_what_is_typed_wrongly_is_said_in_one_line_and_nothing_is_done(
    cli: Cli, engine: Engine, kill: Kill, arguments: list[str], part: str
) -> None:
    job = kill()
    before = engine.everything()
    answer = cli("dead", *(word.replace("{job}", str(job)) for word in arguments))
    refused(answer, 2, part)
    assert engine.everything() == before


def test_a_payload_is_corrected_with_a_dry_run_before_it(cli: Cli, engine: Engine, kill: Kill) -> None:
    job = kill(task="greet", payload={"name": "Ada", "times": "two"})
    common = ("dead", "fix", job, "--set", "times=2", "--reason", "a number", *APP)
    before = engine.everything()

    trial = cli(*common, "--dry-run").out
    assert trial == f'/times: "two" → 2\n{job}: would be fixed forward by a new job of greet; nothing was written.\n'
    assert engine.everything() == before
    made = cli(*common, "--json").json

    assert (made["job"], made["checked"], made["payload"]) == (str(job), True, {"name": "Ada", "times": 2})
    assert engine.job(UUID(made["successor"])).payload == {"name": "Ada", "times": 2}
    refused(cli(*common), 4, f"was fixed forward by job {made['successor']}")


def test_the_application_s_task_refuses_what_it_cannot_read(cli: Cli, kill: Kill) -> None:
    job = kill(task="greet", payload={"name": "Ada", "times": "two"})
    refused(
        cli("dead", "fix", job, "--set", "time=2", "--reason", "x", *APP),
        2,
        "time: is not a field (did you mean 'times'?)",
    )
    refused(cli("dead", "fix", job, "--set", "times=2.5", "--reason", "x", *APP), 2, "times: expected int, got float")
    refused(cli("dead", "fix", kill(task="gone"), "--set", "a=2", "--reason", "x", *APP), 3, "no task is called 'gone'")
    unchecked = cli("dead", "fix", job, "--unset", "times", "--reason", "x").out
    assert unchecked.startswith(
        '/times: "two" → nothing\nChecked as JSON only: give --app to check it against greet.\n'
    )


def test_a_payload_is_corrected_in_the_user_s_editor(
    cli: Cli, engine: Engine, kill: Kill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "edit.py"
    script.write_text(
        "import sys, pathlib\np = pathlib.Path(sys.argv[1])\np.write_text(p.read_text().replace('two', '2'))\n"
    )
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", f"{sys.executable} {script}")
    job = kill(payload={"times": "two"})

    made = cli("dead", "fix", job, "--edit", "--reason", "x", "--json").json

    assert made["payload"] == {"times": "2"}
    for editor, part in (("false", "ended with 1"), ("/no/such/editor", "cannot be started"), ("vi '", "No closing")):
        monkeypatch.setenv("EDITOR", editor)
        refused(cli("dead", "fix", kill(), "--edit", "--reason", "x"), 2, "EDITOR: ", part)
    assert not [name for name in os.listdir(tmp_path.parent) if name.startswith("mainspring-")]


def test_job_retry_is_a_replay_of_one(cli: Cli, database: Database, engine: Engine, kill: Kill) -> None:
    job = kill()
    refused(cli("job", "retry", job), 2, "--reason")
    assert cli("job", "retry", job, "--reason", "it is back", "--json").json == {"state": "ready"}
    assert engine.state(job) == "ready"
