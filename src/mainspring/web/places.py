"""Places: how many requests are worked on at once, and how long a body may take to arrive.

Who sends half a body and then nothing has no place: as many as want to may do so, and others are answered meanwhile.
"""

from __future__ import annotations

import asyncio

from starlette.exceptions import HTTPException
from starlette.types import Message, Receive

MOST_REQUESTS = 1000  # at work at once; whoever else comes is told to come back
MOST_HALF_SENT = 1000  # bodies that are waited for; beyond them the one that has taken longest is given up
BODY_S = 10.0  # seconds for a body to arrive, counted from when somebody wants it


class Places:
    """The places of one process."""

    def __init__(self) -> None:
        self._at_work = 0
        self._half_sent: set[asyncio.Timeout] = set()

    def take(self) -> bool:
        """Take a place, if one is free."""
        if self._at_work >= MOST_REQUESTS:
            return False
        self._at_work += 1
        return True

    def leave(self) -> None:
        """Give it back."""
        self._at_work -= 1

    async def arriving(self, receive: Receive, deadline: float) -> Message:
        """The next part of a body, which holds no place until it is here; 408 where it does not come in time."""
        self.leave()
        limit = asyncio.timeout_at(deadline)
        try:
            async with limit:
                self._half_sent.add(limit)
                if len(self._half_sent) > MOST_HALF_SENT:
                    self._give_up_longest()
                return await receive()
        except TimeoutError:
            raise HTTPException(408, "The body did not arrive in time", {"connection": "close"}) from None
        finally:
            self._half_sent.discard(limit)
            self._at_work += 1

    def _give_up_longest(self) -> None:
        longest = min(self._half_sent, key=lambda limit: limit.when() or 0.0)
        self._half_sent.discard(longest)
        if not longest.expired():
            longest.reschedule(0.0)
