"""All resources of the API, in the order of the document: a new one is added here, and nowhere else."""

from __future__ import annotations

from typing import Final

from mainspring.web.api.breakers import breakers
from mainspring.web.api.fair import fair
from mainspring.web.api.fires import fires
from mainspring.web.api.jobs import jobs
from mainspring.web.api.limits import limits
from mainspring.web.api.operation import Operation, Resource
from mainspring.web.api.quarantine import quarantine
from mainspring.web.api.queues import queues
from mainspring.web.api.schedules import schedules
from mainspring.web.api.workers import workers

RESOURCES: Final[tuple[Resource, ...]] = (
    jobs,
    queues,
    fair,
    limits,
    breakers,
    schedules,
    fires,
    workers,
    quarantine,
)
OPERATIONS: Final[tuple[Operation, ...]] = tuple(one for resource in RESOURCES for one in resource.operations)
