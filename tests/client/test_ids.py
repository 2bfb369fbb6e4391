"""An id is given as a UUID or as its text, to every verb that takes one."""

from __future__ import annotations

from typing import Any

import pytest

import mainspring as ms
from mainspring.declare.task import Task

pytestmark = pytest.mark.anyio


async def work() -> None: ...


async def test_text_of_an_id_is_the_id(client: Any) -> None:
    task: Task[[], None, Any] = Task(work, app="shop")
    id = (await client.enqueue(task.job())).id

    assert (await client.get(str(id))).id == id
    assert await client.attempts(str(id)) == []
    assert await client.steps(str(id)) == []
    assert (await client.explain(str(id))).id == id
    assert await client.prioritize(str(id), 0) == 2
    assert await client.reschedule(str(id), delay="1h") == "scheduled"
    assert await client.cancel(str(id)) == "cancelled"


async def test_text_that_is_no_id_is_refused(client: Any) -> None:
    for verb in (client.get, client.attempts, client.steps, client.explain, client.cancel):
        with pytest.raises(ms.ValidationError, match=r"^job: is not a UUID$"):
            await verb("7")
