"""What is printed of a dead letter and of its successor, for people."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from mainspring.cli import output
from mainspring.text.sanitize import masked

if TYPE_CHECKING:
    from mainspring.db.dead import Case, Decision
    from mainspring.db.decisions import Fix

COMMANDS = {
    "replay": 'mainspring dead replay {} --reason "…"',
    "discard": 'mainspring dead discard {} --reason "…"',
    "fix-forward": 'mainspring dead fix {} --set field=value --reason "…"',
}
ATTEMPT_COLUMNS = ("ATTEMPT", "OUTCOME", "STARTED", "ENDED", "WORKER", "ERROR")


def line(code: str | None, text: str | None) -> str:
    """An error in one line."""
    return f"{code}: {text}"[:200]


def tell(case: Case, now: datetime) -> None:
    """Print everything about a dead letter, and what to do next."""
    job, about, error = case.job, case.about, case.job.error or {}
    todo = {"advised": case.plan.advised, "command": COMMANDS[case.plan.advised].format(job.id)}
    output.fields(
        {
            "job": job.id,
            "task": job.task,
            "state": job.state,
            "queue": about.queue,
            "org": job.org_id,
            "key": None if job.idempotency_key == str(job.id) else job.idempotency_key,
            "attempts": f"{job.attempt} of {job.max_attempts}",
            "created": job.created_at,
            "finished": job.finished_at,
            "payload": job.payload,
            "payload hash": about.payload_hash,
            "fingerprint": about.fingerprint,
            "error": line(error.get("code"), error.get("message")),
            "meaning": case.meaning,
            "check first": case.plan.check,
            **(todo if about.decision is None else {"decided": _decided(about.decision)}),
        },
        now=now,
    )
    output.say("")
    if error.get("stack"):
        output.block(error["stack"])
    errors = ((a, a.error or {}) for a in case.attempts)
    rows = ((a.attempt, a.outcome, a.started_at, a.ended_at, a.worker, _of(e)) for a, e in errors)
    output.table(ATTEMPT_COLUMNS, rows, "It has no attempts.")


def tell_fix(made: Fix, task: str) -> None:
    """Print what a correction changes, and what became of it."""
    for change in made.diff:
        old, new = (_json(change[name]) if name in change else "nothing" for name in ("old", "value"))
        output.say(f"{change['path'] or '/'}: {old} → {new}")
    if not made.checked:
        output.say(f"Checked as JSON only: give --app to check it against {task}.")
    if made.dry_run:
        output.say(f"{made.job}: would be fixed forward by a new job of {task}; nothing was written.")
    else:
        output.say(f"{made.successor}: ready, in place of {made.job}")


def _decided(decision: Decision) -> str:
    to = f" by job {decision.successor}" if decision.successor else ""
    what = f"{decision.resolution.replace('_', ' ')}{to}"
    return f"{what}, says {decision.by} at {output.text(decision.at)}: {decision.reason}"


def _of(error: dict[str, Any]) -> str:
    return line(error.get("code"), error.get("message"))


def _json(value: Any) -> str:
    return msgspec.json.encode(masked(value)).decode()
