"""`mainspring up`, as a stranger meets it: it works, survives what they do to it, and cleans up after itself."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import httpx2
import psycopg
import pytest
from tests.cli.conftest import command

import mainspring as ms
from mainspring.cli import main
from mainspring.cli.up import LEASES, _alone, _leases
from mainspring.embedded import SUPERUSER, Cluster

WORKED = r"succeeded +[1-9]"

#: An application of somebody's own: it makes its client when it is imported, and has people who come by themselves.
OWN = """
import mainspring as ms
from mainspring.db.schema.line import Migration

tasks = ms.Registry("own")


@tasks.task(subject="name")
async def tick(*, name: str = "first") -> None: ...


@tasks.task
async def wreck() -> None:
    raise ms.Permanent("not this one")


@tasks.task
async def crowd() -> None: ...


def open_shop(conn):
    conn.execute("insert into mainspring.own_row values (1, 0) on conflict do nothing")
    conn.execute("update mainspring.own_row set rounds = rounds + 1")
    if conn.execute("select rounds from mainspring.own_row").fetchone() == (1,):
        with app.client() as client:
            client.enqueue_many([wreck.job(), *(crowd.job() for _ in range(40))], conn=conn)


tables = "create table {schema}.own_row (id int primary key, rounds int not null, org_id text not null default '')"
tasks.schedule("each-10", ms.cron("*/10 * * * *", zone="Europe/Berlin"), tick)
app = ms.App(
    tasks, prepare=[open_shop], about="Own pages: {url}/own",
    migrations=[ms.Line("own", (Migration(1, "rows", tables),))],
)
client = app.client()
"""


@pytest.fixture(scope="module")
def data() -> Iterator[Path]:
    """One for this file, because making a cluster takes seconds; a later test finds what an earlier one left."""
    with tempfile.TemporaryDirectory(prefix="mainspring-up-") as folder:
        Path(folder).chmod(0o755)  # for the account that runs PostgreSQL when we are root
        yield Path(folder)
        for place in ("postgres", "speed/postgres"):
            if (Path(folder) / place).exists():
                Cluster(Path(folder) / place).remove()


def read_until(process: subprocess.Popen[str], pattern: str, seconds: float = 120) -> re.Match[str]:
    """Read until a line matches; the match's string is all that was read."""
    assert process.stdout is not None
    deadline, seen = time.monotonic() + seconds, ""
    for line in process.stdout:
        seen += line
        if found := re.search(pattern, seen):
            return found
        if time.monotonic() > deadline:
            break
    process.kill()
    raise AssertionError(f"no line matches {pattern!r} in:\n{seen}\n{process.communicate()[1]}")


def page(url: str) -> str:
    with urlopen(url, timeout=10) as answer:
        text: str = answer.read().decode()
    return text


@contextmanager
def looking_into(data: Path) -> Iterator[Callable[[str], float]]:
    """Counts what is in the data."""
    cluster = Cluster(data / "postgres")
    started = cluster.start()
    with psycopg.connect(cluster.dsn(user=SUPERUSER)) as conn:  # its schema may be secured

        def count(query: str) -> float:
            row = conn.execute(query.encode()).fetchone()
            assert row is not None
            return float(row[0])

        yield count
    if started:
        cluster.stop()


