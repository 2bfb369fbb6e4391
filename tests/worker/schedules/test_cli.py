"""`mainspring schedule …`: what people do with schedules."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest
from tests.cli.conftest import Cli
from tests.databases import Database

import mainspring as ms
from mainspring import Client
from mainspring.virtual.clock import Clock

APP = "tests.worker.schedules.shop:app"
CREATE = ("schedule", "create", "pay", "--cron", "0 10 * * WED", "--zone", "Europe/London", "--task", "greet")


@pytest.fixture(autouse=True)
def clock(database: Database) -> None:
    with database.connect() as conn:
        Clock(conn).set(datetime(2026, 3, 23, tzinfo=UTC))


def test_schedule_is_created_shown_and_previewed(cli: Cli) -> None:
    payload = '{"name": "Ada"}'
    said = cli(*CREATE, "--payload", payload, "--jitter", "30s", "--within", "14h", "--app", APP).out
    assert said == "pay is created: every Wednesday at 10:00 (Europe/London)\n"
    (row,) = cli("schedule", "list", "--json").json
    assert (row["name"], row["words"], row["status"]) == ("pay", "every Wednesday at 10:00 (Europe/London)", "active")
    assert row["next"] == {"at": "2026-03-25T10:00:00Z", "zone": "Europe/London", "local": "2026-03-25T10:00:00+00:00"}
    assert (row["job"]["payload"], row["within_s"], row["jitter_s"]) == ({"name": "Ada"}, 50400.0, 30.0)
    lines = cli("schedule", "next", "pay", "2").out
    assert "2026-04-01 09:00Z" in lines
    assert "2026-04-01 10:00+01:00" in lines
    table = cli("schedule", "list").out
    assert "2026-03-25 10:00" in table
    assert "every Wednesday at 10:00 (Europe/London)" in table
    shown = cli("schedule", "show", "pay").out
    assert "latest, within 14 h" in shown
    assert "It has not fired yet." in shown


def test_verbs_say_what_they_did(cli: Cli, client: Client) -> None:
    cli(*CREATE, "--payload", '{"name": "Ada"}')
    assert cli("schedule", "pause", "pay", "--reason", "quiet", "--as", "ada").out == "pay is paused\n"
    assert cli("schedule", "pause", "pay").out == "pay was paused already\n"
    assert "paused" in cli("schedule", "list").out
    assert cli("schedule", "next", "pay").out == "It does not fire: see `schedule show`.\n"
    job = cli("schedule", "run", "pay", "--json").json["jobs"][0]
    assert client.get(UUID(job)).payload == {"name": "Ada"}
    assert "run now" in cli("schedule", "show", "pay").out
    assert cli("schedule", "resume", "pay").out == "pay fires again\n"
    assert cli("schedule", "resume", "pay").out == "pay was not paused\n"
    assert cli(*CREATE, "--payload", '{"name": "Bob"}', "--replace", "--json").json["answer"] == "changed"
    assert cli("schedule", "delete", "pay").out == "pay is deleted\n"
    assert cli("schedule", "list").out == "There are no schedules.\n"


def test_what_was_missed_is_shown_and_made_up_for(cli: Cli, client: Client) -> None:
    client.schedules.create("pay", ms.daily("10:00", zone="Asia/Tokyo"), "greet", payload={"name": "Ada"})
    backfill = ("schedule", "backfill", "pay", "--since", "2026-03-21T00:00")
    shown = cli(*backfill, "--dry-run").out
    assert ("2026-03-21 01:00Z" in shown, "2026-03-21 10:00:00+09:00" in shown, shown.count("to fire")) == (
        True,
        True,
        2,
    )
    assert cli(*backfill).code == 2
    done = cli(*backfill, "--until", "2026-03-21T12:00", "--reason", "nobody was there", "--json").json
    assert [one["outcome"] for one in done] == ["fired"]
    assert client.get(UUID(done[0]["job_id"])).payload == {"name": "Ada"}
    assert "fired before" in cli(*backfill, "--dry-run").out
    assert (
        cli("schedule", "backfill", "pay", "--since", "2026-03-22T20:00", "--dry-run").out == "No instant lies there.\n"
    )


def test_what_an_application_declares_is_synced(cli: Cli, client: Client) -> None:
    said = cli("schedule", "sync", "--app", APP).out.splitlines()
    assert "hello  created" in said
    assert cli("schedule", "sync", "--app", APP, "--json").json["created"] == []
    assert client.schedules.get("hello").declared_by == "schedules-shop"
    refused = cli("schedule", "delete", "hello")
    assert (refused.code, refused.out) == (2, "")
    assert "name: is declared by schedules-shop: remove it from the code, or pause it" in refused.err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["create", "s", "--task", "t"], 2, "cron: give either cron or every"),
        (["create", "s", "--task", "t", "--cron", "0 0 30 2 *"], 2, "never"),
        (["create", "s", "--task", "t", "--cron", "* * *"], 2, "cron: has 3 fields, not the five of minute, hour"),
        (["create", "s", "--task", "t", "--every", "0s"], 2, "every: is not a time span from 1 second"),
        (
            ["create", "s", "--task", "t", "--every", "1h", "--zone", "europe/london"],
            2,
            "did you mean 'Europe/London'?",
        ),
        (["create", "s", "--task", "t", "--every", "1h", "--payload", "["], 2, "payload: is not a JSON object"),
        (["create", "s", "--task", "gret", "--every", "1h", "--app", APP], 3, "(did you mean 'greet'?)"),
        (["create", "s", "--task", "greet", "--every", "1h", "--app", APP], 2, "name: is missing"),
        (["create", "s", "--task", "t", "--every", "1h", "--most", "3"], 2, "most: needs catch_up all"),
        (["pause", "pya"], 3, "no schedule is called 'pya' (did you mean 'pay'?)"),
        (["show", "nothing"], 3, "no schedule is called 'nothing'"),
        (["sync"], 2, "app: give --app"),
    ],
)
def test_refusal_names_the_field(
    cli: Cli,
    client: Client,
    arguments: list[str],
    code: int,
    said: str,
) -> None:
    client.schedules.create("pay", ms.daily("10:00"), "greet")
    answer = cli("schedule", *arguments)
    assert (answer.code, answer.out) == (code, "")
    assert said in answer.err
    assert [row.name for row in client.schedules.list()] == ["pay"]
