"""Ids as people type them: whole, or so many of the first digits that they name one job or one batch."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from mainspring.errors import BatchNotFound, JobNotFound, ValidationError
from mainspring.uuid7 import beginning_with

if TYPE_CHECKING:
    from mainspring.client import Client

_CANDIDATES = 5  # that are named where more than one is meant


class TypedId(str):
    """An id, or its first digits."""

    def __new__(cls, text: str) -> TypedId:
        """What is neither is refused."""
        beginning_with(text)
        return super().__new__(cls, text)

    @property
    def whole(self) -> UUID | None:
        """The id, where nothing of it is left out."""
        low, high = beginning_with(self)
        return low if low == high else None


def job_named(client: Client, typed: TypedId, org: str | None = None) -> UUID:
    """The one job whose id begins so, among those that this user may see."""
    if (whole := typed.whole) is not None:
        return whole
    found = client.jobs(prefix=typed, org=org, limit=_CANDIDATES + 1)
    if not found:
        raise JobNotFound(f"there is no job {typed}…")
    return _only("job", typed, [(job.id, f"{job.task}, {job.state}") for job in found])


def batch_named(client: Client, typed: TypedId) -> UUID:
    """The one batch whose id begins so, among those that this user may see."""
    if (whole := typed.whole) is not None:
        return whole
    found = client.batches.list(prefix=typed, limit=_CANDIDATES + 1)
    if not found:
        raise BatchNotFound(f"there is no batch {typed}…")
    return _only("batch", typed, [(batch.id, f"{batch.name}, {batch.state}") for batch in found])


def _only(what: str, typed: str, found: list[tuple[UUID, str]]) -> UUID:
    if len(found) == 1:
        return found[0][0]
    named = "; ".join(f"{id} ({about})" for id, about in found[:_CANDIDATES])
    more = "; and more" if len(found) > _CANDIDATES else ""
    raise ValidationError(f"{what}: {typed} begins several ids, give more digits: {named}{more}", field=what)
