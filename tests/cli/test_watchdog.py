"""Worker processes whose event loop stands still: they end by themselves, say where, and take nobody along."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest
from tests.cli.conftest import command
from tests.cli.standstill import block, deadlock, deafen, escape, leave, linger, overstay, seize, swallow, wait, work
from tests.cli.test_worker import Start, alive, children_of, enqueue, pids, until
from tests.databases import Database

from mainspring import Client, NewJob
from mainspring.cli import supervisor as supervising

APP = "tests.cli.standstill:app"
LEASE = {"MAINSPRING_LEASE_SECONDS": "1.5", "MAINSPRING_LEASE_RENEW_SECONDS": "0.5", "MAINSPRING_RESCUE_SECONDS": "0.3"}


@pytest.fixture
def start(database: Database) -> Iterator[Start]:
    """Starts workers with a short lease; what is left of them is ended afterwards."""
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: str, **environment: str) -> subprocess.Popen[str]:
        environment = {"MAINSPRING_APP": APP, "MAINSPRING_LOG": "text"} | LEASE | environment
        started.append(command("worker", "run", "--dsn", database.dsn, *arguments, **environment))
        return started[-1]

    yield run
    for process in started:
        process.kill()
    for pid in children_of(database):  # first: who lives on holds the ends of our pipes
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for process in started:
        process.communicate()


def one_worker(client: Client) -> int:
    until(lambda: len(pids(client)) == 1)
    (pid,) = pids(client)
    return pid


def test_a_process_whose_loop_stands_still_ends_names_the_job_and_gives_back_the_others_unburnt(
    start: Start, client: Client, database: Database
) -> None:
    worker = start("--no-supervise")
    one_worker(client)
    others = enqueue(client, *(wait.job(seconds=60) for _ in range(5)), *(work.job(seconds=60) for _ in range(20)))
    until(lambda: sum(client.get(job).state == "running" for job in others) >= 21)  # 16 threads, and one to hold
    (culprit,) = enqueue(client, block.job(seconds=60))
    with database.connect() as conn:  # another worker takes back what is not renewed
        until(lambda: conn.execute("select mainspring.rescue(1000, 3)") and worker.poll() is not None, 20)
    _, err = worker.communicate(timeout=20)

    assert worker.returncode == 70
    assert re.search(rf"the event loop has stood still for [12]\.\d s, and job {culprit} of block is on it", err)
    assert "standstill.py" in err
    assert "time.sleep(seconds)" in err
    assert "worker.stuck worker=" in err
    assert re.search(r"ends: \d+ other jobs are given back", err)
    found = [client.get(job) for job in others]
    assert {(job.state, job.attempt, job.crashes) for job in found} == {("ready", 0, 0)}
    assert (client.get(culprit).state, client.get(culprit).crashes) == ("dead", 1)


def test_the_job_that_stops_loops_ends_dead_and_the_others_run(start: Start, client: Client) -> None:
    supervisor = start()
    first = one_worker(client)
    (culprit,) = enqueue(client, block.job(seconds=60))
    until(lambda: client.get(culprit).state == "dead")
    (other,) = enqueue(client, wait.job(seconds=0))
    client.result(other, timeout=10)

    assert client.get(culprit).crashes == 1
    assert not alive(first)
    supervisor.send_signal(signal.SIGTERM)
    _, err = supervisor.communicate(timeout=20)
    assert supervisor.returncode == 0
    assert f"worker process {first} ended with exit code 70, starting another in 0.2 s" in err


def test_the_jobs_of_a_killed_process_wait_for_no_lease(start: Start, client: Client) -> None:
    start(MAINSPRING_LEASE_SECONDS="600", MAINSPRING_LEASE_RENEW_SECONDS="200")
    first = one_worker(client)
    jobs = enqueue(client, *(wait.job(seconds=3) for _ in range(7)))
    until(lambda: all(client.get(job).state == "running" for job in jobs))
    os.kill(first, signal.SIGKILL)
    for job in jobs:
        client.result(job, timeout=60)

    assert {(client.get(job).attempt, client.get(job).crashes) for job in jobs} == {(1, 1)}
    (found,) = {attempt.error["ran"] < 60 for job in jobs for attempt in client.attempts(job) if attempt.error}
    assert found, "until the process died, and not until its lease would have ended"


def test_a_job_that_ends_its_process_like_a_wrong_option_does_not_end_the_supervisor(
    start: Start, client: Client
) -> None:
    supervisor = start()
    first = one_worker(client)
    enqueue(client, leave.job(code=2))
    until(lambda: not alive(first))
    (other,) = enqueue(client, wait.job(seconds=0))
    client.result(other, timeout=10)

    supervisor.send_signal(signal.SIGTERM)
    _, err = supervisor.communicate(timeout=20)
    assert supervisor.returncode == 0
    assert f"worker process {first} ended with exit code 2, starting another in 0.2 s" in err


@pytest.mark.parametrize(
    ("how", "raised"), [("exit", "SystemExit"), ("stop", "RuntimeError"), ("cancel", "CancelledError")]
)
def test_a_process_whose_event_loop_a_job_has_ended_ends_and_hands_over(
    start: Start, client: Client, how: str, raised: str
) -> None:
    worker = start("--no-supervise", MAINSPRING_LEASE_SECONDS="60", MAINSPRING_LEASE_RENEW_SECONDS="20")
    one_worker(client)
    (other,) = enqueue(client, linger.job(seconds=60))
    until(lambda: client.get(other).state == "running")
    (culprit,) = enqueue(client, escape.job(how=how))
    _, err = worker.communicate(timeout=15)

    assert worker.returncode == 70
    assert f"{raised} has ended the event loop" in err
    assert "worker.stuck worker=" in err
    if how == "exit":  # of the others nobody can tell who did it
        assert f"and job {culprit} of escape has done it" in err
        assert "in part" in err
        found = client.get(other)
        assert (found.state, found.attempt, found.crashes) == ("ready", 0, 0)
        assert client.get(culprit).state == "running"  # until its lease ends: a crash


@pytest.mark.parametrize("supervised", ["--supervise", "--no-supervise"])
def test_a_second_signal_ends_a_process_whose_loop_stands_still(start: Start, client: Client, supervised: str) -> None:
    worker = start(supervised, MAINSPRING_LEASE_SECONDS="60", MAINSPRING_LEASE_RENEW_SECONDS="20")
    child = one_worker(client)
    (culprit,) = enqueue(client, block.job(seconds=60))
    until(lambda: client.get(culprit).state == "running")
    time.sleep(0.5)  # until it is entered, which nobody tells
    for _ in range(2):
        worker.send_signal(signal.SIGTERM)
        time.sleep(0.2)
    _, err = worker.communicate(timeout=15)

    assert f"job {culprit} of block is on it" in err
    assert worker.returncode == 70
    assert not alive(child)


def test_a_call_that_holds_the_interpreters_lock_is_ended_from_outside(start: Start, client: Client) -> None:
    supervisor = start()
    child = one_worker(client)
    (culprit,) = enqueue(client, seize.job(seconds=60))
    until(lambda: not alive(child), 20)
    until(lambda: client.get(culprit).state == "dead")  # by the rescue of who took its place
    supervisor.send_signal(signal.SIGTERM)
    _, err = supervisor.communicate(timeout=20)

    assert f"worker process {child}: nothing in it has run for" in err
    assert "Fatal Python error: Aborted" in err
    assert "in seize" in err
    assert f"worker process {child} was killed by SIGABRT" in err


@pytest.mark.parametrize(
    ("culprit", "other", "kind"),
    [(overstay.job(), work.job(seconds=0), "plain functions"), (swallow.job(), wait.job(seconds=0), "async handlers")],
    ids=["thread", "async"],
)
def test_a_process_whose_slots_are_all_held_by_handlers_that_outlived_their_time_limit_ends(
    start: Start, client: Client, culprit: NewJob, other: NewJob, kind: str
) -> None:
    worker = start("--no-supervise", "--threads", "1", "--concurrency", "1")
    one_worker(client)
    (first,) = enqueue(client, culprit)
    until(lambda: client.get(first).state != "ready")
    (second,) = enqueue(client, other)
    _, err = worker.communicate(timeout=15)

    assert worker.returncode == 70
    assert f"all 1 slots for {kind} are held by handlers that have outlived their time limit, 1 of" in err
    assert "standstill.py" in err
    assert "reason=slots" in err
    ended, waits = client.get(first), client.get(second)
    assert ended.error is not None
    assert (ended.state, ended.error["code"]) == ("dead", "TIMEOUT")
    assert (waits.state, waits.attempt, waits.crashes) == ("ready", 0, 0)


@pytest.mark.usefixtures("start")  # which ends what is left
def test_a_process_that_does_not_hear_a_stop_is_killed_after_its_grace_and_says_where_it_stood(
    client: Client, database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in {"MAINSPRING_APP": APP, "MAINSPRING_GRACE_SECONDS": "0.5"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(supervising, "STOP_MARGIN_S", 0.5)
    job, said = enqueue(client, deafen.job())[0], tmp_path / "said"

    async def stop() -> tuple[int, float]:
        supervisor = supervising.Supervisor(["worker", "run", "--dsn", database.dsn], 1, log_file=said)
        running = asyncio.create_task(supervisor.run())
        await asyncio.to_thread(client.result, job, timeout=20)
        supervisor.stop()
        asked = time.monotonic()
        return await asyncio.wait_for(running, 20), time.monotonic() - asked

    code, took = asyncio.run(stop())
    assert code == -signal.SIGABRT
    assert 1 <= took < 5
    assert "Fatal Python error: Aborted" in said.read_text()


def test_a_process_that_was_stopped_for_longer_than_its_lease_goes_on(start: Start, client: Client) -> None:
    supervisor = start()
    child = one_worker(client)
    os.kill(child, signal.SIGSTOP)
    time.sleep(5)  # its lease, and what the supervisor adds to it
    os.kill(child, signal.SIGCONT)
    (job,) = enqueue(client, wait.job(seconds=0))
    client.result(job, timeout=10)

    assert alive(child)
    supervisor.send_signal(signal.SIGTERM)
    _, err = supervisor.communicate(timeout=20)
    assert (supervisor.returncode, "stood still" in err, "nothing in it has run" in err) == (0, False, False)


def alone(client: Client, database: Database, job: NewJob) -> UUID:
    """A job that has crashed twice, and so runs in a process of its own."""
    (found,) = enqueue(client, job)
    with database.connect() as conn:
        conn.execute("update mainspring.waiting set crashes = 2 where id = %s", [found])
    return found


def cell_of(client: Client, database: Database, worker: subprocess.Popen[str], job: UUID) -> int:
    """The process that runs it, once it does."""
    until(lambda: client.get(job).state == "running")
    (cell,) = set(children_of(database)) - {worker.pid}
    time.sleep(0.5)  # until it is entered, which nobody tells
    return cell


@pytest.mark.rule("ENG-3.08")
def test_a_call_that_holds_the_lock_of_a_process_for_jobs_alone_ends_it_and_the_next_one_runs(
    start: Start, client: Client, database: Database
) -> None:
    culprit = alone(client, database, deadlock.job())
    worker = start("--no-supervise")
    cell = cell_of(client, database, worker, culprit)
    until(lambda: not alive(cell), 20)
    until(lambda: client.get(culprit).state == "dead", 20)
    client.result(alone(client, database, wait.job(seconds=0)), timeout=20)
    worker.send_signal(signal.SIGTERM)
    _, err = worker.communicate(timeout=20)

    assert worker.returncode == 0
    assert "in deadlock" in err
    assert f"process {cell} for jobs that run alone ended with exit code 1" in err


def test_a_process_for_jobs_alone_that_hears_nothing_ends_without_its_worker(
    start: Start, client: Client, database: Database
) -> None:
    culprit = alone(client, database, deadlock.job())
    worker = start("--no-supervise")
    cell = cell_of(client, database, worker, culprit)
    worker.kill()
    until(lambda: not alive(cell), 20)


def test_a_stop_kills_a_process_for_jobs_alone_that_does_not_hear_it(
    start: Start, client: Client, database: Database
) -> None:
    culprit = alone(client, database, deadlock.job())
    long = {"MAINSPRING_LEASE_SECONDS": "60", "MAINSPRING_LEASE_RENEW_SECONDS": "20"}
    worker = start("--no-supervise", **long, MAINSPRING_GRACE_SECONDS="0.5")
    cell = cell_of(client, database, worker, culprit)
    worker.send_signal(signal.SIGTERM)
    _, err = worker.communicate(timeout=20)

    assert worker.returncode == 0
    assert not alive(cell)
    assert f"process {cell} for jobs that run alone ended with exit code -9" in err
    with database.connect() as conn:  # nobody waits a minute for its lease
        left = conn.execute("select count(*) from mainspring.running where lease_expires_at > mainspring.now()")
        assert left.fetchone() == (0,)


def test_a_stop_lets_a_job_that_runs_alone_finish_within_the_grace_period(
    start: Start, client: Client, database: Database
) -> None:
    job = alone(client, database, wait.job(seconds=2))
    worker = start("--no-supervise")
    cell_of(client, database, worker, job)
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=20)

    assert worker.returncode == 0
    assert client.get(job).state == "succeeded"


def test_a_second_signal_ends_the_grace_period_of_a_job_that_runs_alone(
    start: Start, client: Client, database: Database
) -> None:
    job = alone(client, database, wait.job(seconds=60))
    worker = start("--no-supervise")
    cell_of(client, database, worker, job)
    for _ in range(2):
        worker.send_signal(signal.SIGTERM)
        time.sleep(0.5)
    worker.communicate(timeout=15)

    found = client.get(job)
    assert (worker.returncode, found.state, found.attempt, found.crashes) == (0, "ready", 0, 2)
