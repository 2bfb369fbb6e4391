"""By whom a block acts: a client, or the context of a handler; each has a seam, and a verb is written once for all."""

from __future__ import annotations

from mainspring.client import AsyncClient, Client
from mainspring.client.aio import AsyncSeam
from mainspring.client.sync import SyncSeam
from mainspring.declare.context import Context, SyncContext
from mainspring.errors import ConfigurationError

SyncBy = Client | SyncContext
AsyncBy = AsyncClient | Context
By = SyncBy | AsyncBy


def seam_of(by: By) -> SyncSeam | AsyncSeam:
    """The seam of who acts."""
    match by:
        case Client() | AsyncClient():
            return by.seam
        case Context() | SyncContext():
            return by.client.seam
    raise ConfigurationError("by: is neither a client nor the context of a handler")
