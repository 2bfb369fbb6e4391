"""What happened in the last moment, in numbers, for a person who watches."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from mainspring.db.schema import Sql
from mainspring.db.statement import Flow, Statement, ask, scalar

#: What is younger may not have committed yet.
LAG = timedelta(milliseconds=200)


class Pulse(msgspec.Struct, frozen=True, kw_only=True):
    """What happened between two instants, and what waits now. `until` is where the next one goes on."""

    until: datetime
    enqueued: int
    started: int
    succeeded: int
    retried: int
    rescued: int
    failed: int
    dead: int
    ready: int
    later: int
    running: int
    pickup_ms: float | None


_decode = msgspec.json.Decoder(Pulse).decode


def pulse(sql: Sql, since: datetime) -> Flow[Pulse]:
    """What happened since an instant, up to a moment ago."""
    params = {"since": since.isoformat(), "lag": f"{LAG.total_seconds()} s"}
    text: str = yield from ask(Statement(sql["pulse"], params, scalar))
    return _decode(text)
