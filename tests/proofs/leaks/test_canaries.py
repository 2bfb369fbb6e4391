"""Secrets are put wherever a handler, a provider or an operator can, and looked for wherever people read."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import psycopg
import pytest
from tests.databases import Database
from tests.proofs.leaks.canaries import secrets_in_every_shape
from tests.proofs.leaks.leaky import tasks

from mainspring import Client
from mainspring.cli import main

PLACES = (
    "error", "cause", "thread", "local", "process", "permanent", "provider",
    "log", "extra", "answer", "logged exception", "note", "result", "reason",
)  # fmt: skip
TASKS = ("raises", "raises_in_thread", "raises_in_process", "permanent", "asked_to_wait", "chatters")
APP = "tests.proofs.leaks.leaky:app"
#: What people read of the database: errors, trails, notes and results.
ROWS = """
    select to_jsonb(a) from mainspring.attempt a union all select to_jsonb(f) from mainspring.finished f
    union all select to_jsonb(t) from mainspring.trail t union all select to_jsonb(p) from mainspring.progress p
    union all select to_jsonb(q) from mainspring.queue q union all select to_jsonb(r) from mainspring.resolution r
"""


class Reader:
    """Somebody who reads everything that the platform says, and knows what must not be there."""

    def __init__(self) -> None:
        self.seeded = {place: secrets_in_every_shape() for place in PLACES}
        self.read: dict[str, str] = {}

    @property
    def spills(self) -> dict[str, str]:
        return {place: " | ".join(texts.values()) for place, texts in self.seeded.items()}

    def leaks(self) -> list[str]:
        """Where which secret was read."""
        return [
            f"{place}: {value} in {where}: …{text[max(0, text.index(value) - 60) : text.index(value) + 40]}…"
            for place, texts in self.seeded.items()
            for value in texts
            for where, text in self.read.items()
            if value in text
        ]


def commands(client: Client) -> list[list[str]]:
    """Everything that an operator may type to look at these jobs."""
    lines = [["job", "list"], ["dead", "list"], ["dead", "list", "--groups"], ["audit", "list"], ["queue", "list"]]
    lines += [["worker", "list"], ["doctor"], ["top", "--once"], ["alert", "list"]]
    for job in client.jobs():
        verbs = ["show", "explain"]
        lines += [["job", verb, str(job.id)] for verb in verbs]
        lines += [["dead", "show", str(job.id)]] if job.state in ("failed", "dead") else []
    return lines + [[*line, "--json"] for line in lines if line[0] != "top"]


@pytest.mark.rule("ENG-19.07", "ENG-21.08", "ENG-8.10")
def test_no_secret_is_read_in_logs_metrics_spans_commands_or_rows(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reader, spans = Reader(), tmp_path / "spans"
    monkeypatch.setenv("MAINSPRING_DSN", database.dsn)
    monkeypatch.setenv("MAINSPRING_APP", APP)
    spilling = {"LEAKY_SPILLS": json.dumps(reader.spills), "LEAKY_SPANS": str(spans)}

    def type_(*words: str) -> str:
        main(words)
        return "".join(capsys.readouterr())

    with Client(database.dsn) as client:
        for task in TASKS:
            client.enqueue(tasks.get(task).job(n=1))
        reader.read |= _work(spilling, client, port=_free_port())
        reader.read["spans"] = spans.read_text()
        dead = next(job for job in client.jobs() if job.task == "permanent")
        for verb in (["queue", "pause", "q:exports"], ["dead", "discard", str(dead.id), "--yes"]):
            type_(*verb, "--reason", reader.spills["reason"].replace("\n", " ")[:900])
        for line in commands(client):
            reader.read[" ".join(line)] = type_(*line)
    with psycopg.connect(database.dsn) as conn:
        reader.read["rows"] = "\n".join(str(row[0]) for row in conn.execute(ROWS.encode()))

    assert {task for task in TASKS if task not in reader.read["rows"]} == set(), "these did not run"
    assert "***" in reader.read["rows"]
    assert "calling: " in reader.read["log"]
    assert "permanent" in reader.read["metrics"]
    assert "permanent" in reader.read["spans"]
    assert reader.leaks() == []


def test_reader_finds_a_leak() -> None:
    reader = Reader()
    value, text = next(iter(reader.seeded["error"].items()))
    reader.read["a page"] = f"it said: {text}"

    assert [leak for leak in reader.leaks() if value in leak and leak.startswith("error: ")]


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _work(spilling: dict[str, str], client: Client, port: int) -> dict[str, str]:
    """Run a worker until all jobs have ended; what it said, and what it showed to Prometheus."""
    worker = subprocess.Popen(
        [sys.executable, "-m", "mainspring.cli", "worker", "run", "--json", "--metrics-port", str(port)],
        env=os.environ | spilling, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 40
        while any(job.state in ("ready", "running", "retrying", "scheduled") for job in client.jobs()):
            assert worker.poll() is None, worker.communicate()
            assert time.monotonic() < deadline, [(job.task, job.state) for job in client.jobs()]
            time.sleep(0.05)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            metrics = answer.read().decode()
    finally:
        worker.terminate()
        log = worker.communicate(timeout=30)[0]
    return {"log": log, "metrics": metrics}
