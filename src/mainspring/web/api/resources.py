"""All resources of the API, in the order of the document: a new one is added here, and nowhere else."""

from __future__ import annotations

from typing import Final

from mainspring.web.api import fixes, job_acts, job_bulk, job_parts, many_dead_letters, user_acts
from mainspring.web.api.alerts import alerts
from mainspring.web.api.audit import audit
from mainspring.web.api.batches import batches
from mainspring.web.api.breakers import breakers
from mainspring.web.api.dead_letters import dead_letters
from mainspring.web.api.fair import fair
from mainspring.web.api.fires import fires
from mainspring.web.api.jobs import jobs
from mainspring.web.api.limits import limits
from mainspring.web.api.operation import Operation, Resource
from mainspring.web.api.quarantine import quarantine
from mainspring.web.api.queues import queues
from mainspring.web.api.schedules import schedules
from mainspring.web.api.stats import stats
from mainspring.web.api.tasks import tasks
from mainspring.web.api.tokens import tokens
from mainspring.web.api.users import users
from mainspring.web.api.workers import workers

#: A resource may have rooms of its own, which add their operations to it.
ROOMS: Final = (job_parts, job_acts, job_bulk, fixes, many_dead_letters, user_acts)
RESOURCES: Final[tuple[Resource, ...]] = (
    jobs,
    tasks,
    queues,
    stats,
    dead_letters,
    batches,
    alerts,
    audit,
    fair,
    limits,
    breakers,
    schedules,
    fires,
    workers,
    quarantine,
    tokens,
    users,
)
OPERATIONS: Final[tuple[Operation, ...]] = tuple(one for resource in RESOURCES for one in resource.operations)
