"""On a secured schema limits hold across organisations, though whoever sets one sees a single organisation."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from tests.db.engine import Engine
from tests.secured import Secured

import mainspring as ms
from mainspring.errors import NotPermitted
from mainspring.limit import Fair, Limit
from mainspring.worker import Worker


def test_a_new_limit_counts_what_runs_in_all_organisations(secured: Secured) -> None:
    with secured.connect("worker") as conn:
        worker = Engine(conn)
        for org in ("acme", "beta"):
            with ms.Client(secured.dsn("api", org), secured=True) as api:
                api.enqueue_many([ms.Registry("x").task(noop).job().for_org(org) for _ in range(3)])
        before = worker.claim(n=4, tasks=["noop"])
        assert len({job.org_id for job in before}) == 2
        with ms.Client(secured.dsn("operator", "acme"), secured=True) as operator:
            operator.limits.set(ms.concurrency(task="noop", most=3), reason="slow")
            assert worker.claim(tasks=["noop"]) == []
            worker.complete("w1", before[0].epoch, before[1].epoch)
            assert len(worker.claim(tasks=["noop"])) == 1
            (row,) = operator.limits.list()
            assert (row.used, row.set_by) == (3, "SYSTEM")
            assert secured.do("select org_id from mainspring.audit where event = 'limit.set'") == [("SYSTEM",)]
            operator.limits.fair("q:default", weights={"beta": 2})
            operator.limits.unfair("q:default")
            operator.limits.depth("q:default", 7)
            operator.limits.drop("concurrency:noop")


def test_a_worker_declares_what_its_application_says(secured: Secured) -> None:
    tasks = ms.Registry("shop")
    tasks.task(noop)

    async def go() -> None:
        config = ms.WorkerConfig(wakeups=False)
        limits: list[Limit | Fair] = [ms.rate("q:default", 5, per="1s"), ms.fair("q:default")]
        worker = Worker(secured.dsn("worker"), tasks, config=config, limits=limits)
        await worker.start()
        await worker.stop()

    asyncio.run(go())
    assert secured.do("select name, declared, app from mainspring.limit") == [("rate:q:default", True, "shop")]
    assert secured.do("select to_regclass('mainspring.waiting_fair') is not null") == [(True,)]


def test_an_application_sets_no_limits(secured: Secured) -> None:
    with ms.Client(secured.dsn("api", "acme"), secured=True) as api, pytest.raises(NotPermitted):
        api.limits.set(ms.rate("q:default", 5, per="1s"))


@pytest.mark.rule("ENG-19.04")
def test_an_operator_reads_the_keys_of_its_own_organisation_only(secured: Secured) -> None:
    """A gate of a limit names whom it counts for: an organisation, and its booking or account."""
    task = ms.Registry("x").task(strand="IBAN")(noop)
    orgs = ("acme", "globex", "acme/sub")
    with ms.Client(secured.dsn("operator", "SYSTEM"), secured=True) as operator:
        operator.limits.set(ms.concurrency(task="noop", most=9), reason="x")
        operator.limits.set(ms.concurrency(task="noop", by="org", most=9, name="by org"), reason="x")
        operator.limits.set(ms.concurrency(task="noop", by="strand", most=9, name="by key"), reason="x")
        operator.limits.set(ms.rate(task="noop", by="strand", most=9, per="1h", name="rate"), reason="x")
        operator.limits.fair("q:default", weights={"globex": 2, "acme": 3})
    with ms.Client(secured.dsn("api"), secured=True) as api:
        for org in orgs:
            api.enqueue(task.job().for_org(org))
    with secured.connect("worker") as conn:
        assert len(Engine(conn).claim(n=9, tasks=["noop"])) == 3
    secured.do("update mainspring.fair set cursor = 'globex'")

    def seen(org: str) -> set[str]:
        with secured.connect("operator", org) as conn:
            rows = conn.execute("select gate from mainspring.slot union all select gate from mainspring.bucket")
            return {gate for (gate,) in rows.fetchall()}

    ours = {"concurrency:noop/", "by org/acme", "by key/acme/IBAN", "rate/acme/IBAN"}
    assert seen("acme") == ours
    assert seen("acme/sub") == {gate.replace("acme", "acme%2Fsub") for gate in ours}
    assert seen("SYSTEM") > ours
    with secured.connect("operator", "acme") as conn:
        for hidden in ("cursor", "weights"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                conn.execute(f"select {hidden} from mainspring.fair".encode())
    with ms.Client(secured.dsn("operator", "acme"), secured=True) as operator:
        assert {row.name: row.keys for row in operator.limits.list()} == {
            "concurrency:noop": 1, "by org": 1, "by key": 1, "rate": 1,
        }  # fmt: skip
        assert [dict(turn.weights) for turn in operator.limits.turns()] == [{"acme": 3}]
    with secured.connect("worker") as conn:
        Engine(conn).complete("w1", *(e for (e,) in conn.execute("select epoch from mainspring.running").fetchall()))


async def noop() -> None:
    """Do nothing."""
