"""`mainspring worker run`: real processes that are killed, stopped and left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest
from msgspec import Raw
from tests.cli.conftest import APP, command
from tests.cli.shop import greet, slow, stuck
from tests.databases import Database

from mainspring import Client, NewJob

Start = Callable[..., "subprocess.Popen[str]"]

GUARDED = """
import mainspring as ms

tasks = ms.Registry("guarded")


@tasks.task(queue="payments", needs=("stripe",))
async def charge() -> None: ...


app = ms.App(tasks, limits=[ms.rate("payments", 2, per="1s")], breakers=[ms.breaker("stripe")])
"""

CAREFUL = """
import gc

import mainspring as ms

tasks = ms.Registry("careful")


@tasks.task
async def look() -> list[int]:
    return [gc.get_threshold()[0], gc.get_freeze_count()]


app = ms.App(tasks)
"""


@pytest.fixture
def start(database: Database) -> Iterator[Start]:
    """Starts workers; what is left of them is ended afterwards."""
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: str, **environment: str) -> subprocess.Popen[str]:
        environment = {"MAINSPRING_APP": APP} | environment
        started.append(command("worker", "run", "--dsn", database.dsn, *arguments, **environment))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()
    for pid in children_of(database):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def children_of(database: Database) -> list[int]:
    """Processes that work on the test's own database."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if b"worker\0run\0--dsn\0" + database.dsn.encode() in file.read_bytes():
                found.append(int(file.parent.name))
    return found


def until(true: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def pids(client: Client) -> set[int]:
    return {worker.pid for worker in client.workers() if not worker.gone}


def enqueue(client: Client, *jobs: NewJob) -> list[UUID]:
    return [answer.id for answer in client.enqueue_many(jobs)]


def states(client: Client) -> list[str]:
    return sorted(job.state for job in client.jobs(limit=1000))


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_worker_declares_the_limits_and_breakers_of_its_application(
    start: Start, client: Client, tmp_path: Path
) -> None:
    (tmp_path / "guarded.py").write_text(GUARDED)
    start(MAINSPRING_APP="guarded:app", PYTHONPATH=str(tmp_path))
    until(lambda: client.breakers.list() and client.limits.list())
    assert [breaker.name for breaker in client.breakers.list()] == ["stripe"]
    assert [limit.name for limit in client.limits.list()] == ["rate:payments"]


@pytest.mark.parametrize(
    ("own", "wanted"), [("", 10_000), ("gc.set_threshold(50_000)", 50_000), ("gc.set_threshold(0)", 0)]
)
def test_process_of_a_worker_seldom_collects_garbage_unless_its_application_has_its_own_way(
    start: Start, client: Client, tmp_path: Path, own: str, wanted: int
) -> None:
    (tmp_path / "careful.py").write_text(CAREFUL + own)
    start(MAINSPRING_APP="careful:app", PYTHONPATH=str(tmp_path))
    (job,) = enqueue(client, NewJob(task="look", payload=Raw(b"{}")))
    threshold, frozen = client.result(job, timeout=60)
    assert threshold == wanted
    assert frozen > 10_000, "what was loaded is not looked at again"


@pytest.mark.rule("ENG-16.09")
def test_killed_process_comes_back_and_stop_lets_running_jobs_finish(start: Start, client: Client) -> None:
    supervisor = start("--processes", "2", "--concurrency", "5")
    until(lambda: len(pids(client)) == 2)
    victim = min(pids(client))
    os.kill(victim, signal.SIGKILL)
    until(lambda: len(pids(client) - {victim}) == 2)
    enqueue(client, *(slow.job(seconds=1.0) for _ in range(30)))
    until(lambda: states(client).count("running") == 10)
    supervisor.send_signal(signal.SIGTERM)
    _, err = supervisor.communicate(timeout=60)
    assert supervisor.returncode == 0
    assert f"worker process {victim} was killed by SIGKILL, starting another in 0.2 s" in err
    assert pids(client) <= {victim}  # the others said farewell
    found = client.jobs(limit=1000)
    assert {(job.state, job.attempt) for job in found} == {("succeeded", 1), ("ready", 0)}
    assert 10 <= states(client).count("succeeded") < 30


def test_second_signal_ends_the_grace_period(start: Start, client: Client) -> None:
    worker = start()
    (job,) = enqueue(client, slow.job(seconds=60))
    until(lambda: client.get(job).state == "running")
    worker.send_signal(signal.SIGINT)
    until(lambda: any(row.stopping for row in client.workers()) or worker.poll() is not None)
    worker.send_signal(signal.SIGINT)
    worker.communicate(timeout=60)
    assert worker.returncode == 0
    assert (client.get(job).state, client.get(job).attempt) == ("ready", 0)


@pytest.mark.rule("ENG-16.09")
def test_thread_that_cannot_be_stopped_does_not_keep_the_process(start: Start, client: Client) -> None:
    worker = start(MAINSPRING_GRACE_SECONDS="0.1")
    (job,) = enqueue(client, stuck.job(seconds=90))
    until(lambda: client.get(job).state == "running")
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=60)
    assert worker.returncode == 0
    assert (client.get(job).state, client.get(job).attempt) == ("ready", 0)


