"""The tasks that the client's tests enqueue."""

from __future__ import annotations

from typing import Any

import mainspring as ms

tasks = ms.Registry("client_tests")


@tasks.task
async def greet(*, name: str = "Ada", times: int = 1) -> None:
    """Greet somebody."""


@tasks.task
async def store(*, value: Any) -> None:
    """Take any JSON value."""


@tasks.task(project_scoped=True)
async def plan(*, day: int) -> None:
    """Belongs to a project."""


@tasks.task
async def bill(*, tenant_id: int, branch_id: int | None = None, invoice_id: int | None = None) -> None:
    """Carries references only."""


@tasks.task(schedulable=False)
async def at_once() -> None:
    """Cannot be scheduled."""
