from __future__ import annotations

from tests.client.conftest import client, colour, connect, sql
from tests.client.frameworks.conftest import join

__all__ = ["client", "colour", "connect", "join", "sql"]  # fixtures
