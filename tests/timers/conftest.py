from __future__ import annotations

from tests.client.conftest import client, colour, connect, sql
from tests.frameworks.conftest import join

__all__ = ["client", "colour", "connect", "join", "sql"]  # fixtures
