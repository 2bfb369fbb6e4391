from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def maintenance_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAINSPRING_MAINTENANCE")