@pytest.mark.always
def test_stranger_kills_everything_then_a_worker_and_stops_with_ctrl_c(data: Path) -> None:
    up = command("up", "--data", str(data), "--rate", "30")
    desk = read_until(up, r"outbox list --sandbox (\S+)")[1]
    code = read_until(up, r"sign in +http://\S+/sign-in#(\S+) ")[1]
    url = read_until(up, r"curl (\S+)/v1/health/ready")[1]
    signed_in = [httpx2.post(f"{url}/api/v1/sign-in/link", json={"code": code}).status_code for _ in range(2)]
    assert signed_in == [200, 401]
    bearer = (data / "curl.operator").read_text().removeprefix('header = "Authorization: ').removesuffix('"\n')
    assert httpx2.get(f"{url}/api/v1/me", headers={"authorization": bearer}).json()["role"] == "operator"
    queues = httpx2.get(f"{url}/api/v1/queues", headers={"authorization": bearer})
    assert queues.status_code == 200, queues.text
    read_until(up, WORKED)
    twice = command("up", "--data", str(data))
    assert "`mainspring up` is already running on" in twice.communicate(timeout=30)[1]
    assert twice.returncode == 2
    assert "mainspring_gauges_up 1.0" in page(f"{url}/metrics")
    deadline = time.monotonic() + 120
    while '"kind":"charge"' not in page(f"{desk}/sandbox/outbox?kind=charge").replace(" ", ""):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    Cluster(data / "postgres").kill()
    up.kill()
    up.communicate()

    up = command("up", "--data", str(data), "--rate", "30")
    victim = int(read_until(up, r"kill -9 (\d+)")[1])
    read_until(up, WORKED)
    os.kill(victim, signal.SIGKILL)
    read_until(up, f"Worker {victim} was killed by SIGKILL")
    heir = int(read_until(up, r"Worker (\d+) starts")[1])
    assert heir != victim
    read_until(up, WORKED)
    up.send_signal(signal.SIGINT)
    out, err = up.communicate(timeout=60)
    assert (up.returncode, err) == (0, "")
    assert out.splitlines()[-2:] == ["Stopping: running jobs finish …", "PostgreSQL has stopped; the data are kept."]
    assert not Cluster(data / "postgres").running
    with looking_into(data) as count:
        assert count("select count(*) from mainspring.finished where state = 'succeeded'") > 0
        assert count("select relforcerowsecurity::int from pg_class where oid = 'mainspring.job'::regclass") == 1
        assert count(f"select count(*) from mainspring.running where worker like '%:{heir}:%'") == 0

    up = command("up", "--data", str(data), "--speed", "60")
    err, place = up.communicate(timeout=60)[1], re.escape(str(data))
    assert re.fullmatch(f"mainspring: speed: in {place} time is real; keep it apart, .*--data {place}/speed\n", err)
    assert up.returncode == 2


def test_worker_that_cannot_run_is_the_end_and_says_why(data: Path) -> None:
    up = command("up", "--data", str(data), "--app", "tests.cli.shop:app", MAINSPRING_THREADS="none")
    out, err = up.communicate(timeout=60)
    assert up.returncode == 2
    assert re.fullmatch(r"mainspring: a worker cannot run: MAINSPRING_THREADS: .*\n", err)
    assert out.splitlines()[-1] == "PostgreSQL has stopped; the data are kept."


def test_an_application_lives_through_hours_in_seconds_and_goes_on_where_it_stood(data: Path, tmp_path: Path) -> None:
    (tmp_path / "own_shop.py").write_text(OWN)
    own = {"PYTHONPATH": str(tmp_path), "MAINSPRING_DSN": "postgresql://127.0.0.1:1/elsewhere"}
    own["MAINSPRING_MAINTENANCE"] = "on"  # which is not shown unless somebody wants it
    fast = ["up", "--data", str(data / "speed"), "--app", "own_shop:app", "--speed", "600"]
    up = command(*fast, "--from", "2026-03-02", **own)
    out = read_until(up, "each-10: tick").string
    up.send_signal(signal.SIGINT)
    rest, err = up.communicate(timeout=60)
    assert (up.returncode, err) == (0, "")
    out += rest
    assert "Its clock shows 2026-03-02 00:0" in out
    assert "and runs 600 times as fast as yours." in out
    assert re.search(r"\nOwn pages: http://127.0.0.1:\d+/own\n", out)
    local = r"2026-03-02 00:(\d\d):(\d\d)Z  Mon 01:\1:\2\+01:00 Europe/Berlin  "  # a minute here is 0.1 s
    assert re.search(local + "each-10: tick  name first  succeeded", out)
    assert re.search(r"UTC  wreck  failed: BUSINESS_RULE: not this one", out)
    assert re.search(r"\n… and [1-9]\d* more\n", out)
    assert "heartbeat" not in out

    up = command(*fast, "--json", "--watch", "all", **own)
    out = read_until(up, '"mainspring.heartbeat".*\\n').string
    up.send_signal(signal.SIGINT)
    rest, err = up.communicate(timeout=60)
    assert (up.returncode, err) == (0, "")
    moments = [json.loads(line) for line in (out + rest).splitlines()]
    assert "2026-03-02T00:1" < moments[0]["since"] <= moments[0]["until"] <= moments[-1]["until"] < "2026-03-04"
    shown = {entry["task"] for moment in moments for entry in moment["entries"]}
    assert {task for task in shown if not task.startswith("mainspring.")} <= {"tick", "crowd"}

    up = command(*fast, "--from", "2026-04-01", "--for", "4", **own)
    again = up.communicate(timeout=60)[1]
    assert re.fullmatch(
        r"mainspring: from: time has begun before, and stands at 2026-03-02 .*--data \S+/speed\n", again
    )
    assert up.returncode == 2
    with looking_into(data / "speed") as count:
        assert count("select sum(rounds) from mainspring.own_row") == 2  # prepared at each start that came so far
        late = "extract(epoch from percentile_cont(0.95) within group (order by f.at - f.instant))"
        assert count(f"select {late} from mainspring.fire f where f.schedule = 'each-10'") < 120


