"""What people see of a flow, as a dialogue: the jobs that are linked with one, and which waits for which."""

from __future__ import annotations

from uuid import UUID

import msgspec

from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue, Statement, ask, scalar
from mainspring.job import Job

#: So many jobs of a flow are shown.
MOST_LINKED = 500


class LinkedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job of a flow; one that was pruned has no state any more, but its links say how it ended."""

    id: UUID
    task: str | None
    state: str | None
    gate: str | None


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """One job waits for another, which has ended in `state`; `met`: it holds it no longer."""

    child: UUID
    parent: UUID
    place: int
    anyway: bool
    state: str | None
    met: bool


class Linked(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of a flow and their links; `complete`: there are surely no others."""

    jobs: list[LinkedJob]
    links: list[Link]
    complete: bool = True


def around(sql: Sql, job: Job) -> Dialogue[Linked]:
    """The flow that a job belongs to, or a part of it that is near; a job in none stands alone."""
    params: dict[str, str | int | None] = {"id": str(job.id), "org": job.org_id, "limit": MOST_LINKED}
    text: str = yield from ask(Statement(sql["flow_of_job"], params, scalar))
    found = msgspec.json.decode(text, type=Linked)
    return found if len(found.jobs) < MOST_LINKED else msgspec.structs.replace(found, complete=False)
