"""`mainspring job …`: what people do with jobs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from tests.cli.conftest import APP, Cli
from tests.cli.shop import tasks
from tests.databases import Database
from tests.db.engine import Engine

from mainspring import Client
from mainspring.uuid7 import uuid7
from mainspring.worker import Worker

AT = "2100-01-31T08:00:00Z"


def test_job_is_enqueued_with_everything_that_was_said(cli: Cli, client: Client) -> None:
    answer = cli(
        "job", "enqueue", "greet", '{"name": "Ada"}', "--queue", "q:exports", "--priority", 1, "--at", AT,
        "--key", "k1", "--mode", "keep", "--org", "acme", "--actor", "ada", "--json",
    ).json  # fmt: skip
    assert (answer["answer"], answer["state"]) == ("created", "scheduled")
    job = client.get(UUID(answer["id"]))
    assert (job.task, job.payload, job.queue, job.priority) == ("greet", {"name": "Ada"}, "q:exports", 1)
    assert (job.idempotency_key, job.org_id, job.actor_type, job.actor_id) == ("k1", "acme", "user", "ada")
    assert job.scheduled_for == datetime(2100, 1, 31, 8, tzinfo=UTC)
    again = cli("job", "enqueue", "greet", '{"name": "Ada"}', "--key", "k1", "--org", "acme", "--mode", "keep")
    assert again.out.split() == [answer["id"], "existing,", "scheduled"]


def test_fields_are_json_where_they_can_be_read_so(cli: Cli, client: Client) -> None:
    fields = ["-f", "name=Ada", "-f", "times=2", "-f", 'tags=["a"]', "-f", "zip=01x"]
    job = client.get(UUID(cli("job", "enqueue", "anything", *fields, "--delay", "2h", "--json").json["id"]))
    assert job.payload == {"name": "Ada", "times": 2, "tags": ["a"], "zip": "01x"}
    assert job.state == "scheduled"
    assert job.due_at is not None
    assert timedelta(minutes=110) < job.due_at - job.created_at <= timedelta(hours=2)


def test_verbs_are_done_in_the_users_name(cli: Cli, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "grace")
    job = cli("job", "enqueue", "greet", "--json").json["id"]
    cli("job", "cancel", job, "--as", "ada", "--reason", "a test")
    with database.connect() as conn:
        assert conn.execute("select actor_type, actor_id from mainspring.job").fetchone() == ("user", "grace")
        row = conn.execute("select detail from mainspring.audit where event = 'job.cancelled'").fetchone()
    assert row is not None
    assert (row[0]["by"], row[0]["by_type"], row[0]["reason"]) == ("ada", "user", "a test")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["greet", "{"], 2, "payload: is not valid JSON"),
        (["greet", "[]"], 2, "payload: is not a JSON object"),
        (["greet", "name=Ada"], 2, "payload: is not a JSON object; a field is given as -f name=value"),
        (["greet", '{"a": 1, "a": 2}'], 2, "payload.a: appears twice"),
        (["greet", '{"password": "x"}'], 2, "payload.password: looks like a secret"),
        (["greet", "{}", "-f", "a=1"], 2, "payload: give either a JSON object or fields"),
        (["greet", "-f", "a"], 2, "field: 'a' is not of the form name=value"),
        (["greet", "--priority", "7"], 2, "priority: is not a whole number from 0 to 3"),
        (["greet", "--at", "2100-01-31T08:00:00"], 2, "at: has no time zone, such as the Z of "),
        (["greet", "--mode", "keep"], 2, "key: is missing"),
        (["greet", "-f", "name=Ada", "-f", "tims=2", "--app", APP], 2, "tims: is not a field (did you mean 'times'?)"),
        (["greet", '{"nam": "Ada"}', "--app", APP], 2, "nam: is not a field (did you mean 'name'?)"),
        (["greet", '{"name": 7}', "--app", APP], 2, "name: expected str, got int"),
        (["greet", "--app", APP], 2, "name: is missing"),
        (["gret", "--app", APP], 3, "no task is called 'gret' (did you mean 'greet'?)"),
    ],
)
def test_refusal_names_the_field_and_writes_nothing(
    cli: Cli, client: Client, arguments: list[str], code: int, said: str
) -> None:
    answer = cli("job", "enqueue", *arguments)
    assert (answer.code, answer.out) == (code, "")
    assert said in answer.err
    assert answer.err.count("\n") == 1
    assert client.jobs() == []


def test_with_an_application_the_task_decides_queue_and_attempts(cli: Cli, client: Client) -> None:
    job = client.get(UUID(cli("job", "enqueue", "fail", "-f", "text=no", "--app", APP, "--json").json["id"]))
    assert (job.queue, job.max_attempts, job.payload) == ("q:exports", 1, {"text": "no"})


def test_key_taken_by_another_payload_is_refused(cli: Cli) -> None:
    cli("job", "enqueue", "greet", "-f", "name=Ada", "--key", "k", "--mode", "keep")
    answer = cli("job", "enqueue", "greet", "-f", "name=Bob", "--key", "k", "--mode", "keep")
    assert answer.code == 4
    assert "key" in answer.err


def test_jobs_are_listed_newest_first_by_filter_and_page(cli: Cli) -> None:
    ids = [cli("job", "enqueue", task, "--json").json["id"] for task in ("greet", "greet", "other")]
    assert [job["id"] for job in cli("job", "list", "--json").json] == ids[::-1]
    assert [job["id"] for job in cli("job", "list", "--task", "greet", "--limit", 1, "--json").json] == [ids[1]]
    assert [job["id"] for job in cli("job", "list", "--before", ids[1], "--json").json] == [ids[0]]
    assert cli("job", "list", "--state", "dead", "--json").json == []
    assert cli("job", "list", "--org", "acme", "--json").json == []
    assert "limit: is not between 1 and 1000" in cli("job", "list", "--limit", 0).err


def test_table_for_people_shows_every_job_in_a_line(cli: Cli) -> None:
    assert cli("job", "list").out == "There are no such jobs.\n"
    ids = [cli("job", "enqueue", "greet", "--json").json["id"] for _ in range(3)]
    lines = cli("job", "list").out.splitlines()
    assert [line.split()[:4] for line in lines if "greet" in line] == [
        [job, "greet", "ready", "q:default"] for job in reversed(ids)
    ]


@pytest.mark.anyio
@pytest.mark.rule("ENG-19.08")
async def test_dead_job_is_shown_with_its_history_and_replayed(cli: Cli, database: Database) -> None:
    job = cli("job", "enqueue", "fail", "-f", "text=no paper", "--app", APP, "--json").json["id"]
    await Worker(database.dsn, tasks).drain()
    found = cli("job", "show", job, "--json").json
    assert (found["state"], found["error"]["code"]) == ("dead", "INTERNAL_ERROR")
    assert [(a["attempt"], a["outcome"]) for a in found["attempts"]] == [(1, "dead")]
    shown = cli("job", "show", job).out
    for part in (job, "RuntimeError: no paper", "shop.py", 'payload          {"text":"no paper"}', "ATTEMPT"):
        assert part in shown
    assert cli("job", "replay", job, "--reason", "paper came", "--as", "ada", "--json").json == {"state": "ready"}
    with database.connect() as conn:
        trail = conn.execute("select detail from mainspring.audit where event = 'job.replayed'").fetchall()
    assert [(row[0]["by"], row[0]["by_type"], row[0]["reason"]) for row in trail] == [("ada", "user", "paper came")]
    assert cli("job", "show", job, "--json").json["state"] == "ready"
    refused = cli("job", "retry", job, "--reason", "again")
    assert refused.code == 4
    assert "is ready" in refused.err


def test_job_is_cancelled_by_id_and_by_key(cli: Cli) -> None:
    job = cli("job", "enqueue", "greet", "--json").json["id"]
    assert cli("job", "cancel", job, "--json").json == {"outcome": "cancelled"}
    assert cli("job", "cancel", job).out == f"job {job}: cancelled\n"
    cli("job", "enqueue", "greet", "--key", "k")
    assert cli("job", "cancel", "--key", "k").out == "the job under key k: cancelled\n"


def test_cancel_of_a_running_job_is_a_request_and_of_a_finished_one_refused(cli: Cli, database: Database) -> None:
    with database.connect() as conn:
        engine = Engine(conn)
        running, done, fixed = engine.started(), engine.started(), engine.started(cancellable=False)
        engine.end(done, "complete")
        assert cli("job", "cancel", running.id, "--json").json == {"outcome": "cancel_requested"}
        for claim, why in ((done, "already finished"), (fixed, "not cancellable")):
            answer = cli("job", "cancel", claim.id)
            assert (answer.code, why in answer.err) == (4, True)


def test_job_is_moved_to_another_time(cli: Cli, client: Client) -> None:
    job = cli("job", "enqueue", "greet", "--key", "k", "--json").json["id"]
    assert cli("job", "reschedule", job, "--at", AT, "--json").json == {"state": "scheduled"}
    assert client.get(UUID(job)).due_at == datetime(2100, 1, 31, 8, tzinfo=UTC)
    assert cli("job", "reschedule", "--key", "k", "--delay", "0s").out == "k: ready\n"
    assert "at: give either an instant or a delay" in cli("job", "reschedule", job).err


@pytest.mark.parametrize("verb", [["show"], ["cancel"], ["retry", "--reason", "x"], ["reschedule", "--delay", "1s"]])
def test_job_that_does_not_exist_is_not_found(cli: Cli, verb: list[str]) -> None:
    job = uuid7()
    answer = cli("job", verb[0], job, *verb[1:])
    assert (answer.code, answer.err) == (3, f"mainspring: there is no job {job}\n")


def test_a_job_is_shown_by_its_key(cli: Cli, client: Client) -> None:
    job = client.enqueue(tasks.get("greet").job(name="Ada").with_key("greet:ada")).id
    assert cli("job", "show", "--key", "greet:ada", "--json").json["id"] == str(job)
    assert cli("job", "show", "--key", "greet:bob").code == 3
    assert cli("job", "show").code == cli("job", "show", job, "--key", "greet:ada").code == 2
