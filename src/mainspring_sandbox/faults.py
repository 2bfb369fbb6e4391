"""Faults of providers, switched on and off at run time: slow, an error, silence, or a broken line after acceptance."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec

FaultKind = Literal["slow", "error", "timeout", "drop"]


class Fault(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What goes wrong at a provider, how often, and for which requests.

    `slow`: the answer comes late. `error`: it is refused with `status`, nothing happens. `timeout`: it is never
    answered, nothing happens. `drop`: it is accepted, and the connection breaks before the answer. With `accepted`, an
    `error` or a `timeout` comes after the request was carried out: the caller cannot know, as with `drop`.
    """

    provider: str
    kind: FaultKind
    rate: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0  # of the requests
    times: Annotated[int, msgspec.Meta(ge=0)] | None = None  # so often at the most
    path: str = ""  # only requests whose path holds this
    method: str = ""  # only requests with this method
    accepted: bool = False
    status: Annotated[int, msgspec.Meta(ge=400, le=599)] = 500
    code: str | None = None  # what the error calls itself, such as `rate_limit`
    retry_after: Annotated[int, msgspec.Meta(ge=0)] | None = None
    seconds: Annotated[float, msgspec.Meta(ge=0)] = 1.0  # how late `slow` is


class Faults:
    """The faults that are on; the first that fits a request strikes."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._chance = random.Random(seed)  # noqa: S311 (repeatable, no secret)
        self._lock = threading.Lock()
        self.on: list[Fault] = []
        self.struck: Counter[tuple[str, FaultKind]] = Counter()

    def set(self, *faults: Fault) -> None:
        """Switch on."""
        with self._lock:
            self.on += faults

    def clear(self, provider: str | None = None) -> None:
        """Switch off, all or those of a provider."""
        with self._lock:
            self.on = [fault for fault in self.on if provider not in (None, fault.provider)]

    def reset(self) -> None:
        """As at the beginning: none, and the same chance again."""
        with self._lock:
            self.on.clear()
            self.struck.clear()
            self._chance.seed(self._seed)

    def strike(
        self,
        provider: str,
        path: str = "",
        kinds: Iterable[FaultKind] = ("slow", "error", "timeout", "drop"),
        *,
        method: str = "",
    ) -> Fault | None:
        """The fault that this request meets."""
        with self._lock:
            for fault in self.on:
                if fault.provider != provider or fault.path not in path or fault.kind not in kinds or fault.times == 0:
                    continue
                if fault.method not in ("", method):
                    continue
                if self._chance.random() < fault.rate:
                    if fault.times is not None:
                        fault.times -= 1
                    self.struck[provider, fault.kind] += 1
                    return fault
        return None
