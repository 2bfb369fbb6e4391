"""Why is this job not running? One statement gathers the situation, `mainspring.health.explain` says what it means."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from mainspring.codes import explained
from mainspring.db.jobs import Who, check_id
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue, Statement, ask, scalar
from mainspring.errors import JobNotFound
from mainspring.health.explain import Explanation, explain
from mainspring.health.situation import MOST_AHEAD, Situation
from mainspring.job import Id

_decode = msgspec.json.Decoder(Situation).decode


def explain_job(sql: Sql, job_id: Id, who: Who, gone_after: timedelta) -> Dialogue[Explanation]:
    """Why a job runs or does not, by the claim's own predicates."""
    params: dict[str, str | int | None] = {"id": str(check_id(job_id)), "org": who.org_id, "most": MOST_AHEAD}
    params["gone_after"] = f"{gone_after.total_seconds()} s"
    text: str | None = yield from ask(Statement(sql["explain"], params, scalar))
    if text is None:
        raise JobNotFound(f"there is no job {job_id}", job_id=job_id)
    situation = _decode(text)
    return explain(situation, _advice(situation))


def _advice(situation: Situation) -> str | None:
    """What the error means, and what to do about a job that will not run again by itself."""
    error, state = situation.job.error, situation.job.state
    if not error or state in ("succeeded", "cancelled") or situation.job.resolution:
        return None
    code = explained(error)
    if state not in ("failed", "dead"):
        return code.text
    return f"{code.text} Check first: {code.plan.check} Advised: {code.plan.advised}."
