"""Batches and flows as the engine's SQL has them, without client and worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec
from tests.db.engine import Engine

from mainspring.job import Enqueued
from mainspring.uuid7 import uuid7


def encode(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def job(task: str = "t", **fields: Any) -> dict[str, Any]:
    return {"id": uuid7(), "task": task, "payload": {}, **fields}


def enqueue_flow(engine: Engine, jobs: Sequence[Mapping[str, Any]], links: Sequence[Mapping[str, Any]]) -> list[UUID]:
    rows = engine.ask("enqueue_flow", {"jobs": encode(jobs), "links": encode(links)})
    return [Enqueued(*row).id for row in rows]


def enqueue_batch(engine: Engine, jobs: Sequence[Mapping[str, Any]], **fields: Any) -> UUID:
    """A batch whose on-finish job is of the task `tell`."""
    id_ = uuid7()
    last = job("tell", max_attempts=1, key=f"batch:{id_}", mode="reset_failed")
    about = {"id": id_, "org_id": "default", "name": "b", "on_finish": last, **fields}
    engine.ask("enqueue_batch", {"batch": encode(about), "jobs": encode(jobs)})
    return id_


def batch(engine: Engine, id_: UUID) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(engine.value("get_batch", {"id": str(id_), "org": None}))
    return found


def sweep(engine: Engine) -> None:
    """What every worker's rescuer does every few seconds."""
    engine.ask("release_held")
