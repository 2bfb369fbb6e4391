from __future__ import annotations

import pytest
from tests.cli.conftest import cli, client

from mainspring import Registry

__all__ = ["cli", "client"]


@pytest.fixture
def tasks() -> Registry:
    return Registry("test")


@pytest.fixture
def mainspring_app(tasks: Registry) -> Registry:
    return tasks
