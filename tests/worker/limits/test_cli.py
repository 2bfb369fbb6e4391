from __future__ import annotations

from typing import Any

import pytest
from tests.cli.conftest import APP, Cli, cli  # noqa: F401  # a fixture
from tests.db.engine import Engine

import mainspring as ms


def test_a_limit_is_set_changed_shown_and_dropped(cli: Cli, engine: Engine) -> None:  # noqa: F811  # the fixture
    said = cli("limit", "set", "exports", "--queue", "q:exports", "--concurrency", 2, "--by", "org", "--reason", "slow")
    assert said.out == "exports: queue q:exports, 2 at once for each organisation\n"
    said = cli("limit", "set", "exports", "--concurrency", 3, "--as", "ada")
    assert "3 at once for each organisation (before: 2 at once for each organisation)" in said.out
    cli("limit", "set", "sms", "--task", "send_sms", "--rate", 10, "--per", "1s")
    assert cli("limit", "set", "sms", "--per", "1m").out.startswith("sms: task send_sms, 10 per 1 min")
    (exports, sms) = cli("limit", "list", "--json").json
    assert (exports["name"], exports["concurrency"], exports["by"], exports["set_by"]) == ("exports", 3, "org", "ada")
    assert (sms["rate"], sms["per"], sms["words"], sms["used"]) == (10, 60.0, "10 per 1 min", 0)
    assert "0 of 10" in cli("limit", "show", "sms").out
    assert cli("limit", "drop", "sms").out == "sms is dropped\n"
    assert [row["name"] for row in cli("limit", "list", "--json").json] == ["exports"]
    (reason,) = engine.rows(
        "select detail ->> 'reason' from mainspring.audit where event = 'limit.set' order by id limit 1"
    )
    assert reason == ("slow",)


def test_order_is_a_limit_too_and_can_become_another(cli: Cli) -> None:  # noqa: F811  # the fixture
    assert "one after another" in cli("limit", "set", "line", "--task", "t", "--in-order").out
    found = cli("limit", "set", "line", "--rate", 5, "--per", "1s", "--json").json
    assert (found["rate"], found["in_order"], found["concurrency"], found["by"]) == (5, False, None, "strand")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("limit", "set", "n", "--rate", "5", "--per", "1s"), "to make one, give --queue or --task"),
        (("limit", "set", "n", "--queue", "q", "--rate", "5"), "per: is missing"),
        (
            ("limit", "set", "n", "--queue", "q", "--rate", "5", "--per", "soon"),
            '--per: "soon" is not a time span, such as 90s',
        ),
        (("limit", "set", "n", "--queue", "q", "--rate", "0", "--per", "1s"), "rate: is not a whole number"),
        (
            ("limit", "set", "n", "--queue", "q", "--rate", "5", "--per", "1s", "--in-order"),
            "rate: give one of --rate, ",
        ),
        (("limit", "set", "n", "--task", "gret", "--concurrency", "5", "--app", APP), "(did you mean 'greet'?)"),
        (("limit", "show", "n"), "no limit is called 'n'"),
        (("limit", "drop", "n"), "no limit is called 'n'"),
        (("limit", "reset", "n"), "no limit is called 'n'"),
        (("queue", "fair", "q", "--weight", "acme"), "weight: is not of the form organisation=number"),
        (("queue", "fair", "q", "--weight", "acme=0"), "weights: is not a whole number from 1 to 1000"),
        (("queue", "fair", "q", "--weight", "acme=2", "--off"), "off: give either --weight or --off"),
        (("queue", "depth", "q", "--most", "5", "--off"), "off: give either --most or --off"),
        (("queue", "depth", "q", "--most", "0"), "most: is not a whole number from 1"),
    ],
)
def test_mistakes_are_one_line_that_names_the_field(
    cli: Cli,  # noqa: F811  # the fixture
    words: tuple[str, ...],
    problem: str,
) -> None:
    said = cli(*words)
    assert said.code == (3 if "called" in said.err else 2)
    assert problem in said.err
    assert len(said.err.splitlines()) == 1


def test_a_queue_is_made_fair_and_bounded(cli: Cli, client: ms.Client) -> None:  # noqa: F811  # the fixture
    assert cli("queue", "fair").out == "No queue is fair.\n"
    said = cli("queue", "fair", "q:default", "--weight", "acme=3", "--weight", "b=c=2")
    assert said.out == "the organisations of q:default take turns: acme 3, b=c 2\n"
    (row,) = cli("queue", "fair", "--json").json
    assert (row["queue"], row["weights"]) == ("q:default", {"acme": 3, "b=c": 2})
    assert cli("queue", "fair", "q:default", "--off").out == "q:default goes by due time\n"
    assert cli("queue", "depth", "q:default", "--most", 5).out.endswith("and refuses best-effort jobs from 5 on\n")
    assert cli("queue", "depth", "q:default", "--json").json == {"queue": "q:default", "ready": 0, "max_depth": 5}
    assert cli("queue", "depth", "q:default", "--off").out.endswith("and refuses nothing\n")


def test_what_the_code_declares_is_told_when_it_is_dropped_or_reset(
    cli: Cli,  # noqa: F811  # the fixture
    engine: Engine,
) -> None:
    declare: Any = '[{"name": "rate:mail", "queue": "mail", "rate": 50, "per": "PT1S"}]'
    engine.rows("select mainspring.declare_limits('shop', %s::text::jsonb, '[]')", declare)
    assert "the code of shop" in cli("limit", "list").out
    cli("limit", "set", "rate:mail", "--rate", 5)
    assert ", over the code of shop" in cli("limit", "show", "rate:mail").out
    assert cli("limit", "reset", "rate:mail").out == "rate:mail: 50 per 1 s (as the code says)\n"
    assert "nobody had said otherwise" in cli("limit", "reset", "rate:mail").out
    assert "brings it back when a worker starts" in cli("limit", "drop", "rate:mail").out
