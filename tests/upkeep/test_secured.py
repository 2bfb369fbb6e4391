"""On a secured schema housekeeping reaches every organisation, by the rights of a worker."""

from __future__ import annotations

import pytest
from tests.secured import Secured
from tests.worker.stage import SETTINGS

from mainspring import App, AsyncClient, Registry, Retention, WorkerConfig
from mainspring.job import SYSTEM

pytestmark = pytest.mark.anyio


async def test_every_sweep_works_in_all_organisations(secured: Secured) -> None:
    secured.do("update mainspring.clock set at = now()")  # or the rest of a sweep is due before the drain has ended
    secured.do(
        "insert into mainspring.idempotency (org_id, key, fingerprint, job_id, first_seen_at, last_seen_at, expires_at)"
        " select 'org ' || n, n::text, '', gen_random_uuid(), now(), now(), now() - interval '1 day'"
        " from generate_series(1, 6) n"
    )
    secured.do(
        "insert into mainspring.fire (org_id, id, schedule, zone, instant, local, how, at)"
        " select 'org ' || n, gen_random_uuid(), 's', '', now(), '', 'fired', now() - interval '1 year'"
        " from generate_series(1, 6) n"
    )
    tasks = Registry("test")
    app = App(tasks, dsn=secured.dsn("worker"), maintenance=Retention(batch=4))
    names = [name for name in app.registry.names() if name.startswith("mainspring.")]
    async with AsyncClient(secured.dsn("operator"), secured=True) as client:
        await client.enqueue_many([app.registry.get(name).job().for_org(SYSTEM) for name in names])
        worker = app.worker(WorkerConfig(**SETTINGS))
        await worker.drain()
        left = (
            "select (select count(*) from mainspring.idempotency where expires_at < now()),"
            " (select count(*) from mainspring.fire where at < now() - interval '1 day')"
        )
        assert secured.do(left) == [(2, 2)]
        waiting = secured.do("select task, org_id from mainspring.waiting where task like '%prune%' order by 1")
        assert waiting == [("mainspring.prune_fires", SYSTEM), ("mainspring.prune_keys", SYSTEM)]
    states = secured.do(
        "select distinct state from mainspring.jobs where task like 'mainspring.%' and state <> 'scheduled'"
    )
    assert states == [("succeeded",)]
