"""A schedule that is due, and what becomes of it: fires, jobs, and where it stands afterwards. No I/O, no clock."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from mainspring.declare.schedule import make
from mainspring.job import NewJob
from mainspring.uuid7 import uuid7
from mainspring.when.expression import parse
from mainspring.when.fire import FIRE_ON_TIME, CatchUp, FirePolicy, Occurrence, WhileRunning, decide, jitter, label
from mainspring.when.rule import Rule

#: Where the clock runs fast, a scheduler that comes so much later in real time is on time, too.
FAST_CLOCK_SLACK = timedelta(seconds=1)

read_job = msgspec.json.Decoder(NewJob).decode


class DueSchedule(NamedTuple):
    """A schedule that is due in a zone, as the statement `take_schedules` answers it."""

    org: str
    name: str
    zone: str
    rule: str
    job: str
    fill: list[str]
    catch_up: CatchUp
    within: timedelta | None
    most: int | None
    running: WhileRunning
    jitter: timedelta
    by_zone: bool
    by_entity: bool
    after: datetime
    local: datetime | None
    tzdata: str | None
    busy: bool
    undeclared: bool
    now: datetime
    speed: float


class FirePlan(NamedTuple):
    """What is written for a schedule that is due: its fires, the job of each that has one, and where it stands then."""

    due: DueSchedule
    fires: list[dict[str, Any]]
    jobs: list[NewJob | None]
    move: dict[str, Any]


@lru_cache(maxsize=10_000)
def rule_of(text: str, zone: str) -> Rule:
    """A stored rule; in another zone, if one is named."""
    rule = Rule.from_json(msgspec.json.decode(text))
    return rule.in_zone(zone) if zone else rule


def plan(due: DueSchedule, tzdata: str) -> FirePlan:
    """What becomes of a schedule that is due, by this version of the zone data.

    It raises where the stored definition is wrong.
    """
    rule = rule_of(due.rule, due.zone)
    on_time = max(FIRE_ON_TIME, FAST_CLOCK_SLACK * due.speed)
    policy = FirePolicy(catch_up=due.catch_up, within=due.within, most=due.most, running=due.running, on_time=on_time)
    found = [_anew(one, due, rule, tzdata) for one in decide(rule, due.after, due.now, policy, busy=due.busy)]
    template = read_job(due.job)
    fires, jobs = list[dict[str, Any]](), list[NewJob | None]()
    for one in found:
        fire = uuid7()
        job = None
        if one.how == "fired" and not due.by_entity:
            at = one.tick.at + jitter(due.org, due.name, due.zone, one.tick.at, due.jitter)
            filled = {"zone": rule.zone, "instant": one.tick.at}
            job = make(template, fire, due.name, at, {field: filled[field] for field in due.fill})
        fires.append({
            "org_id": due.org, "id": fire, "schedule": due.name, "zone": due.zone, "instant": one.tick.at,
            "local": label(one.tick.local), "how": one.how, "reason": one.reason, "instants": one.instants,
        })  # fmt: skip
        jobs.append(job)
    last = found[-1].tick if found else None
    after = last.at if last else due.after
    following = rule.next(after)
    move = {
        "org_id": due.org, "schedule": due.name, "zone": due.zone, "after": after,
        "next_at": following and following.at, "local": last.local.replace(tzinfo=None) if last else due.local,
        "tzdata": tzdata if last else due.tzdata, "problem": None,
    }  # fmt: skip
    return FirePlan(due, fires, jobs, move)


def _anew(one: Occurrence, due: DueSchedule, rule: Rule, tzdata: str) -> Occurrence:
    """After a change of the zone data, a local time that has fired may come again as another instant: not twice."""
    if due.tzdata in (None, tzdata) or due.local is None or rule.expression is None or one.how != "fired":
        return one
    if parse(rule.expression).steady or one.tick.local.replace(tzinfo=None) > due.local:
        return one
    return one._replace(how="skipped", reason="the zone data has changed, and this local time has fired already")
