"""Providers of a simulation: the sandbox in virtual time, the same bytes, and nobody beyond this machine."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import mainspring as ms
from mainspring.contrib.stripe import Money, Stripe
from mainspring.embedded import Cluster
from mainspring.simulate import Simulated, SimulatedAttempt, TimelineEntry, simulate
from mainspring.simulate.loopback import loopback_only
from mainspring_sandbox.environment import environment

START = datetime(2026, 3, 25, 9, tzinfo=UTC)
HOUR = timedelta(hours=1)
#: What somebody may have who also works with the real ones.
REAL = {
    "STRIPE_API_KEY": "sk_live_1", "STRIPE_WEBHOOK_SECRET": "whsec_real", "RESEND_API_KEY": "re_1",
    "MAINSPRING_MAIL_FROM": "Shop <shop@example.com>", "TWILIO_ACCOUNT_SID": "AC1", "TWILIO_AUTH_TOKEN": "real",
    "TWILIO_FROM": "+4930901820", "HTTPS_PROXY": "http://127.0.0.1:1", "http_proxy": "http://127.0.0.1:1",
}  # fmt: skip

Move = Callable[..., tuple[list[SimulatedAttempt], Simulated]]


@pytest.fixture
def server(volatile_cluster: Cluster) -> str:
    return volatile_cluster.dsn("postgres")


@pytest.fixture
def move(server: str) -> Move:
    """Simulate what a function makes, for an hour."""

    def move(load: Callable[[], ms.App]) -> tuple[list[SimulatedAttempt], Simulated]:
        told: list[TimelineEntry] = []
        done = simulate(load, START, START + HOUR, told.extend, dsn=server)
        return [entry for entry in told if isinstance(entry, SimulatedAttempt)], done

    return move


def shop(handler: Callable[[], Any], *blocks: Any) -> ms.App:
    """An application that does one thing at the beginning."""
    tasks = ms.Registry("shop")
    task = tasks.task(name="act", retry=ms.fixed(1, attempts=1))(handler)
    tasks.schedule("act", ms.daily("09:00"), task)
    return ms.App(tasks, blocks=blocks, maintenance=False)


def test_charges_mails_texts_and_webhooks_are_the_same_bytes_and_reach_nobody_real(server: str) -> None:
    command = ["simulate", "tests.simulate.market:app", "--from", "2026-03-25", "--for", "1d", "--json"]
    begun = [
        subprocess.Popen(
            [sys.executable, "-m", "mainspring.cli", *command, "--dsn", server],
            env=os.environ | more | {"PYTHONHASHSEED": hashes}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for more, hashes in (({}, "1"), (REAL, "2"))
    ]  # fmt: skip
    (one, first), (same, second) = (process.communicate(timeout=60) for process in begun)

    assert (first, second) == (b"", b"")
    assert one == same
    *entries, totals = map(json.loads, one.splitlines())
    assert {entry["at"] for entry in entries if entry.get("task") == "charge"} == {"2026-03-25T10:00:00Z"}
    assert [(entry["at"], entry["state"]) for entry in entries if entry.get("task") == "confirm"] == [
        ("2026-03-25T10:00:02Z", "succeeded")
    ] * 2
    assert totals["sandbox"] == {"mail": 3, "sms": 3, "charge": 2, "decline": 1, "webhook": 12}
    assert totals["attempts"]["notify.deliver"] == {"succeeded": 6}
    assert totals["waiting"] == 0


def test_the_environment_is_the_sandboxs_inside_and_as_before_afterwards(
    move: Move, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in REAL.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("MAINSPRING_TWILIO_BASE", raising=False)
    before, inside = dict(os.environ), dict[str, str]()

    async def look() -> None:
        inside.update(os.environ)

    move(lambda: shop(look))

    ours = environment(inside["MAINSPRING_SANDBOX"], int(inside["MAINSPRING_SMTP_URL"].split(":")[2].split("?")[0]))
    assert {name: inside[name] for name in ours} == ours
    assert not {"RESEND_API_KEY", "HTTPS_PROXY", "http_proxy"} & set(inside)
    assert dict(os.environ) == before


def test_a_provider_that_is_named_in_code_is_not_reached(
    move: Move, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    stripe = Stripe("sk_live_1")  # without an address: the real one
    tried: list[str] = []

    async def charge() -> None:
        await stripe.charge(Money(1250, "EUR"), customer="cus_1", payment_method="pm_1", key="k", since=START)

    def look_up(host: str, *_: Any, **__: Any) -> Any:
        tried.append(host)
        raise socket.gaierror(socket.EAI_NONAME, "a name was looked up")

    with monkeypatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", look_up)
        [ran], _ = move(lambda: shop(charge, stripe))

    assert (ran.state, tried) == ("dead", [])
    assert "a simulation reaches nobody beyond this machine: api.stripe.com was refused" in caplog.messages


def test_addresses_are_refused_in_both_colours_and_only_inside() -> None:
    connect = socket.socket.connect

    async def reach() -> None:
        await asyncio.open_connection("203.0.113.1", 443)

    with loopback_only("host=db.example.com hostaddr=203.0.113.7"):
        with pytest.raises(ConnectionRefusedError, match="nobody beyond this machine, such as 203"):
            asyncio.run(reach())
        with pytest.raises(socket.gaierror, match=r"such as api\.twilio\.com"):
            socket.create_connection(("api.twilio.com", 443), timeout=1)
        with socket.socket() as plain:
            with pytest.raises(ConnectionRefusedError, match="such as 198"):
                plain.connect(("198.51.100.1", 80))
            assert plain.connect_ex(("203.0.113.1", 443)) != 0
        with socket.create_server(("127.0.0.1", 0)) as ours, socket.create_connection(ours.getsockname()) as line:
            assert line.getpeername() == ours.getsockname()

    assert socket.socket.connect is connect


def test_without_the_extra_it_works_and_providers_of_the_environment_answer_nothing(
    move: Move, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "mainspring_sandbox.server", raising=False)
    monkeypatch.setenv("STRIPE_API_KEY", "sk_live_1")
    for name in ("MAINSPRING_STRIPE_BASE", "MAINSPRING_SANDBOX", "TWILIO_ACCOUNT_SID"):
        monkeypatch.delenv(name, raising=False)
    inside = dict[str, str]()

    async def look() -> None:
        inside.update(os.environ)

    [ran], done = move(lambda: shop(look))

    assert (ran.state, done.totals.sandbox) == ("succeeded", {})
    assert inside["STRIPE_API_KEY"] == "sk_test_sandbox"
    assert not {"MAINSPRING_SANDBOX", "TWILIO_ACCOUNT_SID"} & set(inside)
