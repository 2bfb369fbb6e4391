"""The company over HTTP: Stripe's webhook, the run endpoint, links to invoices, and who may do what."""

from __future__ import annotations

import hmac
import json
import os
import time
from collections.abc import Iterator
from datetime import timedelta
from hashlib import sha256
from typing import Any

import httpx2
import pytest
from tests.apps.rental.yard import ENV, OLGA, Yard
from tests.web.visit import SECRET, SHOWN, served

from mainspring.db import access
from mainspring.db.access import Grant
from mainspring.db.jobs import Who
from mainspring.db.wire.run import psycopg_door, run
from mainspring.db.wire.sql import Sql
from mainspring_apps.rental import bookings
from mainspring_apps.rental.app import Rental
from mainspring_apps.rental.rules import links
from mainspring_sandbox import Sandbox
from mainspring_sandbox.environment import WEBHOOK_SECRET


@pytest.fixture
def url(yard: Yard, mainspring_app: Rental) -> Iterator[str]:
    with served(mainspring_app) as address:
        yield address


def webhook(yard: Yard, booking: object, **changes: Any) -> bytes:
    event = yard.event(booking, **changes)
    at = int(event.created.timestamp())
    said = {"id": event.id, "type": event.type, "created": at, "data": {"object": event.object}}
    return json.dumps(said).encode()


def deliver(yard: Yard, url: str, body: bytes, *, secret: str = WEBHOOK_SECRET) -> httpx2.Response:
    at = int(yard.mainspring.now().timestamp())
    signature = hmac.digest(secret.encode(), f"{at}.".encode() + body, sha256).hex()
    headers = {"stripe-signature": f"t={at},v1={signature}", "content-type": "application/json; charset=utf-8"}
    return httpx2.post(f"{url}/api/stripe/webhook", content=body, headers=headers, timeout=20)


@pytest.mark.rule("RENT-2.02", "RENT-2.03", "RENT-2.07", "RENT-9.01")
def test_the_webhook_confirms_before_it_answers_and_calls_nobody(yard: Yard, url: str) -> None:
    for provider in ("vendus", "resend", "stripe"):
        yard.fault(provider, "timeout")
    booking = yard.book()
    body = webhook(yard, booking)

    began = time.monotonic()
    answers = [deliver(yard, url, body).status_code for _ in range(3)]
    took = time.monotonic() - began

    assert answers == [200, 200, 200]
    assert took < 3
    assert yard.row(booking)["status"] == "CONFIRMED"
    assert {job["status"] for job in yard.jobs(booking).values()} == {"pending"}
    assert len(yard.jobs(booking)) == 3


@pytest.mark.rule("RENT-2.02", "RENT-2.11")
def test_a_forged_event_is_refused_and_what_nobody_wants_is_taken(yard: Yard, url: str) -> None:
    booking = yard.book()
    body = webhook(yard, booking)

    assert deliver(yard, url, body, secret="whsec_other").status_code == 400
    changed = body.replace(b"12300", b"12301")
    at = int(yard.mainspring.now().timestamp())
    signature = hmac.digest(WEBHOOK_SECRET.encode(), f"{at}.".encode() + body, sha256).hex()
    headers = {"stripe-signature": f"t={at},v1={signature}"}
    assert httpx2.post(f"{url}/api/stripe/webhook", content=changed, headers=headers).status_code == 400
    assert (yard.row(booking)["status"], yard.value("select count(*) from rental.stripe_events")) == ("PENDING", 0)

    assert deliver(yard, url, webhook(yard, booking, type_="customer.created")).status_code == 200
    assert deliver(yard, url, webhook(yard, 987_654)).status_code == 200
    assert yard.value("select array_agg(type order by type) from rental.stripe_events") == [
        "checkout.session.completed", "customer.created",
    ]  # fmt: skip
    assert yard.alerts() == [("unknown_booking", "pi_987654")]


