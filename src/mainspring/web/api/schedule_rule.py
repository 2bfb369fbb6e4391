"""What a schedule is to be, as a request says it."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from mainspring.declare.registry import Registry
from mainspring.declare.task import Task
from mainspring.errors import ValidationError
from mainspring.text.texts import did_you_mean
from mainspring.web.api.terms import Instant, QueueName, Reason, ScheduleName, SpanText, TaskName, ZoneName
from mainspring.when.fire import MOST_CAUGHT_UP, CatchUp, WhileRunning
from mainspring.when.occurrences import Gap, Overlap
from mainspring.when.rule import Rule
from mainspring.when.spoken import spoken_rule

_OPTIONS = ("within", "most", "jitter", "queue", "priority")


class ScheduleRule(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A rule, `cron` or `every`, the task that it enqueues, and what happens when an instant is missed."""

    task: TaskName
    cron: Annotated[str, msgspec.Meta(min_length=1, max_length=200, examples=["0 10 * * WED"])] | None = None
    every: SpanText | None = None
    anchor: Instant | None = None
    zone: ZoneName = "UTC"
    gap: Gap = "shift"
    overlap: Overlap = "first"
    payload: dict[str, Any] | None = None
    catch_up: CatchUp = "latest"
    within: SpanText | None = None
    most: Annotated[int, msgspec.Meta(ge=1, le=MOST_CAUGHT_UP)] | None = None
    running: WhileRunning = "allow"
    jitter: SpanText | None = None
    queue: QueueName | None = None
    priority: Annotated[int, msgspec.Meta(ge=0, le=3)] | None = None
    reason: Reason = None

    def spoken(self) -> Rule:
        """The rule of time."""
        return spoken_rule(
            self.cron, self.every, zone=self.zone, gap=self.gap, overlap=self.overlap, anchor=self.anchor
        )

    def known_task(self, registry: Registry) -> Task[..., Any]:
        """The task, which must be the application's: nobody would run its jobs."""
        if self.task not in registry:
            known = did_you_mean(self.task, registry.names())
            raise ValidationError(f"task: is none of this application{known}", field="task")
        return registry.get(self.task)

    def options(self) -> dict[str, Any]:
        """What else is said of it."""
        said = {name: getattr(self, name) for name in _OPTIONS}
        said = {name: value for name, value in said.items() if value is not None}
        return {"catch_up": self.catch_up, "running": self.running, **said}


class NewSchedule(ScheduleRule, kw_only=True):
    """A schedule that there is not yet."""

    name: ScheduleName
