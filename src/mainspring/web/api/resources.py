"""All resources of the API, in the order of the document: a new one is added here, and nowhere else."""

from __future__ import annotations

from typing import Final

from mainspring.web.api.jobs import jobs
from mainspring.web.api.operation import Operation, Resource
from mainspring.web.api.queues import queues

RESOURCES: Final[tuple[Resource, ...]] = (
    jobs,
    queues,
)
OPERATIONS: Final[tuple[Operation, ...]] = tuple(one for resource in RESOURCES for one in resource.operations)