def test_demo_data_that_cannot_be_made_are_told_in_one_line(data: Path, tmp_path: Path) -> None:
    (tmp_path / "own_shop.py").write_text(OWN.replace("prepare=[", "prepare=['select 1 / 0', "))
    up = command("up", "--data", str(data), "--app", "own_shop:app", PYTHONPATH=str(tmp_path))
    out, err = up.communicate(timeout=60)
    assert re.fullmatch(r"mainspring: app: its prepare failed: DivisionByZero: division by zero .*\n", err)
    assert up.returncode == 2
    assert out.splitlines()[-1] == "PostgreSQL has stopped; the data are kept."


@pytest.mark.parametrize(
    "option",
    [
        ["--app", "nowhere:app"],
        ["--app", "nothing"],
        ["--processes", "0"],
        ["--rate", "-1"],
        ["--speed", "0.5"],
        ["--from", "later"],
    ],
)
def test_option_out_of_range_is_refused_before_anything_starts(
    tmp_path: Path, option: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["up", "--data", str(tmp_path / "new"), *option]) == 2
    assert capsys.readouterr().err.startswith(f"mainspring: {option[0][2:]}: ")
    assert not (tmp_path / "new").exists()


def test_data_that_cannot_be_kept_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["up", "--data", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err == f"mainspring: data: cannot be kept in {tmp_path}/file: File exists\n"


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ({}, LEASES),
        ({"SHOP_RESCUE": "9"}, {name: LEASES[name] for name in LEASES if "_LEASE_" in name}),
        ({"MAINSPRING_LEASE_SECONDS": "60"}, {}),
        ({"SHOP_LEASE": "60"}, {}),
    ],
)
def test_leases_are_short_unless_somebody_says_otherwise_in_any_words(
    said: dict[str, str], left: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    aliases = {"SHOP_LEASE": "MAINSPRING_LEASE_SECONDS", "SHOP_RESCUE": "MAINSPRING_RESCUE_SECONDS"}

    assert _leases(ms.App(ms.Registry("shop"), setting_aliases=aliases)) == left


def test_data_are_for_nobody_elses_eyes(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o755)
    before = os.umask(0o022)
    try:
        with _alone(tmp_path / "data"):
            (tmp_path / "data" / "file").touch()
        after = os.umask(0o022)
    finally:
        os.umask(before)

    assert (tmp_path / "data").stat().st_mode & 0o066 == 0  # for root PostgreSQL's account may pass through
    for name in ("file", "up.lock"):  # who could open that one could hold it, and keep `up` from starting
        assert (tmp_path / "data" / name).stat().st_mode & 0o777 == 0o600
    assert after == 0o022
