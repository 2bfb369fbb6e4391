from __future__ import annotations

from tests.worker.conftest import stage, tasks

__all__ = ["stage", "tasks"]  # fixtures
