"""Idempotency keys as Stripe has them: the first answer is the answer, for a day."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from mainspring_sandbox.stripe.errors import ErrorAnswer, invalid
from mainspring_sandbox.world import World

KEY_KEPT: Final = timedelta(hours=24)
LONGEST_SANDBOX_KEY: Final = 255


@dataclass(frozen=True, slots=True)
class EarlierAnswer:
    """An answer that was given before."""

    request: str  # the id of the first request
    status: int
    body: str


def fingerprint(method: str, path: str, given: list[tuple[str, str]]) -> str:
    """What two requests with one key must have in common; the order of the parameters is not part of it."""
    return hashlib.sha256(json.dumps([method, path, sorted(given)]).encode()).hexdigest()


class IdempotencyKeys:
    """The keys of all accounts: those that are answered, in the ledger, and those of requests that still run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._running: set[str] = set()

    def find(self, account: str | None, key: str, print: str) -> EarlierAnswer | None:
        """What was answered under a key; refused if it was to another request."""
        if len(key) > LONGEST_SANDBOX_KEY:
            raise invalid(f"Idempotency keys have up to {LONGEST_SANDBOX_KEY} characters.")
        kept = self._world.ledger.answer("stripe", _place(account, key))
        if kept is None or self._world.now() - kept.at >= KEY_KEPT:
            return None
        first = json.loads(kept.request)
        if first["print"] != print:
            raise ErrorAnswer(
                400,
                f"Keys for idempotent requests can only be used with the same parameters they were first used with. "
                f"Try using a key other than '{key}' if you meant to execute a different request.",
                type="idempotency_error",
            )
        return EarlierAnswer(first["id"], kept.status, kept.body)

    @contextmanager
    def running(self, account: str | None, key: str | None) -> Iterator[None]:
        """While a request runs, another one with its key is sent away."""
        if key is None:
            yield
            return
        place = _place(account, key)
        if place in self._running:
            raise ErrorAnswer(
                409,
                f"There is currently another in-progress request using this Idempotent Key: {key}. Try again later.",
                type="idempotency_error",
                code="idempotency_key_in_use",
            )
        self._running.add(place)
        try:
            yield
        finally:
            self._running.discard(place)

    def keep(self, account: str | None, key: str, print: str, request: str, status: int, body: Any) -> None:
        """Remember an answer."""
        first = json.dumps({"print": print, "id": request})
        self._world.ledger.answered("stripe", _place(account, key), first, status, body)

    def reset(self) -> None:
        """Know of no request that runs."""
        self._running.clear()

    def forget(self) -> None:
        """As if a day had passed."""
        self._world.ledger.forget_answers("stripe")


def _place(account: str | None, key: str) -> str:
    return f"{account or ''}/{key}"
