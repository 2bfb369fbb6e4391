"""Dead letters as the tests of the API make them: real jobs that real statements end."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from tests.db.engine import ERROR, Engine


def killed(engine: Engine, verb: str = "bury", *, code: str = "TIMEOUT", message: str = "no", **fields: Any) -> UUID:
    """A job that died of it, of the task `greet` and of acme, unless said."""
    claim = engine.started(**{"task": "greet", "org_id": "acme", "payload": {"name": "Ada"}} | fields)
    assert engine.end(claim, verb, error=ERROR | {"code": code, "message": message})
    return claim.id
