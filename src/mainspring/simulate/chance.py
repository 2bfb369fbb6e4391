"""Everything random of a simulation, from one seed: ids, jitter, and what handlers draw from `random`."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from mainspring.db.wire.sql import render
from mainspring.uuid7 import drawn_from

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STEP = 250  # nanoseconds between two ids: the resolution of a UUID of version 7, so that they sort as they were made

#: Ids that SQL makes. A sequence stands for the random bits, so that the n-th id is the same in every run.
_SQL_IDS = """
create sequence {schema}.drawn;
create or replace function {schema}.uuid7() returns uuid language sql volatile as $$
  select (lpad(to_hex((extract(epoch from {schema}.now()) * 1000)::bigint), 12, '0') || '7'
          || lpad(to_hex(n % 4096), 3, '0') || '8'
          || substr(encode(sha256(convert_to('{seed} ' || n, 'utf8')), 'hex'), 1, 15))::uuid
  from nextval('{schema}.drawn') n
$$;
"""


class Chance:
    """The one source of chance. Nothing that runs beside it, such as a pool's threads, can shift what it gives."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._bytes = random.Random(f"{seed} ids")  # noqa: S311 (the same in every run, on purpose)
        self._ns = 0

    def sql(self, schema: str) -> str:
        """What makes a scratch database draw its ids from the seed."""
        return render(_SQL_IDS, schema).replace("{seed}", str(self.seed))

    def fraction(self) -> float:
        """A seed for a database's session, which takes one between 0 and 1."""
        return random.Random(f"{self.seed} database").random()  # noqa: S311 (the same in every run, on purpose)

    def move(self, now: datetime) -> None:
        """From now on ids carry this time."""
        self._ns = max(self._ns, (now - _EPOCH) // timedelta(microseconds=1) * 1000)

    def shake(self, *about: object) -> None:
        """Let `random` start anew for one purpose: what it gives depends on the seed and on this purpose alone."""
        random.seed(" ".join(map(str, (self.seed, *about))))

    @contextmanager
    def ruling(self) -> Iterator[None]:
        """Inside the block ids come from here, and `random` does; afterwards it goes on as before."""
        before = random.getstate()
        self.shake("start")
        try:
            with drawn_from(self._clock, self._bytes.randbytes):
                yield
        finally:
            random.setstate(before)

    def _clock(self) -> int:
        self._ns += _STEP
        return self._ns
