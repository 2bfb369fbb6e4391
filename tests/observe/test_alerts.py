from __future__ import annotations

import json
import re
from typing import Any
from uuid import UUID

import pytest
from tests.docs.pages import ROOT
from tests.observe.conftest import Heard, Theatre

from mainspring import Registry, fixed
from mainspring.db.gauges import Dead, Gauges, HorizonHolder, LaneGauge, Reader, TableGauge
from mainspring.events import Alert, JobLeaseExpired
from mainspring.health.alert import FAILED_LATE_ALERT, LEFT_OPEN_ALERT
from mainspring.health.watch import BROKEN_WATCH_ALERT
from mainspring.observe import Alerts
from mainspring.observe.alerts import RULES, prometheus_rules, wrong

pytestmark = pytest.mark.anyio

PAGE = ROOT / "docs" / "operations" / "alerts.md"
LANE = LaneGauge(name="q:default", paused=False, target_s=30, ready=0, later=0, oldest_s=None)


def state(**changes: Any) -> Gauges:
    calm: dict[str, Any] = {
        "lanes": [LANE],
        "workers": 1,
        "dead": Dead(open=0, oldest_s=None),
        "horizon": [],
        "tables": [],
    }
    return Gauges(**(calm | changes))


@pytest.mark.rule("ENG-12.04")
async def test_each_entry_into_the_dead_letter_is_one_alert_and_so_is_the_next_after_a_replay(
    stage: Theatre, tasks: Registry
) -> None:
    @tasks.task(retry=fixed(0, attempts=2))
    async def work() -> None:
        raise ValueError("no")

    heard = Heard()
    stage.observers = [Alerts([heard])]
    job = await stage.enqueue(work.job())
    await stage.drain(tasks)
    assert [(alert.alert, alert.job_id) for alert in heard.of(Alert)] == [("dead-letter-entry", job)]

    await stage.client.replay(job, reason="the provider is back")
    await stage.drain(tasks)

    assert [alert.job_id for alert in heard.of(Alert)] == [job, job]
    assert all(alert.runbook == "docs/operations/alerts.md#dead-letter-entry" for alert in heard.of(Alert))


@pytest.mark.rule("ENG-12.11")
async def test_a_dead_letter_older_than_a_day_is_an_alert_until_it_is_decided(stage: Theatre, tasks: Registry) -> None:
    @tasks.task(retry=fixed(0, attempts=1))
    async def work() -> None:
        raise ValueError("no")

    heard = Heard()
    alerts = Alerts([heard])

    def look() -> Gauges:
        found = Reader(stage.dsn)()
        assert found is not None
        return found

    stage.clock.set(stage.clock.now())
    job = await stage.enqueue(work.job())
    await stage.drain(tasks)
    for hours in (23, 2, 0):
        stage.clock.advance(hours=hours)
        alerts.look(state(dead=look().dead))
    assert [(alert.alert, alert.firing) for alert in heard.of(Alert)] == [("dead-letter-old", True)]

    await stage.client.replay(job, reason="try again")
    alerts.look(state(dead=look().dead))
    assert [alert.firing for alert in heard.of(Alert)] == [True, False]


@pytest.mark.parametrize(
    ("alert", "changes"),
    [
        ("queue-late", {"lanes": [LaneGauge(name="q:a", paused=False, target_s=5, ready=1, later=0, oldest_s=6)]}),
        ("no-worker", {"workers": 0}),
        ("dead-letter-old", {"dead": Dead(open=1, oldest_s=90_000)}),
        ("horizon-held", {"horizon": [HorizonHolder(holder="session", seconds=700, transactions=9)]}),
        ("tickets-bloated", {"tables": [TableGauge(name="waiting", live=10, dead=200_000, bytes=1, vacuumed_s=None)]}),
    ],
)
def test_gauges_fire_an_alert_once_and_end_it_once(alert: str, changes: dict[str, Any]) -> None:
    heard = Heard()
    alerts = Alerts([heard])
    for now in (state(), state(**changes), state(**changes), state(), state()):
        alerts.look(now)

    assert [(event.alert, event.firing) for event in heard.of(Alert)] == [(alert, True), (alert, False)]


def test_a_paused_queue_is_not_late() -> None:
    paused = LaneGauge(name="q:a", paused=True, target_s=5, ready=1, later=0, oldest_s=600)

    assert dict(wrong(state(lanes=[paused]))) == {}


def test_many_rescues_at_once_are_a_storm() -> None:
    heard = Heard()
    job = (UUID(int=1), "work", "q:default", "acme", None, "r", "c", 1, None)
    Alerts([heard])([JobLeaseExpired(*job, "w", "ready")] * 10)

    assert [alert.alert for alert in heard.of(Alert)] == ["lease-rescues"]


@pytest.mark.rule("ENG-29.08")
def test_every_alert_has_a_section_in_the_runbook_and_every_section_an_alert() -> None:
    sections = re.findall(r"^## ([\w-]+)$", PAGE.read_text(), re.MULTILINE)

    assert sections == [*(rule.name for rule in RULES), FAILED_LATE_ALERT, LEFT_OPEN_ALERT, BROKEN_WATCH_ALERT]


@pytest.mark.rule("ENG-29.08")
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_runbook_section_says_what_it_means_what_to_look_at_and_what_is_safe(rule: Any) -> None:
    section = PAGE.read_text().split(f"\n## {rule.name}\n")[1].split("\n## ")[0]

    for heading in ("**Means**", "**Look at**", "**Safe to do**"):
        assert heading in section


def test_the_rules_for_prometheus_use_metrics_that_exist() -> None:
    known = set(re.findall(r"^\| `(\w+)", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE))
    text = prometheus_rules()
    used = set(re.findall(r"\b(?:mainspring|deadletter|jobs)_\w+", text)) - {"mainspring"}

    assert used <= known
    assert text.count("- alert:") == len(RULES)


def test_the_rules_for_prometheus_are_yaml_and_link_to_where_the_runbook_can_be_read() -> None:
    for base in ("https://git.example.com/main", "https://git.example.com/main/"):
        values = re.findall(r"^ +(?:expr|summary|runbook): (.*)$", prometheus_rules(base), re.MULTILINE)
        texts = [json.loads(value) for value in values]  # a text with a colon must be quoted, and JSON is YAML

        assert texts[0::3] == [rule.expr for rule in RULES]
        assert texts[1::3] == [rule.text for rule in RULES]
        assert texts[2::3] == [f"https://git.example.com/main/{rule.runbook}" for rule in RULES]
