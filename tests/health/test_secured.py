"""Alerts and watches on a schema with roles and row-level security, by a real worker."""

from __future__ import annotations

import pytest
from tests.health.conftest import Told
from tests.secured import Secured
from tests.worker.stage import SETTINGS

import mainspring as ms
from mainspring.job import Claim
from mainspring.worker import Worker

pytestmark = pytest.mark.anyio


async def test_a_watch_sees_all_organisations_and_each_sees_its_own_alerts(secured: Secured, told: Told) -> None:
    tasks = ms.Registry("shop")

    @tasks.task(retry=ms.fixed(1, attempts=1))
    async def pay(*, booking: int) -> None:
        raise RuntimeError("declined")

    watches = [ms.watch_dead("payment-failed", pay, subject="booking {booking}", severity="critical")]

    async def authorize(job: Claim) -> str | None:
        return None if job.task == "pay" else "nobody may"

    app = ms.App(tasks, dsn=secured.dsn("worker"), observers=[told], watches=watches, secured=True)
    look = app.registry.get("shop.watch").job(every=60).for_org("SYSTEM")

    async def work() -> None:
        await Worker(app.dsn, app.registry, config=ms.WorkerConfig(**SETTINGS), authorize=authorize).drain()

    with ms.Client(secured.dsn("api"), secured=True) as api:
        api.enqueue_many([pay.job(booking=1).for_org(org) for org in ("acme", "globex")])
        await work()
        assert api.alerts.open("ours", org="acme")
        with ms.Client(secured.dsn("worker"), secured=True) as client:
            client.enqueue(look)
        await work()

        assert sorted((event.alert, event.org_id) for event in told.events) == [
            ("ours", "acme"), ("payment-failed", "acme"), ("payment-failed", "globex"),
        ]  # fmt: skip
        assert [alert.name for alert in api.alerts.list(org="acme", name="payment-failed")] == ["payment-failed"]
        assert {alert.org_id for alert in api.alerts.list(org="globex", open=None)} == {"globex"}
        assert not api.alerts.close("ours", org="globex")
        assert api.alerts.close("ours", org="acme")

        acme = ms.Caller(org_id="acme", actor_type="user", actor_id="ada")
        with ms.Client(secured.dsn("operator"), secured=True, caller=acme) as operator:
            (dead,) = operator.dead.list()
            operator.dead.discard(dead.id, reason="paid by hand")
        with ms.Client(secured.dsn("worker"), secured=True) as client:
            client.enqueue(look)
        await work()
        assert [(e.alert, e.org_id, e.firing) for e in told.events[3:]] == [
            ("payment-failed", "acme", False), ("ours", "acme", False),
        ]  # fmt: skip
    assert secured.do("select org_id from mainspring.alert where closed_at is null") == [("globex",)]
