"""`mainspring alert` and `mainspring measure`, as a person and a program see them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.health.conftest import Told, minutes

import mainspring as ms
from mainspring.cli import main
from mainspring.cli.observers import Observers
from mainspring.testing import Harness

NEEDS = "payment-needs-a-person"


class Command:
    def __init__(self, dsn: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._dsn, self._capsys = dsn, capsys

    def __call__(self, *words: str, code: int = 0) -> str:
        assert main([*words, "--dsn", self._dsn]) == code
        said = self._capsys.readouterr()
        return said.out if code == 0 else said.err

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "--json"))


@pytest.fixture
def run(mainspring: Harness, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(mainspring.dsn, capsys)


def test_alerts_are_listed_beside_what_the_gauges_say_and_closed_by_a_person(mainspring: Harness, run: Command) -> None:
    mainspring.client.alerts.open(NEEDS, "booking 17", text="the card was removed", severity="critical")
    mainspring.clock.set(minutes(5))
    mainspring.client.alerts.open(NEEDS, "booking 17")

    lines = [line.split() for line in run("alert", "list").splitlines() if line.strip()]
    assert [NEEDS, "booking", "17", "critical", "5", "min", "ago", "2", "the", "card", "was", "removed"] in lines
    assert any(line[:2] == ["no-worker", "critical"] for line in lines)
    (row, engine) = run.json("alert", "list")
    assert (row["alert"], row["subject"], row["count"], row["firing"]) == (NEEDS, "booking 17", 2, True)
    assert (engine["alert"], engine["severity"], engine["firing"]) == ("no-worker", "critical", True)
    assert [one["alert"] for one in run.json("alert", "list", "--name", NEEDS)] == [NEEDS]

    assert run("alert", "close", NEEDS, "booking 17", "--reason", "a new card") == f"{NEEDS} booking 17: closed.\n"

    assert [one["alert"] for one in run.json("alert", "list")] == ["no-worker"]
    (over,) = run.json("alert", "list", "--all", "--name", NEEDS)
    assert (over["firing"], over["closed_at"]) == (False, "2026-03-01T12:05:00Z")
    assert "CLOSED BY" in run("alert", "list", "--all")
    assert [event.detail["reason"] for event in mainspring.client.audit.events(event="alert.closed")] == ["a new card"]
    assert "no alert 'payment-needs-a-person' of 'booking 17' is open" in run(
        "alert", "close", NEEDS, "booking 17", "--reason", "again", code=3
    )


def test_what_is_open_in_several_organisations_is_closed_by_naming_one(mainspring: Harness, run: Command) -> None:
    for org in ("globex", "acme"):
        mainspring.client.alerts.open(NEEDS, org=org)

    said = run("alert", "close", NEEDS, "--reason", "r", code=2)
    assert "org: it is open in acme, globex: say which by --org" in said
    assert run.json("alert", "close", NEEDS, "--reason", "r", "--org", "acme")["org_id"] == "acme"
    assert [one["org_id"] for one in run.json("alert", "list", "--name", NEEDS)] == ["globex"]


def test_measures_are_listed_with_their_labels(run: Command) -> None:
    about = ("measure", "list", "--app", "tests.health.shop:app")
    lines = [line.split() for line in run(*about).splitlines()]
    assert ["cases_open", "gauge", "kind=late", "2"] in lines
    assert ["broken", "gauge"] in [line[:2] for line in lines]
    found = run.json(*about)
    assert found[1] == {
        "measure": "cases_open", "kind": "gauge", "labels": {"kind": "lost"}, "value": 2.0, "error": None,
    }  # fmt: skip
    assert [(one["measure"], one["kind"], one["labels"], one["value"]) for one in found[2:-1]] == [
        ("waits_bucket", "histogram", {"le": "1.0"}, 1.0),
        ("waits_bucket", "histogram", {"le": "2.0"}, 2.0),
        ("waits_bucket", "histogram", {"le": "+Inf"}, 3.0),
        ("waits_count", "histogram", {}, 3.0),
        ("waits_sum", "histogram", {}, 6.0),
    ]
    assert ["waits_bucket", "histogram", "le=+Inf", "3"] in lines
    assert 'column "nothing" does not exist' in found[-1]["error"]


def test_what_a_worker_process_shows_hears_of_the_applications_alerts(
    mainspring: Harness, mainspring_app: ms.App, told: Told
) -> None:
    mainspring_app.told.become(Observers(mainspring_app, mainspring.dsn, "mainspring").told)
    mainspring.client.alerts.open(NEEDS, conn=mainspring.conn)

    mainspring.run_one(mainspring_app.registry.get("mainspring.tell_alerts").job().for_org("SYSTEM"))

    log, metrics, own = mainspring_app.told
    assert (type(log).__name__, own, told.short) == ("Log", told, [(NEEDS, "", True)])
    (counted,) = [family for family in metrics.collect() if family.name == "mainspring_alerts"]  # type: ignore[attr-defined]  # it is the metrics
    assert [(sample.labels, sample.value) for sample in counted.samples] == [({"alert": NEEDS}, 1.0)]
