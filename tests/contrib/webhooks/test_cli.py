"""`mainspring webhook`, as a person uses it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from threading import Thread

import pytest
from tests.cli.conftest import Answer as Answer
from tests.cli.conftest import Cli
from tests.cli.conftest import cli as cli
from tests.contrib.webhooks.hooks import Inbox
from tests.databases import Database
from tests.worker.stage import SETTINGS

from mainspring import App, WorkerConfig
from mainspring.contrib.webhooks import Policy, Webhooks

APP = "tests.contrib.webhooks.test_cli:app"
hooks = Webhooks(policy=Policy.local())
app = App(blocks=[hooks], maintenance=False)
bare = App(maintenance=False)


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    """A receiver in a thread of its own: commands are sync."""
    inbox, loop = Inbox(), asyncio.new_event_loop()

    async def begin() -> asyncio.Server:
        server = await asyncio.start_server(inbox.serve, "127.0.0.1", 0)
        inbox.port = server.sockets[0].getsockname()[1]
        return server

    thread = Thread(target=loop.run_forever)
    thread.start()
    server = asyncio.run_coroutine_threadsafe(begin(), loop).result(10)
    yield inbox

    async def end() -> None:
        server.close()
        await server.wait_closed()

    asyncio.run_coroutine_threadsafe(end(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def work() -> None:
    asyncio.run(app.worker(WorkerConfig(**SETTINGS)).drain())


def test_an_endpoint_from_its_beginning_to_its_end(cli: Cli, inbox: Inbox) -> None:
    about = ("--event", "order.*", "--header", "X-Tenant: 7", "--description", "the shop")
    added = cli("webhook", "endpoint", "add", inbox.url, "--app", APP, *about, "--json").json
    assert added["secret"].startswith("whsec_")
    assert added["events"] == ["order.*"]
    assert cli("webhook", "endpoint", "list", "--json").json[0]["id"] == added["id"]
    shown = cli("webhook", "endpoint", "show", added["id"])
    assert "order.*" in shown.out
    assert added["secret"] not in shown.out

    assert "is paused" in cli("webhook", "endpoint", "pause", added["id"], "--reason", "later").out
    assert "was paused already" in cli("webhook", "endpoint", "pause", added["id"], "--reason", "later").out
    assert "paused" in cli("webhook", "endpoint", "list").out
    assert "is active again" in cli("webhook", "endpoint", "resume", added["id"]).out

    rotated = cli(
        "webhook", "endpoint", "rotate", added["id"], "--app", APP, "--overlap", "0s", "--reason", "it leaked"
    )
    assert rotated.out.splitlines()[0].startswith("whsec_")
    assert rotated.out.splitlines()[0] != added["secret"]

    sent = cli("webhook", "test", added["id"], "--app", APP, "--wait", "0s", "--json").json
    assert (sent["status"], sent["event_type"]) == ("pending", "webhook.ping")
    work()
    assert inbox.requests[0].headers["x-tenant"] == "7"
    delivered = cli("webhook", "delivery", "show", sent["id"])
    assert "delivered" in delivered.out
    listed = cli("webhook", "delivery", "list", "--status", "delivered", "--endpoint", added["id"], "--json").json
    assert [row["id"] for row in listed] == [sent["id"]]

    again = cli("webhook", "delivery", "redeliver", sent["id"], "--reason", "they lost it", "--app", APP)
    assert f"{sent['id']}: is sent again by job" in again.out
    work()
    assert [request.headers["webhook-id"] for request in inbox.requests] == [sent["id"]] * 2

    assert "is removed" in cli("webhook", "endpoint", "remove", added["id"], "--reason", "it is over").out
    assert "There are no endpoints." in cli("webhook", "endpoint", "list").out


def test_a_ping_that_no_worker_sends_says_where_to_look(cli: Cli, inbox: Inbox) -> None:
    added = cli("webhook", "endpoint", "add", inbox.url, "--app", APP, "--json").json
    sent = cli("webhook", "test", added["id"], "--app", APP, "--wait", "1s", "--json")

    told = json.loads(sent.out)
    assert (sent.code, told["status"]) == (1, "pending")
    explained = f"mainspring job explain {told['job_id']}"
    assert sent.err == f"mainspring: no worker sent it within 1 s: see `{explained}`\n"


def test_the_secret_is_printed_once_for_people(cli: Cli, inbox: Inbox) -> None:
    added = cli("webhook", "endpoint", "add", inbox.url, "--app", APP)
    assert added.code == 0, added.err
    first, secret, last = added.out.splitlines()
    assert inbox.url in first
    assert secret.startswith("whsec_")
    assert "not shown again" in last


WRONG = [
    (2, "url: must begin with https://", ("endpoint", "add", "ftp://example.com/")),
    (2, "url: ", ("endpoint", "add", "https://169.254.169.254/")),
    (2, "events: ", ("endpoint", "add", "{url}", "--event", "a b")),
    (2, "headers: ", ("endpoint", "add", "{url}", "--header", "nothing")),
    (2, "headers: Host", ("endpoint", "add", "{url}", "--header", "Host: example.com")),
    (3, "endpoint: there is no endpoint", ("endpoint", "show", "00000000-0000-0000-0000-000000000007")),
    (3, "endpoint: there is no endpoint", ("endpoint", "rotate", "00000000-0000-0000-0000-000000000007")),
    (2, "overlap: ", ("endpoint", "rotate", "00000000-0000-0000-0000-000000000007", "--overlap", "soon")),
    (2, "is not an id", ("endpoint", "show", "seven")),
    (3, "delivery: there is no delivery", ("delivery", "show", "00000000-0000-0000-0000-000000000007")),
    (2, "reason", ("delivery", "redeliver", "00000000-0000-0000-0000-000000000007")),
    (2, "status: is not one of pending, delivered, failed", ("delivery", "list", "--status", "x")),
]


def test_bad_input_is_one_clear_line(cli: Cli, inbox: Inbox) -> None:
    for code, text, typed in WRONG:
        answer = cli("webhook", *(part.format(url=inbox.url) for part in typed), "--app", APP)
        assert (answer.code, answer.out) == (code, ""), typed
        assert text in answer.err, (typed, answer.err)
        assert len(answer.err.strip().splitlines()) == 1


def test_what_makes_secrets_needs_the_application(cli: Cli, database: Database) -> None:
    answer = cli("webhook", "endpoint", "add", "https://example.com/")
    assert (answer.code, answer.err) == (2, "mainspring: app: give --app module:name, or set MAINSPRING_APP\n")
    answer = cli("webhook", "endpoint", "add", "https://example.com/", "--app", "tests.contrib.webhooks.test_cli:bare")
    assert "app: has no webhooks" in answer.err


def test_a_delivery_is_sent_again_by_the_application_s_own_task_or_not_at_all(cli: Cli, database: Database) -> None:
    answer = cli("webhook", "delivery", "redeliver", "00000000-0000-0000-0000-000000000007", "--reason", "lost")
    assert (answer.code, answer.err) == (2, "mainspring: app: give --app module:name, or set MAINSPRING_APP\n")
