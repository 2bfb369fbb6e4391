"""A provider's events, each given to the task that wants those of its type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from mainspring.declare.block import Received
from mainspring.declare.task import Task
from mainspring.errors import DeclarationError, ValidationError
from mainspring.job import NewJob
from mainspring.text.texts import text_problem

LONGEST_EVENT_NAME: Final = 255  # characters of an id and of a type
AnyTask = TypeVar("AnyTask", bound=Task[..., Any])


class HeardEvents:
    """Where a provider's webhooks come in, `/v1/inbound/<name>`, without how they are verified."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._wanted: dict[str, Task[..., Any]] = {}

    def on(self, *types: str) -> Callable[[AnyTask], AnyTask]:
        """A decorator: the task gets the events of these types."""

        def wanted(task: AnyTask) -> AnyTask:
            self.want(task, *types)
            return task

        return wanted

    def want(self, task: Task[..., Any], *types: str) -> None:
        """From here on the task gets the events of these types."""
        for type_ in types:
            if text_problem(type_, LONGEST_EVENT_NAME):
                raise DeclarationError(f"{self.name}: {type_!r} is no type of an event")
            if self._wanted.setdefault(type_, task) is not task:
                raise DeclarationError(f"{self.name}: {type_} is wanted by {self._wanted[type_].name} already")
        try:
            self._job(task, "evt_1")
        except (TypeError, ValidationError) as error:
            raise DeclarationError(f"{self.name}: task {task.name} takes provider and event_id: {error}") from None

    def job(self, received: Received) -> NewJob | None:
        """The job of the task that wants it."""
        task = self._wanted.get(received.type)
        return None if task is None else self._job(task, received.event_id)

    def _job(self, task: Task[..., Any], event_id: str) -> NewJob:
        return task.job(provider=self.name, event_id=event_id)
