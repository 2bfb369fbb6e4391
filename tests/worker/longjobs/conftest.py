from __future__ import annotations

import pytest
from tests.worker.conftest import stage, tasks

__all__ = ["colour", "stage", "tasks"]


@pytest.fixture(params=["async", "thread"])
def colour(request: pytest.FixtureRequest) -> str:
    return str(request.param)