def test_processes_do_not_outlive_their_supervisor(start: Start, client: Client) -> None:
    supervisor = start("--processes", "2")
    until(lambda: len(pids(client)) == 2)
    children = pids(client)
    assert all(map(alive, children))
    supervisor.kill()
    until(lambda: not any(map(alive, children)), 15)
    assert pids(client) == set()  # they stopped in good order


def test_options_reach_every_process(start: Start, client: Client) -> None:
    start("--processes", "2", "--concurrency", "3", "--queues", "q:exports=2,q:mine", "--threads", "2")
    until(lambda: len(pids(client)) == 2)
    for row in client.workers():
        assert (row.concurrency, set(row.queues)) == (3, {"q:exports", "q:mine"})
    ignored, mine = enqueue(client, greet.job(name="Ada"), greet.job(name="Ada").on_queue("q:mine"))
    assert client.result(mine, timeout=10) == "hello Ada"
    assert client.get(ignored).state == "ready"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--app", "nowhere:app"], 2, "app: there is no module nowhere"),
        (["--app", "nowhere:app", "--processes", "2"], 2, "app: there is no module nowhere"),
        (["--schema", "nowhere"], 2, "schema: the application's is mainspring"),
        (["--schema", "nowhere", "--processes", "2"], 2, "schema: the application's is mainspring"),
        ([], 6, "run `mainspring schema migrate`"),
        (["--processes", "2"], 6, "run `mainspring schema migrate`"),
    ],
)
def test_what_cannot_work_ends_at_once_instead_of_being_tried_for_ever(
    start: Start, database: Database, arguments: list[str], code: int, said: str
) -> None:
    with database.connect() as conn:
        if code == 6:
            conn.execute("alter schema mainspring rename to gone")
        worker = start(*arguments)
        _, err = worker.communicate(timeout=60)
        if code == 6:
            conn.execute("alter schema gone rename to mainspring")
    assert worker.returncode == code
    assert said in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--app", APP, "--processes", "0"], "processes: must be at least 1"),
        (["--app", APP, "--processes", "2", "--no-supervise"], "supervise: several processes have a supervisor"),
        (["--app", APP, "--concurrency", "0"], "concurrency: must be at least 1"),
        (["--app", APP, "--concurrency", "0", "--no-supervise"], "concurrency: must be at least 1"),
        (["--app", APP, "--queues", "q:default=x"], "is not names of queues, such as q:default,exports=2"),
        (["--app", ""], "app: give --app module:name"),
    ],
)
def test_wrong_options_are_named(start: Start, arguments: list[str], said: str) -> None:
    worker = start(*arguments, MAINSPRING_APP="")
    _, err = worker.communicate(timeout=30)
    assert (worker.returncode, said in err) == (2, True)
