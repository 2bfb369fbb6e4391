"""A hostile page in a real browser, in which somebody is signed in: it changes nothing and reads nothing.

`make browser` installs Chromium and runs it; in `make test` test_forged.py sends what a browser sends.
"""

from __future__ import annotations

import http.server
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright
from tests.databases import Database
from tests.web.browser.house import CANARY, GuardedHouse, guarded_house

import mainspring.web.access.desk as desk
import mainspring.web.api.perform as perform
import mainspring.web.guard as guard
import mainspring.web.guarded_route as guarded_route

pytestmark = pytest.mark.skipif(os.environ.get("BROWSER") != "needed", reason="make browser")

ARGS = [
    "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-background-networking",
    "--disable-popup-blocking", "--host-resolver-rules=MAP evil.test 127.0.0.1",
]  # fmt: skip
SCRIPT = Path(__file__).with_name("hostile.js").read_text()
PAGE = f"<!doctype html><title>kittens</title><body><script>{SCRIPT}</script>"
OWN = """async (job) => {
  const me = await (await fetch("/api/v1/me")).json();
  const headers = { "content-type": "application/json", "x-csrf-token": me.csrf };
  return (await fetch(`/api/v1/jobs/${job}/cancel`, { method: "POST", headers, body: "{}" })).status;
}"""


class Hostile(http.server.BaseHTTPRequestHandler):
    """Serves the page, whatever is asked for."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(PAGE.encode())

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=ARGS)
        yield found
        found.close()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Where the hostile page is served: on the loopback interface, under whatever name somebody uses for it."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hostile)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
    thread.join(10)


@contextmanager
def signed_in(browser: Browser, house: GuardedHouse) -> Iterator[tuple[BrowserContext, Page]]:
    """A browser in which ana is signed in, with a page of ours that is open."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{house.url}/sign-in#{house.link()}")
    page.get_by_text("Signed in as ana").wait_for()
    assert [(cookie["name"], cookie["httpOnly"]) for cookie in context.cookies()] == [("mainspring", True)]
    yield context, page
    context.close()


@pytest.fixture
def house(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[GuardedHouse]:
    for limit in ("ADDRESS", "CALLER", "ORG"):  # what they would refuse, the doors must
        monkeypatch.setenv(f"MAINSPRING_REQUESTS_PER_{limit}", "0")
    with database.connect() as conn, guarded_house(database.dsn, conn) as found:
        yield found


def attacked(context: BrowserContext, house: GuardedHouse, address: str, target: str, strike: str) -> list[str]:
    """What a page at an address could read; it has done what it could."""
    page = context.new_page()
    page.goto(address)
    read: list[str] = page.evaluate("about => attack(about)", {"target": target, "job": house.job, "strike": strike})
    page.wait_for_url(f"{target}{strike}", timeout=30_000)
    assert CANARY not in page.content()
    page.goto(address)
    page.evaluate(f"location = {target + '/api/v1/sign-out'!r}")  # a visit signs nobody out
    page.wait_for_timeout(300)
    page.close()
    return read


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_a_page_of_another_origin_changes_nothing_and_reads_nothing(
    browser: Browser, house: GuardedHouse, port: int, name: str
) -> None:
    """Of another site, and of the same one behind another port, where the browser sends the session's cookie."""
    with signed_in(browser, house) as (context, ours):
        before = house.state()
        for strike in (f"/api/v1/jobs/{house.job}/cancel", "/account", "/note", "/api/v1/sign-out"):
            read = attacked(context, house, f"http://{name}:{port}/", house.url, strike)
            assert read == []
            assert house.state() == before
        assert ours.evaluate("() => fetch('/api/v1/me').then((a) => a.json())")["name"] == "ana"
        assert ours.evaluate(OWN, house.job) == 200  # who is signed in may do what the page tried
    assert house.state() != before


def test_a_name_that_is_rebound_to_us_changes_nothing_and_reads_nothing(
    browser: Browser, house: GuardedHouse, port: int
) -> None:
    """A page whose own name leads to us by the time it asks: for the browser it is of one origin with us."""
    rebound = house.url.replace("127.0.0.1", "evil.test")
    with signed_in(browser, house) as (context, _):
        before = house.state()
        page = context.new_page()
        page.route("**/kittens", lambda route: route.fulfill(content_type="text/html", body=PAGE))
        page.goto(f"{rebound}/kittens")
        read = page.evaluate("about => attack(about)", {"target": rebound, "job": house.job, "strike": ""})
        assert house.state() == before
        assert not [
            one for one in read if "HOST_NOT_ALLOWED" not in one and "does not answer under this name" not in one
        ]
        assert CANARY not in str(read)
        assert page.goto(f"{rebound}/api/v1/me").status == 400  # type: ignore[union-attr]  # it answers


def test_with_its_doors_open_the_same_page_does_harm(
    browser: Browser, house: GuardedHouse, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the page is as hostile as it says."""
    monkeypatch.setattr(guard, "stopped", lambda *_: None)
    monkeypatch.setattr(desk, "csrf_fits", lambda *_: True)
    for module in (perform, guarded_route):
        monkeypatch.setattr(module, "takes", lambda *_: True)
    with signed_in(browser, house) as (context, _):
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{port}/")
        page.evaluate("about => attack(about)", {"target": house.url, "job": house.job, "strike": ""})
    assert {"/account", "/note"} <= set(house.changes)
    assert house.conn.execute("select state from mainspring.jobs").fetchall() == [("cancelled",)]
