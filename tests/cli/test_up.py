"""`mainspring up`, as a stranger meets it: it works, survives what they do to it, and cleans up after itself."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import psycopg
import pytest
from tests.cli.conftest import command

from mainspring.embedded import SUPERUSER, Cluster

WORKED = r"succeeded +[1-9]"


@pytest.fixture(scope="module")
def data() -> Iterator[Path]:
    """One for this file, because making a cluster takes seconds; a later test finds what an earlier one left."""
    with tempfile.TemporaryDirectory(prefix="mainspring-up-") as folder:
        Path(folder).chmod(0o755)  # for the account that runs PostgreSQL when we are root
        yield Path(folder)
        Cluster(Path(folder) / "postgres").remove()


def read_until(process: subprocess.Popen[str], pattern: str, seconds: float = 40) -> re.Match[str]:
    """Read lines until one matches."""
    assert process.stdout is not None
    deadline, seen = time.monotonic() + seconds, ""
    for line in process.stdout:
        seen += line
        if found := re.search(pattern, line):
            return found
        if time.monotonic() > deadline:
            break
    process.kill()
    raise AssertionError(f"no line matches {pattern!r} in:\n{seen}\n{process.communicate()[1]}")


def page(url: str) -> str:
    with urlopen(url, timeout=10) as answer:
        text: str = answer.read().decode()
    return text


def count(data: Path, query: str) -> int:
    cluster = Cluster(data / "postgres")
    started = cluster.start()
    with psycopg.connect(cluster.dsn(user=SUPERUSER)) as conn:  # its schema is secured
        row = conn.execute(query.encode()).fetchone()
    if started:
        cluster.stop()
    assert row is not None
    return int(row[0])


def test_stranger_kills_the_worker_and_stops_with_ctrl_c(data: Path) -> None:
    up = command("up", "--data", str(data), "--rate", "30")
    desk = read_until(up, r"outbox list --sandbox (\S+)")[1]
    url = read_until(up, r"curl (\S+)/v1/health/ready")[1]
    victim = int(read_until(up, r"kill -9 (\d+)")[1])
    read_until(up, WORKED)
    assert "mainspring_gauges_up 1.0" in page(f"{url}/metrics")
    deadline = time.monotonic() + 40
    while '"kind":"charge"' not in page(f"{desk}/sandbox/outbox?kind=charge").replace(" ", ""):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    os.kill(victim, signal.SIGKILL)
    read_until(up, f"Worker {victim} was killed by SIGKILL")
    assert int(read_until(up, r"Worker (\d+) starts")[1]) != victim
    read_until(up, WORKED)
    up.send_signal(signal.SIGINT)
    out, err = up.communicate(timeout=60)
    assert (up.returncode, err) == (0, "")
    assert out.splitlines()[-2:] == ["Stopping: running jobs finish …", "PostgreSQL has stopped; the data are kept."]
    assert not Cluster(data / "postgres").running
    assert count(data, "select count(*) from mainspring.finished where state = 'succeeded'") > 0
    assert count(data, "select relforcerowsecurity::int from pg_class where oid = 'mainspring.job'::regclass") == 1
    assert count(data, "select count(*) from mainspring.running where worker not like '%:" + f"{victim}:%'") == 0


def test_next_start_recovers_when_everything_was_killed(data: Path) -> None:
    up = command("up", "--data", str(data))
    read_until(up, WORKED)
    twice = command("up", "--data", str(data))
    assert "`mainspring up` is already running on" in twice.communicate(timeout=30)[1]
    assert twice.returncode == 2
    Cluster(data / "postgres").kill()
    up.kill()
    up.communicate()
    again = command("up", "--data", str(data), "--seconds", "6", "--json")
    out, err = again.communicate(timeout=90)
    assert (again.returncode, err) == (0, "")
    moments = [json.loads(line) for line in out.splitlines()]
    assert sum(moment["succeeded"] for moment in moments) > 0
    assert not Cluster(data / "postgres").running


def test_worker_that_cannot_run_is_the_end_and_says_why(data: Path) -> None:
    up = command("up", "--data", str(data), "--app", "tests.cli.shop:app", MAINSPRING_THREADS="none")
    out, err = up.communicate(timeout=60)
    assert up.returncode == 2
    assert re.fullmatch(r"mainspring: a worker cannot run: MAINSPRING_THREADS: .*\n", err)
    assert out.splitlines()[-1] == "PostgreSQL has stopped; the data are kept."


def test_an_application_may_make_its_clients_when_it_is_imported(data: Path, tmp_path: Path) -> None:
    made = "import mainspring as ms\napp = ms.App(None, ms.Registry('own'))\nclient = app.client()\n"
    (tmp_path / "own_shop.py").write_text(made)
    own = {"PYTHONPATH": str(tmp_path), "MAINSPRING_DSN": "postgresql://127.0.0.1:1/elsewhere"}
    up = command("up", "--data", str(data), "--app", "own_shop:app", "--seconds", "3", **own)
    out, err = up.communicate(timeout=60)
    assert (up.returncode, err) == (0, "")
    assert "enqueued   0" in out


@pytest.mark.parametrize("option", [["--processes", "0"], ["--rate", "-1"], ["--seconds", "-1"]])
def test_option_out_of_range_is_refused_before_anything_starts(tmp_path: Path, option: list[str]) -> None:
    up = command("up", "--data", str(tmp_path / "new"), *option)
    assert f"mainspring: {option[0][2:]}: " in up.communicate(timeout=30)[1]
    assert up.returncode == 2
    assert not (tmp_path / "new").exists()


def test_data_that_cannot_be_kept_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    up = command("up", "--data", str(tmp_path / "file"))
    assert up.communicate(timeout=30)[1] == f"mainspring: data: cannot be kept in {tmp_path}/file: File exists\n"
    assert up.returncode == 2
