"""`mainspring batch`, as a person types it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from uuid import UUID

import pytest
from tests.cli.conftest import Cli, cli
from tests.databases import Database
from tests.db.engine import Engine
from tests.together.stage import enqueue_batch, enqueue_flow, job

from mainspring.uuid7 import uuid7

__all__ = ["cli"]  # a fixture


@pytest.fixture
def engine(database: Database) -> Iterator[Engine]:
    with database.connect() as conn:
        yield Engine(conn)


def half_done(engine: Engine) -> UUID:
    """A batch of four: one succeeded, one failed, one runs, one waits."""
    id_ = enqueue_batch(engine, [job() for _ in range(4)], name="import")
    first, second, _ = engine.claim(n=3)
    engine.end(first, "complete")
    engine.end(second, "reject")
    return id_


def test_batches_are_listed_and_shown_for_people_and_machines(cli: Cli, engine: Engine) -> None:
    assert cli("batch", "list").out == "There are no such batches.\n"
    id_ = half_done(engine)

    (found,) = cli("batch", "list", "--state", "running", "--json").json
    assert (found["id"], found["total"], found["percent"]) == (str(id_), 4, 50.0)
    assert cli("batch", "list", "--state", "finished", "--json").json == []
    (line,) = [line for line in cli("batch", "list").out.splitlines() if str(id_) in line]
    assert line.split()[1:6] == ["import", "running", "50", "%", "4"]
    shown = cli("batch", "show", id_)
    for part in ("import", "running", "50.0 %", "succeeded", "INTERNAL_ERROR: no answer"):
        assert part in shown.out
    document = cli("batch", "show", id_, "--json").json
    counts = [document[name] for name in ("succeeded", "failed", "running", "waiting", "cancelled")]
    assert (counts, document["failed_jobs"][0]["code"]) == ([1, 1, 1, 1, 0], "INTERNAL_ERROR")
    missing = cli("batch", "show", uuid7())
    assert (missing.code, "there is no batch" in missing.err) == (3, True)


def test_failed_jobs_are_retried_with_a_reason_and_by_name(cli: Cli, engine: Engine) -> None:
    id_ = half_done(engine)
    assert "--reason" in cli("batch", "retry-failed", id_).err
    done = cli("batch", "retry-failed", id_, "--reason", "mended", "--as", "ada")
    assert done.out == f"1 job of batch {id_} replayed\n"
    assert cli("batch", "retry-failed", id_, "--reason", "mended", "--json").json == {"batch": str(id_), "replayed": 0}
    (row,) = engine.rows("select actor_id, detail ->> 'reason' from mainspring.audit where event = 'batch.retried'")
    assert row == ("ada", "mended")


def test_a_batch_is_cancelled_and_says_what_still_runs(cli: Cli, engine: Engine) -> None:
    id_ = half_done(engine)
    assert cli("batch", "cancel", id_).out == f"batch {id_} is stopping: 1 cancelled; 1 still runs\n"
    (running,) = engine.rows("select epoch, worker from mainspring.running")
    engine.settle(running[1], {"epoch": running[0], "verb": "stop"})
    again = cli("batch", "cancel", id_)
    assert (again.code, "has finished" in again.err) == (4, True)


def test_watching_shows_a_bar_until_the_batch_has_finished(
    cli: Cli, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = enqueue_batch(engine, [job(), job()], name="import")
    claims = engine.claim()

    def one_ends(_: float) -> None:
        engine.end(claims.pop(), "complete")

    monkeypatch.setattr("time.sleep", one_ends)
    lines = cli("batch", "show", id_, "--watch").out.splitlines()
    assert [line.split("  ")[2] for line in lines[:3]] == ["0 of 2", "1 of 2", "2 of 2"]
    assert lines[1].count("█") == lines[1].count("░") == 12
    claims = []
    states = [json.loads(line)["state"] for line in cli("batch", "show", id_, "--watch", "--json").out.splitlines()]
    assert states == ["finished"]


def test_explain_says_which_job_or_batch_a_job_waits_for(cli: Cli, engine: Engine) -> None:
    first, second, child = enqueue_flow(engine, [job(), job(), job()], [{"child": 2, "parents": [0, 1]}])
    said = cli("job", "explain", child).out
    assert f"waits for job {first} of t, which is ready and 1 more" in said
    claim = next(claim for claim in engine.claim() if claim.id == second)
    engine.end(claim, "bury")
    assert (
        f"waits for job {second} of t, which is dead: replay or discard it and 1 more"
        in cli("job", "explain", child).out
    )

    id_ = enqueue_batch(engine, [job()])
    ((on_finish,),) = engine.rows("select on_finish from mainspring.batch")
    assert f"waits for batch {id_}, whose jobs have not all ended" in cli("job", "explain", on_finish).out
