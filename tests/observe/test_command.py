"""What `mainspring worker run` and `mainspring alert` show, as a person or Prometheus sees it."""

from __future__ import annotations

import json
import logging
import signal
import socket
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import StringIO
from typing import Any

import pytest
from tests.cli.conftest import APP, command
from tests.cli.shop import fail, greet
from tests.databases import Database

from mainspring import Client
from mainspring.cli import main
from mainspring.cli.logs import asked_format, log_to_stderr
from mainspring.cli.observers import checked_port
from mainspring.errors import ConfigurationError
from mainspring.observe import JsonFormatter, TerminalFormatter
from mainspring.observe.alerts import RULES


@pytest.fixture
def client(database: Database) -> Iterator[Client]:
    with Client(database.dsn) as client:
        yield client


def free_ports(count: int) -> int:
    """A port that is free, and so are the next ones."""
    while True:
        with socket.socket() as first:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
        with suppress(OSError):
            for number in range(port, port + count):
                with socket.socket() as other:
                    other.bind(("127.0.0.1", number))
            return port


def scrape(port: int, wanted: str) -> str:
    deadline = time.monotonic() + 30
    while True:
        with suppress(OSError):
            text: str = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read().decode()
            if wanted in text:
                return text
        assert time.monotonic() < deadline, f"no {wanted} on port {port}"
        time.sleep(0.1)


@pytest.mark.rule("ENG-21.01", "ENG-22.02")
def test_each_process_of_a_worker_shows_metrics_on_its_own_port_and_logs_json_lines(
    database: Database, client: Client
) -> None:
    client.enqueue_many([greet.job(name="Ada"), fail.job(text="password=hunter2")])
    port = free_ports(2)
    arguments = ("--processes", "2", "--metrics-port", str(port))
    process = command("worker", "run", "--dsn", database.dsn, *arguments, MAINSPRING_APP=APP)
    try:
        texts = [scrape(port + number, "mainspring_workers_alive 2.0") for number in range(2)]
        for text in texts:
            assert "mainspring_gauges_up 1.0" in text
        deadline = time.monotonic() + 30
        while {job.state for job in client.jobs()} != {"succeeded", "dead"}:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        texts = [scrape(port + number, "mainspring_deadletter_open") for number in range(2)]
        assert any('mainspring_jobs_succeeded_total{job_type="greet",queue="q:default"} 1.0' in text for text in texts)
    finally:
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30)

    lines = [json.loads(line) for line in err.splitlines()]
    events = {line.get("event") for line in lines}
    assert events >= {"worker.started", "job.started", "job.succeeded", "job.failed", "job.deadlettered", "alert"}
    assert sum(line.get("event") == "job.failed" for line in lines) == 1
    assert not any("job " in line.get("message", "") and "of fail" in line.get("message", "") for line in lines)
    assert "hunter2" not in err


def test_alerts_are_listed_and_printed_as_rules(
    database: Database, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    client.enqueue(greet.job(name="Ada"))
    assert main(["alert", "list", "--dsn", database.dsn, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["alert"], found["severity"]) == ("no-worker", "critical")

    assert main(["alert", "list", "--dsn", database.dsn]) == 0
    assert "no-worker" in capsys.readouterr().out

    assert main(["alert", "rules", "--runbook", "https://docs.example.com/"]) == 0
    text = capsys.readouterr().out
    assert text.count("- alert: ") == len(RULES)
    assert 'runbook: "https://docs.example.com/docs/operations/alerts.md#no-worker"' in text


def test_a_port_that_is_none_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checked_port(None) is None
    assert checked_port(9108) == 9108
    for wrong in (0, 70_000, -5):
        with pytest.raises(ConfigurationError, match="metrics-port"):
            checked_port(wrong)
    monkeypatch.setenv("MAINSPRING_METRICS_PORT", "soon")
    with pytest.raises(ConfigurationError, match="metrics-port"):
        checked_port(None)
    monkeypatch.setenv("MAINSPRING_METRICS_PORT", "9109")
    assert checked_port(None) == 9109


@contextmanager
def new_root() -> Iterator[logging.Logger]:
    """The root logger as a new process has it: without pytest's handlers."""
    root, echoes = logging.getLogger(), logging.getLogger("mainspring.worker.job")
    before, level = list(root.handlers), root.level
    root.handlers[:] = []
    try:
        yield root
    finally:
        root.handlers[:], echoes.disabled = before, False
        root.setLevel(level)


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("said", "json", "stream", "formatter"),
    [
        ("", False, StringIO(), JsonFormatter),
        ("", False, Terminal(), TerminalFormatter),
        ("", True, Terminal(), JsonFormatter),
        ("text", False, StringIO(), TerminalFormatter),
        ("json", False, Terminal(), JsonFormatter),
        ("none", False, StringIO(), None),
    ],
)
def test_json_is_logged_where_no_person_reads_or_where_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, said: str, json: bool, stream: StringIO, formatter: Any
) -> None:
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("MAINSPRING_LOG", said)

    with new_root() as root:
        log_to_stderr(json=json)
        found = [type(handler.formatter) for handler in root.handlers]

    assert found == ([formatter] if formatter else [])


@pytest.mark.parametrize("place", ["", "mainspring"])
def test_an_application_that_has_set_up_logging_is_left_alone_unless_somebody_asks(
    monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.delenv("MAINSPRING_LOG", raising=False)
    own, logger = logging.StreamHandler(StringIO()), logging.getLogger(place)
    with new_root() as root:
        logger.addHandler(own)
        try:
            log_to_stderr()
            assert own in logger.handlers
            assert root.handlers == ([] if place else [own])
            assert logging.getLogger("mainspring.worker.job").disabled, "events say it"
            monkeypatch.setenv("MAINSPRING_LOG", "json")
            log_to_stderr()
            assert [type(handler.formatter) for handler in root.handlers] == [JsonFormatter]
        finally:
            logger.removeHandler(own)


def test_a_format_that_is_none_of_them_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSPRING_LOG", "xml")
    with pytest.raises(ConfigurationError, match="MAINSPRING_LOG"):
        asked_format(False)
