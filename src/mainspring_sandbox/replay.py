"""Idempotent requests, as providers treat them: the same key and body are answered as before, for a day."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, Literal

from starlette.responses import Response

from mainspring_sandbox.world import World

REPLAY_LIFE: Final = timedelta(days=1)


def replayed(
    world: World, provider: str, key: str | None, request: Any, act: Callable[[], tuple[int, dict[str, Any]]]
) -> Response | Literal["mismatch"]:
    """Act, unless the key was seen within a day: then answer as before, or `mismatch` if it came with another request.

    Nothing waits in here, so that two requests under one key cannot pass each other.
    """
    asked = json.dumps(request, sort_keys=True)
    known = world.ledger.answer(provider, key) if key else None
    if known is not None and world.now() - known.at < REPLAY_LIFE:
        if known.request != asked:
            return "mismatch"
        return Response(known.body, known.status, media_type="application/json")
    with world.ledger.together():
        status, body = act()
        if key and status < 300:  # what was refused is not remembered: it may be asked again, corrected
            world.ledger.answered(provider, key, asked, status, json.dumps(body))
    return Response(json.dumps(body), status, media_type="application/json")
