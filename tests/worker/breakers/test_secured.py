"""Breakers on a schema with roles and row-level security."""

from __future__ import annotations

import pytest
from tests.secured import Secured
from tests.worker.stage import SETTINGS

import mainspring as ms
from mainspring.errors import NotPermitted
from mainspring.worker import Worker

pytestmark = pytest.mark.anyio


async def test_workers_keep_them_operators_force_them_and_others_may_not(secured: Secured, tasks: ms.Registry) -> None:
    breakers = [ms.breaker("webhook", failures=1)]

    @tasks.task(needs=("webhook:{endpoint}",))
    async def deliver(*, endpoint: int) -> None:
        raise ConnectionError("down")

    with ms.Client(secured.dsn("api"), secured=True) as api:
        api.enqueue_many([deliver.job(endpoint=1).for_org(org) for org in ("acme", "acme", "globex")])
        config = ms.WorkerConfig(**SETTINGS)
        await Worker(secured.dsn("worker"), tasks, config=config, breakers=breakers).drain()
        with pytest.raises(NotPermitted):
            api.breakers.open("webhook", reason="because")

    assert secured.do("select count(*) from mainspring.waiting where gate = 'breaker:webhook:1@acme'") == [(1,)]
    found = secured.do("select org_id, key, state from mainspring.breaker order by org_id, key")
    assert found == [("SYSTEM", "", "closed"), ("acme", "1", "open"), ("globex", "1", "open")]
    with ms.Client(secured.dsn("operator"), secured=True, caller=ms.Caller(org_id="acme")) as operator:
        assert [(row.org_id, row.key) for row in operator.breakers.list()] == [("SYSTEM", None), ("acme", "1")]
        assert operator.breakers.open("webhook", reason="all of them")
        assert operator.breakers.close("webhook", key="1", reason="ours answers")
