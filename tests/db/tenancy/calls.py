"""What to call a function with, so that it means something of an organisation: by a parameter's name, else its type."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from uuid import UUID

from tests.db.engine import ERROR

from mainspring.uuid7 import uuid7

#: A name or a type that is not here is an error: a new function says by it what it should be called with.
PLAIN: dict[str, Any] = {
    "p_actor_type": "user",
    "actor_type": "user",
    "p_states": "{succeeded,failed}",
    "p_queues": "{q:default}",
    "p_queue": "q:default",
    "queue": "q:default",
    "mode": "replace",
    "reset": "true",
    "p_event": "order.paid",
    "p_name": "another step",
    "p_severity": "warning",
    "p_subject": "",
    "p_dry": "false",
    "p_best_effort": "false",
    "p_becomes": "paused",
    "p_limits": "{100}",
    "p_zone": "",
    "p_definition": json.dumps(
        {
            "rule": {"kind": "every", "interval": "PT1H"},
            "description": "every hour",
            "zone": "UTC",
            "task": "t",
            "job": {"task": "t", "payload": {}},
            "fill": [],
            "catch_up": "skip",
            "running": "allow",
            "jitter": "0 s",
            "by_zone": False,
            "by_entity": False,
            "page": 100,
            "spread": "0 s",
        }
    ),
    "cron": "0 10 * * *",
    "zone": "UTC",
    "catch_up": "latest",
    "running": "allow",
    "jitter": "0 s",
    "gap": "shift",
    "overlap": "first",
    **dict.fromkeys(("every", "within", "most", "p_declared_by")),
    "p_role": "viewer",
    "p_source": "oidc",
    "p_change": json.dumps({"role": "admin", "disabled": True}),
    "p_priority": 1,
    "priority": 1,
    "max_attempts": 5,
    **dict.fromkeys(("p_after", "p_state", "p_code", "p_fingerprint", "p_task", "p_since", "p_project", "p_results")),
    **dict.fromkeys(("traceparent", "scheduled_for", "parent_id", "project_id", "ttl", "wait", "delay")),
    # by type
    "text": "because",
    "json": "{}",
    "jsonb": "{}",
    "bytea": "x",
    "integer": 3,
    "oid": 1259,
    "smallint": 1,
    "interval": "60 s",
    "boolean": "true",
    "timestamp with time zone": "2200-01-01Z",
    "timestamp with time zone[]": "{-infinity}",
    "text[]": "{}",
    "integer[]": "{1}",
    "jsonb[]": "{}",
}


@dataclass
class Org:
    """What an organisation has, to be named by somebody else."""

    name: str
    jobs: list[UUID] = field(default_factory=list)
    epoch: int = 0

    @property
    def worker(self) -> str:
        return f"worker of {self.name}"

    @property
    def task(self) -> str:
        return f"task of {self.name}"

    @property
    def key(self) -> str:
        return f"key of {self.name}"

    def unknown(self) -> Org:
        """One that asks for as much, of which nothing exists."""
        return Org("nobody", [uuid7() for _ in self.jobs], 10**15)

    def masked(self, answer: str) -> str:
        """An answer with placeholders for its names."""
        names = (*map(str, self.jobs), str(self.epoch), self.key, self.worker, self.task, self.name)
        return _any_of(names).sub(lambda found: f"<{names.index(found[0])}>", answer)


@cache
def _any_of(names: tuple[str, ...]) -> re.Pattern[str]:
    # A number inside an instant is no name: the clock shows any of them now and then.
    return re.compile(
        "|".join(
            rf"(?<!\w)(?<!\d[:.+-]){name}(?!\w|[:.+-]\d)" if name.isdigit() else rf"\b{re.escape(name)}\b"
            for name in names
        )
    )


def argument(name: str, kind: str, org: Org, n: int, scoped: bool) -> str | None:
    """The value of a parameter; `n` is the job that is meant, `scoped` says whether the organisation is named."""
    job, new = str(org.jobs[n]), str(UUID(int=1000 + n, version=4))
    envelope = {
        "id": new,
        "org_id": org.name,
        "task": "t",
        "payload": {},
        "queue": "q:default",
        "priority": 2,
        "max_attempts": 5,
        "cancellable": True,
        "actor_type": "user",
        "actor_id": "ada",
        "request_id": "r",
        "correlation_id": "c",
        "mode": "replace",
        "reset": True,
        "key": org.key,
        "created_at": "2026-01-01T00:00:00Z",
        "due_at": "2026-01-01T00:00:00Z",
    }
    note = {
        "org_id": org.name,
        "id": new,
        "recipient_id": org.key,
        "channel": "email",
        "template": "t",
        "class": "normal",
        "necessary": False,
        "data": {},
        "payload_hash": "h",
    }
    values = PLAIN | {
        "p_org": org.name if scoped else None,
        "org_id": org.name,
        "key": org.key,
        "p_key": org.key,
        "p_recipient": org.key,
        "p_notes": json.dumps([note]),
        "p_worker": org.worker,
        "p_tasks": f"{{{org.task}}}",
        "p_jobs": json.dumps([envelope]),
        "p_batch": json.dumps({"id": job, "org_id": org.name}),
        "p_links": "[]",
        "p_job": json.dumps(envelope),
        "p_moves": json.dumps([{"epoch": org.epoch, "verb": "reject", "error": ERROR}]),
        "p_reports": json.dumps([{"epoch": org.epoch, "serial": 9, "done": 2}]),
        "p_ids": "{" + ",".join(map(str, org.jobs)) + "}",
        "id": new,
        "p_new": new,
        "p_bulk": new,
        # by type
        "uuid": job,
        "uuid[]": f"{{{job}}}",
        "bigint": org.epoch,
        "bigint[]": f"{{{org.epoch}}}",
    }
    if kind.startswith("mainspring."):
        number = {"mainspring.audit": org.epoch}.get(kind, job)
        row = {**envelope, "id": number, "job_id": job, "epoch": org.epoch, "worker": org.worker}
        return json.dumps(row | {"started_at": envelope["due_at"]})  # not now, whose digits may be those of an epoch
    value = values[name if name in values else kind]
    return None if value is None else str(value)


def holder(kind: str) -> str:
    """Where the value stands in the call."""
    return f"jsonb_populate_record(null::{kind}, %s::jsonb)" if kind.startswith("mainspring.") else f"%s::text::{kind}"
