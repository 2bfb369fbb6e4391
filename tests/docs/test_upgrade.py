"""The page about upgrades: jobs that its first handler stored run by its second one."""

from __future__ import annotations

import asyncio
import json
from types import ModuleType

import pytest
from tests.databases import Database
from tests.docs.pages import ROOT
from tests.docs.test_code_blocks import run_page, shop

import mainspring as ms

__all__ = ["shop"]
STORED = [
    {"id": 7, "amount": 1250},
    {"id": 8, "amount": 990, "currency": "USD", "copies": 2},
    {"invoice": {"id": 9, "amount": 5}},
    {"invoice": {"id": 10, "amount": 5}, "copies": 2},
    {"id": 11, "amount": 5, "of_a_newer_release": True},
]


def test_jobs_of_the_release_before_run_by_the_code_of_the_page(database: Database, shop: ModuleType) -> None:
    page = run_page(ROOT / "docs" / "operations" / "upgrade.md", database, shop)
    with database.connect() as conn:
        for payload in STORED:
            conn.execute("select * from mainspring.enqueue('issue_invoice', %s)", [json.dumps(payload)])

    asyncio.run(ms.App(page["tasks"], dsn=database.dsn).worker().drain())

    assert sorted(page["printed"]) == [
        "10: 5 EUR", "10: 5 EUR", "11: 5 EUR", "7: 1250 EUR", "8: 990 USD", "8: 990 USD", "9: 5 EUR",
    ]  # fmt: skip


@pytest.mark.parametrize("payload", ["{}", '{"invoice":{"id":7}}'])
def test_a_job_without_what_it_needs_still_fails(payload: str, database: Database, shop: ModuleType) -> None:
    page = run_page(ROOT / "docs" / "operations" / "upgrade.md", database, shop)

    with pytest.raises(ms.ValidationError, match="is missing"):
        page["issue_invoice"].codec.decode(payload)
