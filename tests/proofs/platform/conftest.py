from __future__ import annotations

import pytest

from mainspring import Registry


@pytest.fixture
def tasks() -> Registry:
    return Registry("test")


@pytest.fixture
def mainspring_app(tasks: Registry) -> Registry:
    return tasks
