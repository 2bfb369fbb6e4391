"""Tasks over HTTP: what the application can do, and what a job of each must carry."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import msgspec

from mainspring.declare.registry import ENGINE_REGISTRY
from mainspring.declare.task import Task
from mainspring.web.api.asking import Asking
from mainspring.web.api.operation import Resource
from mainspring.web.api.paging import PageOf, Paging
from mainspring.web.api.refused import not_found
from mainspring.web.api.terms import TaskName

tasks = Resource("tasks", "Functions that run as jobs, with the schema of what a job of each carries.")


class TaskSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A task as a list shows it."""

    name: str
    app: str
    about: str
    category: str
    queue: str
    priority: int
    retry: str
    runs: str


class TaskView(TaskSummary, frozen=True, kw_only=True):
    """A task: every option with its value, declared or default; spans are seconds, `payload` is a JSON Schema."""

    dedupe: dict[str, Any] | None
    strand: str | None
    key_ttl_s: float | None
    needs: list[str]
    timeout_s: float
    snooze_limit_s: float | None
    cancellable: bool
    schedulable: bool
    project_scoped: bool
    halve: str | None
    reason: str | None
    subject: str | None
    encrypt: bool
    best_effort: bool
    aliases: tuple[str, ...]
    payload: dict[str, Any]


@tasks.get("/tasks", role="viewer")
async def list_tasks(asking: Asking, page: Paging[str], everything: bool = False) -> PageOf[TaskSummary]:
    """The tasks of the application by name; with `everything` those of the built-in maintenance, too."""
    known = sorted(asking.registry, key=lambda task: task.name)
    wanted = [task for task in known if everything or task.app != ENGINE_REGISTRY]
    rest = [TaskSummary(**_summary(task)) for task in wanted if task.name > (page.after or "")]
    return page.of(rest, lambda task: task.name)


@tasks.get("/tasks/{name}", role="viewer")
async def show_task(asking: Asking, name: TaskName) -> TaskView:
    """One task by its name, or by a former one."""
    if name not in asking.registry:
        raise not_found()
    task = asking.registry.get(name)
    same = {option: getattr(task, option) for option in TaskView.__struct_fields__ if hasattr(task, option)}
    dedupe = None if task.dedupe is None else asdict(task.dedupe)
    if dedupe is not None:
        dedupe |= {f"{span}_s": _seconds(dedupe.pop(span)) for span in ("ttl", "wait")}
    return TaskView(**same | _summary(task) | {
        "dedupe": dedupe,
        "key_ttl_s": _seconds(task.key_ttl),
        "needs": [str(need) for need in task.needs],
        "timeout_s": _seconds(task.timeout),
        "snooze_limit_s": _seconds(task.snooze_limit),
        "payload": task.codec.schema(),
    })  # fmt: skip


def _summary(task: Task[..., Any, Any]) -> dict[str, Any]:
    return {
        "name": task.name,
        "app": task.app,
        "about": task.doc,
        "category": task.category.name,
        "queue": task.queue,
        "priority": task.priority,
        "retry": task.retry.describe(),
        "runs": task.runs,
    }


def _seconds(span: Any) -> float | None:
    return None if span is None else float(span.total_seconds())
