"""`mainspring serve` and `mainspring kick` as processes."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest
from tests.databases import Database
from tests.web.shop import slow
from tests.web.visit import SECRET, SHOWN, served

import mainspring as ms
from mainspring.cli import main
from mainspring.errors import ConfigurationError
from mainspring.web import Server

APP = "tests.web.shop:app"


@contextmanager
def started(*arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "mainspring.cli", *arguments],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def serving(database: Database, *arguments: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    with started(
        "serve", "--app", APP, "--port", "0", *arguments, MAINSPRING_DSN=database.dsn, **environment
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.fullmatch(r"Mainspring listens on (http://127\.0\.0\.1:\d+)\n", line)
        assert found, (line, process.communicate(timeout=60))
        yield process, found[1]


@pytest.mark.rule("ENG-15.02")
def test_it_serves_runs_and_stops_in_good_order(database: Database) -> None:
    with ms.Client(database.dsn) as client, serving(database, CRON_SECRET=SECRET) as (process, url):
        job, other = (client.enqueue(slow.job(seconds=1)).id for _ in range(2))
        with httpx2.Client(base_url=url) as visitor:
            ready = visitor.get("/v1/health/ready")
            said = visitor.get("/hello?password=hunter2", headers={"x-request-id": "req-1"})
            line = socket.create_connection((httpx2.URL(url).host, httpx2.URL(url).port or 0))
            line.sendall(f"POST /v1/run HTTP/1.1\r\nhost: localhost\r\nx-cron-secret: {SECRET}\r\n\r\n".encode())
            while client.get(job).state != "running":
                time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
        answer = line.recv(10_000).decode()
        line.close()
        states = client.get(job).state, client.get(other).state

    assert (ready.status_code, said.text, process.returncode) == (200, "hello", 0)
    assert states == ("succeeded", "ready")  # what ran has ended, and nothing more was begun
    assert json.loads(answer.partition("\r\n\r\n")[2])["processed"] == 1
    lines = [json.loads(one) for one in err.splitlines()]
    (visit,) = [one for one in lines if one.get("path") == "/hello"]
    assert visit["request_id"] == "req-1"
    assert not any(word in out + err for word in (SECRET, "hunter2"))


def test_a_second_signal_gives_back_what_runs_and_waits_for_nobody(database: Database) -> None:
    with ms.Client(database.dsn) as client, serving(database, CRON_SECRET=SECRET) as (process, url):
        job = client.enqueue(slow.job(seconds=60)).id
        with socket.create_connection((httpx2.URL(url).host, httpx2.URL(url).port or 0)) as line:
            line.sendall(f"POST /v1/run HTTP/1.1\r\nhost: localhost\r\nx-cron-secret: {SECRET}\r\n\r\n".encode())
            while client.get(job).state != "running":
                time.sleep(0.01)
            for _ in range(2):
                process.send_signal(signal.SIGTERM)
                time.sleep(0.3)
            began = time.monotonic()
            process.communicate(timeout=60)
            took = time.monotonic() - began
        found = client.get(job)

    assert (process.returncode, took < 30) == (0, True)  # the job takes 60
    assert (found.state, found.attempt) == ("ready", 0)


def test_without_a_secret_it_serves_this_machine_and_runs_nothing(database: Database) -> None:
    with serving(database) as (_, url), httpx2.Client(base_url=url) as visitor:
        answers = [visitor.get("/hello"), visitor.get("/metrics"), visitor.post("/v1/run", headers=SHOWN)]

    assert [answer.status_code for answer in answers] == [200, 200, 404]


@pytest.mark.parametrize(
    ("arguments", "environment", "complaint"),
    [
        (["--host", "0.0.0.0"], {}, "host: 0.0.0.0 can be reached from elsewhere, and CRON_SECRET is not set"),
        (["--host", "::"], {}, "host: :: can be reached from elsewhere"),
        ([], {"CRON_SECRET": ""}, "CRON_SECRET: must have at least 16 characters"),
        ([], {"CRON_SECRET": "short"}, "CRON_SECRET: must have at least 16 characters"),
        (["--host", "no such host.invalid"], {}, "host: is no address of this machine"),
        (["--port", "70000"], {}, "port: is not between 0 and 65535"),
        (["--proxy-headers", "anybody"], {}, "proxy-headers: is not a list of addresses"),
    ],
)
@pytest.mark.rule("ENG-15.05")
def test_what_must_not_start_says_why_in_one_line(
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    environment: dict[str, str],
    complaint: str,
) -> None:
    monkeypatch.setenv("MAINSPRING_DSN", database.dsn)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    code = main(["serve", "--app", APP, *(["--port", "0"] if "--port" not in arguments else []), *arguments])

    out, err = capsys.readouterr()
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"mainspring: {complaint}")


def test_a_port_that_is_taken_is_one_clear_error(database: Database) -> None:
    app = ms.App(ms.Registry("shop"), dsn=database.dsn, maintenance=False)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            ConfigurationError, match=rf"^port: cannot listen on 127.0.0.1:{port}: Address already in use"
        ):
            Server(app, port=port).listen()


def test_answers_are_sent_without_delay(database: Database) -> None:
    server = Server(ms.App(ms.Registry("shop"), dsn=database.dsn, maintenance=False), port=0)
    server.listen()

    assert server._socket is not None
    with server._socket as listening:
        assert listening.proto == socket.IPPROTO_TCP  # by this asyncio knows that Nagle's algorithm is to be off


def test_with_a_secret_it_may_listen_beyond_this_machine(database: Database) -> None:
    app = ms.App(ms.Registry("shop"), dsn=database.dsn, maintenance=False)
    with served(app, host="0.0.0.0") as url, httpx2.Client() as visitor:
        answer = visitor.get(url.replace("0.0.0.0", "127.0.0.1") + "/metrics")

    assert answer.status_code == 401


@pytest.mark.parametrize(("proxies", "scheme"), [((), "http"), (("127.0.0.1",), "https"), (("10.0.0.0/8",), "http")])
def test_only_proxies_that_are_named_are_believed(database: Database, proxies: tuple[str, ...], scheme: str) -> None:
    app = ms.App(ms.Registry("shop"), dsn=database.dsn, maintenance=False)
    with served(app, proxies=proxies) as url, httpx2.Client() as visitor:
        headers = {"x-forwarded-proto": "https", "x-forwarded-for": "203.0.113.9"}
        answer = visitor.get(f"{url}/v1/health/live", headers=headers)

    assert ("strict-transport-security" in answer.headers) == (scheme == "https")


def kick(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["kick", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def shop(database: Database, monkeypatch: pytest.MonkeyPatch) -> ms.App:
    monkeypatch.setenv("CRON_SECRET", SECRET)
    tasks = ms.Registry("shop")

    @tasks.task
    async def noop() -> None:
        """Do nothing."""

    return ms.App(tasks, dsn=database.dsn, maintenance=False)


@pytest.mark.rule("ENG-15.18")
def test_one_call_says_what_it_did(
    shop: ms.App, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with shop.client() as client, served(shop) as url:
        client.enqueue_many([shop.registry.get("noop").job() for _ in range(11)])
        monkeypatch.setenv("BASE_URL", url)  # the schedule's address comes from here
        first = kick(capsys)
        second = kick(capsys, "--json")

    assert (first[0], first[1].partition(" at ")[0]) == (0, "10 jobs ran; 1 remains")
    assert json.loads(second[1]) | {"asOfUtc": ""} == {"ok": True, "processed": 1, "remainingPending": 0, "asOfUtc": ""}


@pytest.mark.rule("ENG-15.14")
def test_anything_but_a_2xx_is_an_error(
    shop: ms.App, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with served(shop) as url:
        lost = kick(capsys, "--url", url, "--path", "/nowhere")
        odd = kick(capsys, "--url", url, "--path", "/v1/health/live")
        monkeypatch.setenv("CRON_SECRET", SECRET[::-1])
        wrong = kick(capsys, "--url", url)
    away = kick(capsys, "--url", url)

    assert [answer[0] for answer in (lost, odd, wrong, away)] == [1, 1, 1, 1]
    assert [answer[2].count("\n") for answer in (lost, odd, wrong, away)] == [1, 1, 1, 1]
    assert [answer[2].partition(url)[2] for answer in (lost, odd, wrong)] == [
        "/nowhere answered 404: no run endpoint is there; without CRON_SECRET a server has none\n",
        "/v1/health/live answered 405\n",
        "/v1/run answered 401\n",
    ]
    assert not any(SECRET[::-1] in answer[2] for answer in (lost, odd, wrong, away))


@pytest.mark.rule("ENG-15.09", "ENG-15.14")
def test_a_scheduled_caller_starts_jobs_logs_what_is_refused_and_goes_on(shop: ms.App) -> None:
    def line(process: subprocess.Popen[str], level: str) -> Any:
        assert process.stderr is not None
        for one in process.stderr:
            if (said := json.loads(one))["level"] == level:
                return said
        raise AssertionError("it has ended")

    with shop.client() as client:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        with started("kick", "--url", url, "--every", "1s") as process:
            failed = line(process, "error")  # nobody serves yet
            job = client.enqueue(shop.registry.get("noop").job()).id
            with served(shop, port=port):
                client.result(job, timeout=30)
                ran = line(process, "info")
                process.send_signal(signal.SIGTERM)
                _, rest = process.communicate(timeout=60)

    assert (failed["calls"], failed["failures"], ran["action"]) == (1, 1, "kick")
    last = json.loads(rest.splitlines()[-1])
    assert (last["action"], last["failures"] >= 1, last["calls"] > last["failures"]) == ("stop", True, True)
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "url: give --url, or set BASE_URL"),
        (["--url", "shop.test"], "url: is not of the form https://host/path"),
        (["--url", "http://127.0.0.1:1", "--every", "0s"], "every: must be positive"),
        (["--url", "http://127.0.0.1:1", "--path", "x"], "path: does not begin with /"),
    ],
)
def test_a_call_that_makes_no_sense_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str
) -> None:
    monkeypatch.setenv("CRON_SECRET", SECRET)

    assert kick(capsys, *arguments) == (2, "", f"mainspring: {complaint}\n")


def test_a_call_needs_the_secret(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = kick(capsys, "--url", "http://127.0.0.1:1")

    assert (code, err) == (2, "mainspring: CRON_SECRET: is not set; the run endpoint asks for it\n")
