"""The sandbox as a server: where it listens, how it stops, what it shows."""

from __future__ import annotations

import ipaddress
import socket
import threading
from urllib.parse import urlsplit

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from tests.sandbox.till import Till, ask

from mainspring_sandbox import Sandbox
from mainspring_sandbox.providers import PROVIDERS


def test_it_listens_on_loopback_alone(sandbox: Sandbox) -> None:
    assert urlsplit(sandbox.url).hostname == "127.0.0.1"
    port = urlsplit(sandbox.url).port
    for found in socket.getaddrinfo(socket.gethostname(), port, type=socket.SOCK_STREAM):
        if not ipaddress.ip_address(found[4][0]).is_loopback:
            with pytest.raises(ConnectionRefusedError), socket.create_connection((found[4][0], port), timeout=1):  # type: ignore[arg-type] # an address as text
                pass


def test_a_foreign_name_for_its_address_is_refused(sandbox: Sandbox) -> None:
    for host, status in (("evil.example", 400), ("localhost", 200)):
        answer = httpx2.get(f"{sandbox.url}/sandbox/outbox", headers={"Host": host}, trust_env=False, verify=False)
        assert answer.status_code == status


def test_a_page_of_another_origin_neither_pays_nor_breaks_anything(sandbox: Sandbox, shop: Till) -> None:
    for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        for method, path in (
            ("POST", "/stripe/v1/customers"),
            ("POST", "/sandbox/faults"),
            ("DELETE", "/sandbox/outbox"),
        ):
            answer = httpx2.request(method, sandbox.url + path, headers=headers, trust_env=False)
            assert (answer.status_code, answer.json()["code"]) == (403, "CROSS_ORIGIN")

    assert sandbox.ledger.find("stripe.customer") == []
    assert shop.pay("k1").status == "succeeded"  # the provider's own library posts a form, and has no origin


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded"])
def test_the_desk_takes_json_and_nothing_that_a_form_can_send(sandbox: Sandbox, kind: str) -> None:
    body, headers = b'{"provider": "stripe", "kind": "error"}', {"Content-Type": kind}
    answer = httpx2.post(f"{sandbox.url}/sandbox/faults", content=body, headers=headers, trust_env=False)

    assert (answer.status_code, answer.json()["code"]) == (415, "UNSUPPORTED_MEDIA_TYPE")
    assert ask(sandbox, "GET", "/sandbox/faults").json() == []


def test_it_stops_with_callers_on_the_line() -> None:
    before = threading.active_count()
    with Sandbox() as sandbox, httpx2.Client(base_url=sandbox.url, trust_env=False) as client:
        assert client.get("/sandbox/outbox").json() == []

    assert threading.active_count() == before
    with pytest.raises(httpx2.TransportError):
        httpx2.get(f"{sandbox.url}/sandbox/outbox", trust_env=False, timeout=1)


def test_a_port_that_is_taken_is_told_to_who_starts_it(sandbox: Sandbox) -> None:
    second = Sandbox(port=urlsplit(sandbox.url).port or 0)
    with pytest.raises(OSError, match="in use"):
        second.start()
    second.stop()


def test_the_outbox_shows_what_left_the_house(sandbox: Sandbox, shop: Till) -> None:
    paid = shop.pay("k1", metadata={"booking": "7"})
    sandbox.ledger.add("mail", "m1", {"to": "ada@example.com"})

    mail, charge = ask(sandbox, "GET", "/sandbox/outbox").json()
    assert (mail["kind"], mail["to"]) == ("mail", "ada@example.com")
    assert (charge["kind"], charge["amount"], charge["metadata"]) == ("charge", 1250, {"booking": "7"})
    assert ask(sandbox, "GET", f"/sandbox/outbox/charge/{charge['id']}").json() == charge
    assert ask(sandbox, "GET", "/sandbox/outbox?kind=charge&kind=refund").json() == [charge]
    assert ask(sandbox, "GET", f"/sandbox/outbox?limit=1&before={mail['serial']}").json() == [charge]
    assert ask(sandbox, "GET", f"/sandbox/outbox/stripe.payment_intent/{paid.id}").json()["status"] == "succeeded"


def test_the_outbox_keeps_secrets(sandbox: Sandbox) -> None:
    endpoint = sandbox.stripe.register("http://127.0.0.1:9/", secret="whsec_hidden")

    assert "whsec_hidden" not in ask(sandbox, "GET", f"/sandbox/outbox/stripe.webhook_endpoint/{endpoint['id']}").text


def test_the_outbox_is_emptied(sandbox: Sandbox, shop: Till) -> None:
    shop.pay("k1")
    assert ask(sandbox, "DELETE", "/sandbox/outbox").json() == []

    assert sandbox.ledger.find() == []
    assert shop.pay("k1").status == "succeeded"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/sandbox/outbox?limit=many", 422),
        ("/sandbox/outbox?before=-1", 422),
        ("/sandbox/outbox?limit=99999999999999999999", 422),
        ("/sandbox/outbox/charge/ch_nobody", 404),
        ("/sandbox/nothing", 404),
        ("/paypal/v1", 404),
    ],
)
def test_what_is_not_there_is_said_so(sandbox: Sandbox, path: str, status: int) -> None:
    assert ask(sandbox, "GET", path).status_code == status


def test_a_defect_of_ours_is_not_taken_for_the_providers_word(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(request: Request) -> Response:
        raise ZeroDivisionError("one over none")

    monkeypatch.setitem(PROVIDERS, "push", lambda world: [Route("/", broken)])
    with Sandbox() as sandbox:
        answer = ask(sandbox, "GET", "/push/")

    assert answer.status_code == 500
    assert answer.json()["error"]["message"] == "a defect of the sandbox: ZeroDivisionError: one over none"
