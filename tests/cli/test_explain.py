"""`mainspring job explain`: the answer is made of the claim's own predicates, and agrees with what the claim does."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from tests.cli.conftest import Answer, Cli
from tests.databases import Database
from tests.db.engine import Engine

from mainspring import AsyncClient, Client
from mainspring.db.schema.line import engine_line
from mainspring.errors import JobNotFound
from mainspring.health.explain import Explanation
from mainspring.uuid7 import uuid7

#: Every condition in the claim's own text, and the check that answers for it. A condition that stands in none of these
#: is one that `explain` does not know: write a check for it.
PREDICATES = {
    "waits": ("from {schema}.waiting w",),
    "due": ("w.due_at <= {schema}.now()", "w.due_at >= p.low"),
    "held": (),  # a job that is held is due at infinity
    "breaker": (),  # a job that a breaker puts off is due later
    "paused": (
        "not exists (select from {schema}.queue mq "
        "where mq.org_id = 'SYSTEM' and mq.name = %s and mq.paused_at is not null)",
    ),
    "queue": ("w.queue = any(p_queues)", "w.queue = q.name"),
    "task": ("w.task = any(p_tasks)",),
    "unlocked": ("for update of w skip locked",),
    "limits": (),  # asked by claim_limited: tests/worker/limits/test_explain.py
    "quarantine": (),  # its tasks are not among those of the claim
    "turn": ("p_rescued > 0", "w.crashes = 1", "w.crashes = 0", "w.priority = p.priority"),
}  # fmt: skip


@pytest.fixture
def engine(database: Database) -> Iterator[Engine]:
    with database.connect() as conn:
        yield Engine(conn)


def join(engine: Engine, worker: str, *, queues: str = "{q:default}", tasks: str = "{t}", **more: Any) -> str:
    """Let a worker be alive, by its heartbeat."""
    about = {"seen": "0 s", "stopping": False, "running": 0, "concurrency": 10} | more
    engine.conn.execute(
        """
        insert into mainspring.worker
          (id, host, pid, version, queues, tasks, concurrency, started_at, seen_at, running, stopping)
        values (%s, 'h1', 7, '1', %s, %s, %s, mainspring.now(), mainspring.now() - %s::interval, %s, %s)
        """,
        [worker, queues, tasks, about["concurrency"], about["seen"], about["running"], about["stopping"]],
    )
    return worker


def wait(engine: Engine, **columns: Any) -> UUID:
    """A job whose ticket has these columns."""
    job = engine.enqueue(columns.pop("task", "t"), queue=columns.pop("queue", "q:default")).id
    for name, value in columns.items():
        engine.conn.execute(f"update mainspring.waiting set {name} = {value} where id = %s".encode(), [job])
    return job


def paused(engine: Engine, reason: str | None = None) -> str:
    engine.pause(reason=reason)
    return "q:default"


def blocked(found: Explanation) -> list[str]:
    return [check.name for check in found.checks if check.holds is False]


def test_every_predicate_of_the_claim_has_a_check(engine: Engine, database: Database) -> None:
    (text,) = [verb.text for verb in engine_line().verbs if verb.name == "{schema}.claim"]
    body = re.search(r"with rescued as materialized \((.*?)\), d as \(", text, re.DOTALL)
    assert body is not None
    rest = " ".join(re.sub(r"--[^\n]*", "", body[1]).split()).replace(" || ''", "")  # which chooses an index
    rest = re.sub(r"exists \( ", "exists (", rest)
    for known in (known for fragments in PREDICATES.values() for known in fragments):
        pattern = re.escape(known).replace("%s", r"[\w.]+")
        assert re.search(pattern, rest), f"the claim no longer says: {known}"
        rest = re.sub(pattern, "✓", rest)
    # What is left is order, limits and the words that join conditions.
    conditions = [part for part in re.split(r"\bwhere\b|\band\b", rest)[1:] if not part.strip().startswith("✓")]
    assert conditions == []
    with Client(database.dsn) as client:
        assert {check.name for check in client.explain(wait(engine)).checks} == PREDICATES.keys()


def some(chance: float) -> bool:
    return random.random() < chance  # pytest-randomly seeds it, and prints the seed


def situation() -> tuple[list[dict[str, Any]], list[dict[str, Any]], set[str], set[str]]:
    """Workers, jobs, paused queues and tasks in quarantine, mostly near the border between claimed and not."""
    workers = [
        {
            "queues": {name for name in ("q:a", "q:b") if some(0.8)},
            "tasks": {name for name in ("t", "u") if some(0.8)},
            "seen": "31 s" if some(0.1) else "0 s",
            "stopping": some(0.1),
        }
        for _ in range(random.choice([0, 1, 1, 2, 2, 3]))
    ]
    jobs: list[dict[str, Any]] = [
        {
            "queue": random.choice(["q:a", "q:b"]),
            "task": random.choice(["t", "u"]),
            "priority": random.randrange(4),
            "place": random.choice(["running", "succeeded", "dead"]) if some(0.1) else "waiting",
            "due": 1 if some(0.15) else random.randrange(-3, 1),
            "crashes": random.choice([0, 0, 1, 2]),
            "retrying": some(0.5),
            "held": some(0.1),
            "locked": some(0.15),
        }
        for _ in range(random.randrange(1, 6))
    ]
    jobs.sort(key=lambda about: about["place"] == "waiting")  # first those that a claim puts into their place
    return workers, jobs, {"q:a"} if some(0.15) else set(), {"u"} if some(0.2) else set()


def test_job_is_called_claimable_if_and_only_if_a_claim_takes_it(engine: Engine, database: Database) -> None:
    seen: Counter[str] = Counter()
    with database.connect() as locker, Client(database.dsn) as client:
        for _ in range(100):
            workers, jobs, paused, killing = situation()
            ids = _arrange(engine, workers, jobs, paused, killing)
            taken: set[UUID] = set()
            with locker.transaction(force_rollback=True):
                locker.execute(
                    "select from mainspring.waiting where id = any(%s) for update",
                    [[job for job, about in zip(ids, jobs, strict=True) if about["locked"]]],
                )
                found = {job: client.explain(job) for job in ids}
                for number, worker in enumerate(workers):
                    if worker["seen"] == "0 s" and not worker["stopping"]:
                        taken |= _claim(engine, f"w{number}", worker)
            for job, said in found.items():
                assert said.claimable == (job in taken), said
                assert bool(blocked(said)) != said.claimable
                seen.update(blocked(said) or ["nothing"])
    assert seen.keys() == PREDICATES.keys() - {"breaker", "limits", "turn"} | {"nothing"}  # all of it was met


def _arrange(
    engine: Engine, workers: list[dict[str, Any]], jobs: list[dict[str, Any]], paused: set[str], killing: set[str]
) -> list[UUID]:
    tables = ("job", "waiting", "running", "finished", "attempt", "worker", "quarantine")
    engine.conn.execute(f"truncate {', '.join(f'mainspring.{table}' for table in tables)}".encode())
    engine.conn.execute("update mainspring.queue set paused_at = null, paused_by = null, pause_reason = null")
    for number, worker in enumerate(workers):
        about = {**worker, "queues": list(worker["queues"]), "tasks": list(worker["tasks"])}
        join(engine, f"w{number}", **about)
    ids = []
    for about in jobs:
        if about["place"] != "waiting":
            claim = engine.started("other", task=about["task"], queue=about["queue"])
            if about["place"] == "succeeded":
                engine.end(claim, "complete", "other")
            elif about["place"] == "dead":
                engine.end(claim, "bury", "other")
            ids.append(claim.id)
            continue
        job = engine.enqueue(about["task"], queue=about["queue"], priority=about["priority"]).id
        engine.conn.execute(
            """
            update mainspring.waiting
            set crashes = %(crashes)s, retrying = %(retrying)s, due_at = mainspring.now() + %(due)s * interval '1 min'
            where id = %(job)s
            """,
            about | {"job": job},
        )
        if about["held"]:
            engine.conn.execute(
                "update mainspring.waiting set due_then = due_at, due_at = 'infinity', after = %s where id = %s",
                [uuid7(), job],
            )
        ids.append(job)
    for queue in paused:
        engine.pause(queue)
    for task in killing:
        for number in range(3):
            engine.rows("select mainspring.has_killed(%s, %s)", task, f"gone{number}")
        engine.conn.execute("update mainspring.quarantine set probe_at = mainspring.now() + interval '1 s'")
    return ids


def _claim(engine: Engine, worker: str, about: dict[str, Any]) -> set[UUID]:
    """What a claim of this worker takes; it is undone."""
    with engine.conn.transaction(force_rollback=True):
        asked: dict[str, Any] = {
            "queues": list(about["queues"]),
            "tasks": list(about["tasks"]),
        }
        taken = {claim.id for claim in engine.claim(worker, 1000, rescued=1000, **asked)}
        while found := engine.claim(worker, alone=True, **asked):
            taken.add(found[0].id)
        return taken


def verdict(cli: Cli, job: UUID) -> str:
    answer: Answer = cli("job", "explain", job)
    assert answer.code == 0, answer.err
    return answer.out.splitlines()[0]


def test_one_sentence_comes_first_and_each_condition_has_its_mark(cli: Cli, engine: Engine) -> None:
    join(engine, "w1")
    engine.clock.set(engine.clock.now())
    job = wait(engine, due_at="mainspring.now() + interval '3 h 12 min'")
    lines = cli("job", "explain", job).out.splitlines()
    assert lines[0] == "It is due in 3 h 12 min; nothing else holds it."
    marks = {line.split()[1]: line.split()[0] for line in lines[2:]}
    assert marks == {
        "waits": "✓", "due": "✗", "held": "✓", "breaker": "✓", "paused": "✓", "limits": "✓", "queue": "✓", "task": "✓",
        "quarantine": "✓", "unlocked": "✓", "turn": "·",
    }  # fmt: skip


def test_job_is_found_by_its_key(cli: Cli, engine: Engine) -> None:
    job = engine.enqueue(key="remind:8").id
    assert cli("job", "explain", "--key", "remind:8", "--json").json["id"] == str(job)
    assert cli("job", "explain", job, "--key", "remind:8").code == 2


def test_machines_get_the_same_as_data(cli: Cli, engine: Engine) -> None:
    join(engine, "w1")
    found = cli("job", "explain", wait(engine), "--json").json
    assert (found["claimable"], found["state"]) == (True, "ready")
    assert {check["name"]: check["holds"] for check in found["checks"]} == dict.fromkeys(PREDICATES, True) | {
        "turn": None
    }
    assert found["verdict"] == "Nothing holds it: the next claim of a worker with a free slot takes it."


@pytest.mark.parametrize(
    ("arrange", "said"),
    [
        (lambda e: wait(e), "No worker is alive; nothing else holds it."),
        (lambda e: (join(e, "w1", queues="{q:x}"), wait(e))[1], "No living worker serves q:default; nothing"),
        (lambda e: (join(e, "w1", tasks="{u}"), wait(e))[1], "No living worker that serves q:default knows the task"),
        (lambda e: (join(e, "w1", seen="1 min"), wait(e))[1], "No worker is alive; nothing else holds it."),
        (lambda e: (join(e, "w1"), wait(e), wait(e), wait(e))[3], "Nothing holds it: it is claimed after the 2"),
        (
            lambda e: (join(e, "w1"), paused(e, "no paper"), wait(e))[2],
            "q:default was paused by ada now: no paper; nothing else holds it.",
        ),
        (
            lambda e: (join(e, "w1"), wait(e, crashes=2), wait(e, crashes=2))[2],
            "Nothing holds it: it is claimed after the 1 ready job ahead of it.",
        ),
        (
            lambda e: (join(e, "w1"), wait(e, crashes=2))[1],
            "Nothing holds it: it runs alone, as soon as a worker has a process for it or holds nothing else.",
        ),
        (
            lambda e: (join(e, "w1"), [e.rows("select mainspring.has_killed('t', %s)", w) for w in "abc"], wait(e))[2],
            "The task t has been in quarantine for 0 ms: its jobs killed 3 workers; nothing else holds it.",
        ),
        (
            lambda e: (paused(e), wait(e, due_at="mainspring.now() + interval '1 d'"))[1],
            "It is due in 1 d; q:default was paused by ada now; no worker is alive.",
        ),
    ],
)  # fmt: skip
def test_what_holds_a_waiting_job_is_said(
    cli: Cli, engine: Engine, arrange: Callable[[Engine], UUID], said: str
) -> None:
    engine.clock.set(engine.clock.now())
    assert verdict(cli, arrange(engine)).startswith(said)


def test_job_that_is_held_names_the_one_in_front(cli: Cli, engine: Engine) -> None:
    join(engine, "w1")
    first = engine.started(key="k")
    job = engine.enqueue(key="k").id
    assert verdict(cli, job) == f"It waits for job {first.id}, which is running; nothing else holds it."


def test_open_transaction_that_locks_the_ticket_is_named(cli: Cli, engine: Engine, database: Database) -> None:
    join(engine, "w1")
    job = wait(engine)
    with database.connect() as other, other.transaction():
        pid = other.info.backend_pid
        other.execute("set local application_name = 'psql of ada'")
        other.execute("select mainspring.cancel(%s, null, 'user', 'ada', null)", [job])
        said = verdict(cli, job)
        assert engine.claim() == []
    assert said.startswith(f"Session {pid} (psql of ada, idle in transaction for ")
    assert "has locked it" in said


def test_retrying_job_names_its_error_and_its_next_attempt(cli: Cli, engine: Engine) -> None:
    join(engine, "w1")
    engine.clock.set(engine.clock.now())
    claim = engine.started()
    engine.end(claim, "fail", delay="30 s")
    assert verdict(cli, claim.id) == (
        "Attempt 1 of 5 failed (INTERNAL_ERROR: no answer), and the next is due in 30 s; nothing else holds it."
    )


def test_running_job_names_who_holds_its_lease(cli: Cli, engine: Engine) -> None:
    join(engine, "w1")
    engine.clock.set(engine.clock.now())
    claim = engine.started("w1")
    engine.clock.advance(seconds=20)
    said = verdict(cli, claim.id)
    assert said.startswith("It is running: attempt 1 of 5 in worker w1 on h1 since 20 s; its lease is renewed until 2")
    report = {"epoch": claim.epoch, "serial": 1, "done": 3, "total": 10, "note": "page 3"}
    engine.ask("report", {"worker": "w1", "reports": json.dumps([report])})
    assert "; 3 of 10 done (page 3)" in verdict(cli, claim.id)
    engine.cancel(claim.id)
    assert "its cancellation was asked for now, and its handler must notice it" in verdict(cli, claim.id)
    engine.conn.execute("delete from mainspring.worker")
    assert "that worker has no heartbeat any more: it is taken back when the lease ends" in verdict(cli, claim.id)
    engine.clock.advance(seconds=50)
    assert verdict(cli, claim.id) == (
        "The lease of worker w1 ended 10 s ago without being renewed; no worker is alive that could take it back."
    )
    join(engine, "w2")
    assert verdict(cli, claim.id).endswith("the next rescue takes it back.")


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        ("complete", "It succeeded now, in attempt 1 of 5."),
        ("reject", "It failed for good now, in attempt 1 of 5 (INTERNAL_ERROR: no answer)."),
        ("bury", "It died now, in attempt 1 of 5 (INTERNAL_ERROR: no answer)."),
    ],
)
def test_finished_job_says_how_it_ended(cli: Cli, engine: Engine, verb: str, said: str) -> None:
    claim = engine.started()
    engine.end(claim, verb)
    assert verdict(cli, claim.id) == said
    assert cli("job", "explain", claim.id, "--json").json["claimable"] is False


def test_dead_letter_that_was_decided_about_says_so_and_advises_nothing(cli: Cli, engine: Engine) -> None:
    claim = engine.started()
    engine.end(claim, "bury")
    assert "Advised: replay." in cli("job", "explain", claim.id).out
    cli("dead", "discard", claim.id, "--reason", "too late")
    said = cli("job", "explain", claim.id).out
    assert "(INTERNAL_ERROR: no answer); it was discarded." in said
    assert "Advised" not in said

    cli("dead", "fix", claim.id, "--set", "times=2", "--reason", "not too late")
    successor = engine.job(claim.id).fixed_by
    assert f"; it was fixed forward by job {successor}." in cli("job", "explain", claim.id).out


def test_job_without_a_ticket_is_sent_to_the_doctor(cli: Cli, engine: Engine) -> None:
    job = wait(engine)
    engine.conn.execute("delete from mainspring.waiting")
    assert verdict(cli, job) == "It has no ticket: the invariant is broken, see `mainspring doctor`."
    engine.conn.execute("insert into mainspring.waiting (id, org_id, task, queue, priority, due_at) "
                        "select id, org_id, task, queue, priority, created_at from mainspring.job")  # fmt: skip


def test_job_of_nobody_and_of_another_organisation_is_not_found(cli: Cli, engine: Engine) -> None:
    job = wait(engine)
    for answer in (cli("job", "explain", uuid7()), cli("job", "explain", job, "--org", "acme")):
        assert (answer.code, answer.out) == (3, "")


@pytest.mark.anyio
async def test_both_colours_explain(engine: Engine, database: Database) -> None:
    job = wait(engine)
    with Client(database.dsn) as client:
        said = client.explain(job)
    async with AsyncClient(database.dsn) as client:
        also = await client.explain(job)
        with pytest.raises(JobNotFound):
            await client.explain(uuid7())
    assert (said.verdict, said.claimable) == (also.verdict, also.claimable)


def test_explanation_is_fast_among_many_jobs(engine: Engine, database: Database) -> None:
    """Bounded: what is ahead is counted up to a limit."""
    engine.conn.execute(
        """
        insert into mainspring.waiting (id, org_id, task, queue, priority, due_at)
        select gen_random_uuid(), 'default', 't', 'q:default', n % 4, mainspring.now() - n * interval '1 ms'
        from generate_series(1, 20000) n
        """
    )
    job = wait(engine)
    with Client(database.dsn) as client:
        (turn,) = [check for check in client.explain(job).checks if check.name == "turn"]
    assert "1000+ ready jobs of q:default ahead of it" in turn.detail
    engine.conn.execute("delete from mainspring.waiting where id <> %s", [job])


def test_a_job_that_is_due_for_long_points_to_the_slots_of_its_workers(engine: Engine, cli: Cli) -> None:
    join(engine, "w1")
    job = wait(engine, due_at="mainspring.now() - interval '2 minutes'")
    found = cli("job", "explain", str(job), "--json").json

    assert found["claimable"]
    assert "It has been due for 2 min" in found["verdict"]
    assert "have outlived their time limit" in found["verdict"]
