"""No plain word is left behind: not in the data directory, not in the WAL, not in any log."""

from __future__ import annotations

import asyncio
import io
import logging
from pathlib import Path

import psycopg
import pytest
from tests.databases import RunClusters, fresh_database
from tests.worker.stage import SETTINGS

import mainspring as ms
from mainspring import Cipher, Context, Registry, fixed
from mainspring.worker import Worker

CANARY = "canary4f1e9b"


def files_with(word: bytes, folder: Path) -> list[str]:
    found = []
    for file in folder.rglob("*"):
        try:
            if file.is_file() and word in file.read_bytes():
                found.append(str(file.relative_to(folder)))
        except FileNotFoundError:  # PostgreSQL removes files of its own
            continue
    return found


@pytest.mark.parametrize("encrypted", [True, False])
def test_a_word_of_a_payload_is_found_in_no_file_of_the_cluster(
    run: RunClusters, worker_id: str, encrypted: bool
) -> None:
    cluster = run.cluster(f"disk/cipher-{worker_id}-{encrypted}")
    tasks, log = Registry("canary"), io.StringIO()
    logging.getLogger("mainspring").addHandler(handler := logging.StreamHandler(log))

    @tasks.task(retry=fixed(0, attempts=2))
    async def work(ctx: Context, *, name: str) -> str:
        await ctx.step("one", lambda: f"{name} in a step")
        await ctx.checkpoint([f"{name} in a checkpoint"])
        if ctx.attempt == 1:
            raise RuntimeError(f"{name} in an error")
        return f"{name} in a result"

    try:
        with fresh_database(cluster) as database, database.connect() as conn:
            cipher = Cipher(b"m" * 32) if encrypted else None
            with ms.Client(database.dsn, cipher=cipher) as client:
                for n in range(20):
                    client.enqueue(work.job(name=f"{CANARY}{n}"))
                worker = Worker(database.dsn, tasks, config=ms.WorkerConfig(**SETTINGS), cipher=cipher)
                asyncio.run(worker.drain())
                assert {job.state for job in client.jobs()} == {"succeeded"}
                assert all(CANARY in job.result for job in client.jobs())
            with psycopg.connect(cluster.dsn("postgres", user="postgres"), autocommit=True) as admin:
                admin.execute("checkpoint")  # so that the tables are in their files, beside the WAL
            assert conn.execute("select count(*) from mainspring.step").fetchone() == (20,)
            found = files_with(CANARY.encode(), cluster.path)
    finally:
        logging.getLogger("mainspring").removeHandler(handler)
        cluster.remove()

    if encrypted:
        assert found == []
        assert CANARY not in log.getvalue()
    else:
        assert found, "the search finds what is there"
        assert CANARY in log.getvalue()
