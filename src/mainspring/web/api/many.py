"""What is done to many jobs by one request: which are meant, and which were left alone."""

from __future__ import annotations

from typing import Annotated, Final
from uuid import UUID

import msgspec

from mainspring.web.api.terms import JobId

MOST_AT_ONCE: Final = 1000


class Many(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Some by their ids, how many at most, and whether it is only asked what would be done."""

    ids: Annotated[list[JobId], msgspec.Meta(min_length=1, max_length=MOST_AT_ONCE)] | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=MOST_AT_ONCE)] = MOST_AT_ONCE
    dry_run: bool = False

    def named(self) -> tuple[list[UUID], int]:
        """Those that are named, in an order that is the same for all, so that no two acts wait for each other.

        And how many there are beyond the limit.
        """
        every = sorted(set(self.ids or ()))
        return every[: self.limit], max(len(every) - self.limit, 0)


class LeftAlone(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job to which it was not done, and why: the state it is in, or not_found, not_cancellable, already_finished.

    Of a dead letter not_found or not_possible_now, with the reason as `detail`.
    """

    id: JobId
    outcome: str
    detail: str | None = None


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """How many were meant, and to how many it was done, or would be; those that were named and left alone, and why."""

    meant: int
    done: int
    left_alone: list[LeftAlone] = []
    dry_run: bool
