"""Jobs that were enqueued before a handler changed run after it: put there by SQL, in each shape ever stored."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.declare.test_growth import handler
from tests.declare.test_payload import MODELS
from tests.worker.stage import Stage

from mainspring import Registry

pytestmark = pytest.mark.anyio

#: As the tree before stored them: a lone model as its fields, one beside another parameter under its name.
FLAT = {"id": 7, "lines": [], "amount": 1.5}
SHAPES = {
    "fields": FLAT,
    "fields and another": FLAT | {"note": "x"},
    "by name": {"invoice": FLAT},
    "by name and another": {"invoice": FLAT, "note": "x"},
}


def recording(fn: Callable[..., Any], seen: list[dict[str, Any]]) -> Callable[..., Any]:
    async def issue(**arguments: Any) -> None:
        seen.append(arguments)

    issue.__wrapped__ = fn  # type: ignore[attr-defined] # whose signature it has
    return issue


@pytest.mark.parametrize("model", [model for _, model in MODELS])
async def test_jobs_of_every_shape_run_by_the_handler_of_today(stage: Stage, model: Any) -> None:
    invoice = model(**FLAT)
    handlers = {
        "alone": {"invoice": model},
        "with another": {"invoice": model, "note": (str, "")},
        "optional": {"invoice": (model | None, None), "note": (str, "")},
        "another first": {"note": (str, ""), "invoice": (model, model(id=0))},
    }
    for name, hints in handlers.items():
        tasks, seen = Registry("shop"), list[dict[str, Any]]()
        tasks.task(name="issue")(recording(handler(**hints), seen))
        for payload in SHAPES.values():
            stage.rows("select * from mainspring.enqueue('issue', %s)", json.dumps(payload))
        stage.conn.commit()
        await stage.drain(tasks)

        with_note = {"note": "x"} if "note" in hints else {}
        assert len(seen) == len(SHAPES), name
        assert all(arguments["invoice"] == invoice for arguments in seen), name
        assert sorted(len(arguments) for arguments in seen) == sorted([1, 1, *[1 + len(with_note)] * 2]), name
    assert stage.rows("select distinct state from mainspring.jobs") == [("succeeded",)]
