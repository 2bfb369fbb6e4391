"""The application: what it is made of, and what it says to those who make it wrongly."""

from __future__ import annotations

from typing import Any

import pytest

import mainspring as ms
from mainspring.errors import DeclarationError


def test_app_takes_registries_and_the_address_by_name() -> None:
    tasks = ms.Registry("shop")

    app = ms.App(tasks, ms.Registry("till"), dsn="postgresql://localhost/shop", maintenance=False)

    assert app.dsn == "postgresql://localhost/shop"
    assert app.registry.origins() == ["app", "shop", "till"]


@pytest.mark.parametrize("wrong", ["postgresql://localhost/shop", None, ms.Registry])
def test_what_is_no_registry_is_told_what_comes_first(wrong: Any) -> None:
    with pytest.raises(DeclarationError, match=r"^App takes registries first: App\(tasks, dsn=\.\.\.\)$"):
        ms.App(wrong, ms.Registry("shop"))
