"""A worker is killed at every boundary around a call: money moves once, and a message comes once or, at most, twice."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
import pytest
from tests.databases import Database
from tests.nursery import Nursery, nursery
from tests.proofs.crashpoints.scenarios import AMOUNT, SCENARIOS, Document, Payment, Play, Surroundings, drain

import mainspring as ms
from mainspring.testing import Clock
from mainspring_sandbox import Sandbox

POINTS = ["before the call", "after the call", "after the record"]
#: What the provider has afterwards, where the worker died between the call and the record. Who takes a key, or can be
#: asked, has it once; SMTP and webhooks have it twice, with the same id.
REPEATED = {"email": 2, "webhook": 2}


@pytest.fixture(scope="module")
def fork() -> Iterator[Nursery]:
    with nursery(drain) as running:
        yield running


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as running:
        yield running


@pytest.fixture
def receiver() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Somebody who receives webhooks, and what came."""
    came: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            came.append({name.lower(): value for name, value in self.headers.items()})
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/hooks", came
        server.shutdown()
        thread.join()


def made(sandbox: Sandbox, what: str, **fields: str) -> str:
    """Something that the payment needs at Stripe."""
    answer = httpx2.post(f"{sandbox.url}/stripe/v1/{what}", data=fields, headers={"authorization": "Bearer sk_test_1"})
    return str(answer.raise_for_status().json()["id"])


def about(scenario: str, play: Play, sandbox: Sandbox, url: str) -> dict[str, Any]:
    """What the job is about; what it needs at the provider is made first."""
    if scenario in ("email", "sms"):
        return {"channel": scenario}
    if scenario == "webhook":
        return {"url": url}
    if scenario == "invoice":
        return {"reference": "booking-7"}
    assert isinstance(play, Payment)
    if scenario == "transfer":
        return {"verb": "transfer", "destination": made(sandbox, "accounts", type="express")}
    customer = made(sandbox, "customers", name="Ada")
    if scenario == "charge":
        return {"verb": "charge", "customer": customer}
    charged = play.stripe.sync.charge(AMOUNT, customer=customer, payment_method="pm_card_visa", key="first")
    play.stripe.sync.close()
    return {"verb": "refund", "intent": charged.id}


@pytest.mark.rule("STAFF-19.02", "ENG-1.04", "ENG-9.14")
@pytest.mark.cases(3)  # each starts processes that are killed
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_killed_at_each_boundary_money_moves_once_and_a_message_is_never_lost(
    database: Database,
    sandbox: Sandbox,
    fork: Nursery,
    receiver: tuple[str, list[dict[str, str]]],
    scenario: str,
    point: str,
) -> None:
    around = Surroundings(database.dsn, sandbox.url, sandbox.smtp_port)
    url, came = receiver
    kind = {"email": "mail"}.get(scenario, scenario)

    def ledger() -> list[Any]:
        return came if scenario == "webhook" else sandbox.ledger.find(kind)

    play = SCENARIOS[scenario](around)
    with database.connect() as conn, ms.Client(database.dsn) as client:
        conn.execute("create table movement (key text primary key, id text)")
        play.ask(client, **about(scenario, play, sandbox, url))

        assert fork.run(around, scenario, point) == signal.SIGKILL
        seen = len(ledger())
        Clock(conn).advance(seconds=61)  # the lease of the dead
        assert fork.run(around, scenario, None) == 0

        (job,) = client.jobs()
        records = conn.execute("select count(*) from movement where id is not null").fetchone()
    assert (job.state, job.attempt) == ("succeeded", 1 if point == "after the record" else 2)
    assert seen == (0 if point == "before the call" else 1)
    assert len(ledger()) == (REPEATED.get(scenario, 1) if point == "after the call" else 1)
    if isinstance(play, Payment | Document):
        assert records == (1,)
    if scenario == "email":
        assert len({entry.body["message_id"] for entry in ledger()}) == 1
    if scenario == "webhook":
        assert len({headers["webhook-id"] for headers in came}) == 1
