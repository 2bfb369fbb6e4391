"""`mainspring run-due`."""

from __future__ import annotations

import json

import pytest
from tests.cli.conftest import APP, Cli, cli, client
from tests.cli.shop import fail, greet

from mainspring import Client

__all__ = ["cli", "client"]  # fixtures


def test_it_runs_what_is_due_and_says_what_came_of_it(cli: Cli, client: Client) -> None:
    client.enqueue_many([greet.job(name="Ada"), greet.job(name="Grace"), fail.job(text="no")])

    answer = cli("run-due", "--app", APP, "--limit", 2, "--queues", "q:default")
    assert (answer.code, answer.out.partition(" remain at ")[0]) == (0, "2 of 2 claimed jobs ran: 2 succeeded; 0")

    summary = json.loads(cli("run-due", "--app", APP, "--queues", "q:exports", "--json").out)
    assert summary | {"as_of": ""} == {
        "claimed": 1, "processed": 1, "succeeded": 0, "retried": 0, "failed": 0, "dead": 1, "deferred": 0,
        "cancelled": 0, "skipped": 0, "remaining": 0, "as_of": "",
    }  # fmt: skip


def test_nothing_due_is_no_error(cli: Cli) -> None:
    answer = cli("run-due", "--app", APP, "--queues", "q:exports", "--budget", "5s")
    assert (answer.code, answer.out.partition(" at ")[0]) == (0, "no job was claimed; 0 remain")


@pytest.mark.parametrize("wrong", [["--limit", "0"], ["--limit", "x"], ["--budget", "-5s"], ["--concurrency", "0"]])
def test_what_makes_no_sense_is_one_line(cli: Cli, wrong: list[str]) -> None:
    answer = cli("run-due", "--app", APP, *wrong)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert wrong[0].lstrip("-") in answer.err


def test_it_needs_an_application(cli: Cli) -> None:
    answer = cli("run-due")
    assert (answer.code, answer.err.startswith("mainspring: app: ")) == (2, True)