@pytest.mark.rule("RENT-2.04")
def test_a_failure_is_answered_with_500_so_that_stripe_tries_again(
    yard: Yard, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    booking = yard.book()
    body = webhook(yard, booking)
    yard.conn.execute("alter table rental.rounds rename to rounds_away")
    assert deliver(yard, url, body).status_code == 500
    yard.conn.execute("alter table rental.rounds_away rename to rounds")
    assert (yard.row(booking)["status"], yard.jobs(booking)) == ("PENDING", {})
    assert deliver(yard, url, body).status_code == 200
    assert yard.row(booking)["status"] == "CONFIRMED"


@pytest.mark.rule("RENT-8.04", "RENT-9.04")
def test_the_run_endpoint_runs_jobs_of_bookings_for_who_knows_the_secret(yard: Yard, url: str) -> None:
    yard.sandbox.reset(yard.mainspring.now)
    booking = yard.paid()
    path = f"{url}/api/cron/process-booking-jobs"

    assert httpx2.get(path).status_code == 401
    assert httpx2.get(f"{path}?token={SHOWN['x-cron-secret']}").status_code == 401
    said = httpx2.get(path, headers=SHOWN, timeout=30).json()

    assert (said["ok"], said["remainingPending"]) == (True, 0)
    assert set(said) == {"ok", "processed", "remainingPending", "asOfUtc"}
    assert {job["status"] for job in yard.jobs(booking).values()} == {"completed"}


@pytest.mark.rule("RENT-7.01", "RENT-7.04", "RENT-7.06", "RENT-7.08", "RENT-20.27")
def test_the_link_of_the_mail_brings_the_pdf_also_while_vendus_is_down(
    yard: Yard, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    booking = yard.paid()
    yard.drain()
    mail = next(mail for mail in yard.mails() if "invoice" in mail["subject"])
    assert mail["to"] == ["jo@example.com"]
    link = next(word for word in mail["text"].split() if word.startswith("http"))
    assert f"/api/invoices/{booking}/pdf?t=" in link
    path = link.removeprefix("https://rental.example.com")

    yard.fault("vendus", "error")
    away = httpx2.get(f"{url}{path}")
    assert (away.status_code, away.headers["cache-control"]) == (503, "no-store")
    yard.sandbox.faults.clear("vendus")
    first = httpx2.get(f"{url}{path}")
    yard.fault("vendus", "error")
    second = httpx2.get(f"{url}{path}")

    assert (first.status_code, second.status_code) == (200, 200)
    assert first.content == second.content
    assert first.content.startswith(b"%PDF")
    assert yard.row(booking)["invoice_number"].encode() in first.content
    assert (first.headers["cache-control"], first.headers["referrer-policy"]) == ("no-store", "no-referrer")
    assert link.partition("?t=")[2] not in caplog.text

    with yard.conn.transaction():
        bookings.correct_address(
            yard.desk, yard.conn, booking, customer_email="new@example.com", reason="typo", by=OLGA
        )  # fmt: skip
    assert httpx2.get(f"{url}{path}").status_code == 401


@pytest.mark.rule("RENT-7.05", "RENT-7.07")
def test_a_link_for_another_booking_a_forged_one_and_an_old_one_are_refused(yard: Yard, url: str) -> None:
    booking, other = yard.paid(), yard.paid()
    yard.drain()
    secret, now, life = yard.desk.links.now.reveal(), yard.mainspring.now(), timedelta(hours=72)
    to = "jo@example.com"
    cases = (
        (links.token(secret, other, now, life, to=to), 403), (links.token("forged", booking, now, life, to=to), 401),
        (links.token(secret, booking, now - life, life, to=to), 401), ("", 401),
        (links.token(secret, booking, now, life, to=to), 200),
    )  # fmt: skip
    for token, status in cases:
        assert httpx2.get(f"{url}/api/invoices/{booking}/pdf", params={"t": token}).status_code == status


@pytest.mark.rule("RENT-7.09", "RENT-20.02", "RENT-20.04")
def test_an_expired_link_offers_one_new_mail_an_hour_to_the_same_address(yard: Yard, url: str) -> None:
    booking = yard.paid()
    yard.drain()
    yard.jump(hours=73)
    old = links.token(
        yard.desk.links.now.reveal(), booking, yard.mainspring.now() - timedelta(hours=73), timedelta(hours=72),
        to="jo@example.com",
    )  # fmt: skip
    there = f"{url}/api/invoices/{booking}/pdf?t={old}"
    before = len(yard.mails())

    offer = httpx2.get(there)
    assert (offer.status_code, "<button>" in offer.text, "jo@example.com" in offer.text) == (401, True, False)
    same = {"origin": url}
    assert [httpx2.post(there, headers=same).status_code for _ in range(2)] == [200, 429]
    yard.drain()

    new = [mail for mail in yard.mails()[: len(yard.mails()) - before] if "invoice" in mail["subject"]]
    assert [mail["to"] for mail in new] == [["jo@example.com"]]
    link = next(word for word in new[0]["text"].split() if word.startswith("http"))
    assert httpx2.get(url + link.removeprefix("https://rental.example.com")).status_code == 200
    assert yard.rows("select actor_id from mainspring.trail where event = 'rental.link_asked_for'") == [("customer",)]
    forged = httpx2.post(f"{url}/api/invoices/{booking}/pdf?t=forged", headers=same)
    assert forged.status_code == 401


@pytest.mark.rule("RENT-2.08", "RENT-9.04")
def test_a_kick_runs_the_jobs_at_once_and_a_dead_one_costs_nobody_anything(
    yard: Yard, url: str, mainspring_sandbox_server: Sandbox
) -> None:
    def kicking(to: str) -> Rental:
        with mainspring_sandbox_server.standing_in():
            env = {name: value for name, value in os.environ.items() if name != "MAINSPRING_SMTP_URL"}
            env |= ENV | {"MAINSPRING_RESEND_BASE": f"{yard.sandbox.url}/resend"}
            return Rental(env | {"APP_URL": to, "CRON_SECRET": SECRET}, maintenance=False, watches=())

    def delivered(app: Rental, booking: int) -> None:
        app.at(yard.mainspring.dsn)
        with served(app) as there:
            assert deliver(yard, there, webhook(yard, booking)).status_code == 200
        app.desk.close()

    nowhere, booking = yard.book(), yard.book()
    delivered(kicking("http://127.0.0.1:9"), nowhere)
    assert {job["status"] for job in yard.jobs(nowhere).values()} == {"pending"}

    began = time.monotonic()
    delivered(kicking(url), booking)
    while {job["status"] for job in yard.jobs(booking).values()} != {"completed"} or len(yard.jobs(booking)) < 4:
        assert time.monotonic() - began < 60, "nobody ran the jobs"
        time.sleep(0.05)
    assert yard.row(booking)["invoice_email_sent_at"] is not None


@pytest.mark.rule("RENT-20.03", "RENT-20.04", "RENT-8.06")
def test_a_viewer_looks_and_an_operator_acts_with_a_reason(yard: Yard, url: str) -> None:
    def ask(name: str, role: Any, path: str, body: Any = None, org: str = "rental") -> httpx2.Response:
        token = run(
            psycopg_door(yard.conn),
            access.create_token(
                Sql(), f"{name}-{path}", Grant(role=role, org=org), None, Who(actor_type="user", actor_id="root")
            ),
        )
        headers = {"Authorization": f"Bearer {token.text}"}
        if body is None:
            return httpx2.get(f"{url}/rental{path}", headers=headers)
        return httpx2.post(f"{url}/rental{path}", json=body, headers=headers)

    booking = yard.paid()
    change = {"customer_email": "new@example.com", "reason": "typo"}
    path = f"/bookings/{booking}/address"
    shown = ask("vic", "viewer", f"/bookings/{booking}").json()
    assert (shown["customer"], shown["dry_run"]) == ("j***@example.com", False)
    assert len(ask("vic", "viewer", "/jobs/pending").json()) == 3
    assert ask("mem", "member", f"/bookings/{booking}").status_code == 403
    assert ask("vic", "viewer", path, change | {"by": "ada"}).status_code == 403
    assert ask("out", "admin", path, change, org="acme").status_code in (403, 404)
    assert yard.row(booking)["customer_email"] == "jo@example.com"

    assert ask("olga", "operator", path, {"customer_email": "new@example.com"}).status_code == 400
    assert ask("olgb", "operator", path, change | {"by": "ada"}).status_code == 400
    assert ask("olgc", "operator", path, change).status_code == 200
    assert ask("olgd", "operator", "/bookings/987654/address", change).status_code == 404
    assert yard.row(booking)["customer_email"] == "new@example.com"
