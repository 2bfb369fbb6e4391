"""The failover test: `python -m tests.proofs.surroundings.failover [--failovers 5] [--unfenced]`.

Writers and workers reach two servers through DSNs that name both. Again and again the primary is killed and the standby
promoted; then the old primary comes back, willing to write, while every connection is cut and a new process starts.
`--unfenced` shows what the timeline fence prevents.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from tests.databases import check_tickets
from tests.proofs.chaos.journal import lines, say
from tests.proofs.surroundings.pair import Pair, temptation, until

from mainspring.db.schema.migrate import migrate
from mainspring.embedded import Cluster

FINISHED = "select count(*) from mainspring.finished where finished_at > %s"


@dataclass
class Result:
    """What a run shows."""

    acknowledged: int = 0
    lost: int = 0  # acknowledged, and not there at the end
    unfinished: int = 0
    doubled: int = 0  # effects that happened twice
    tempted: int = 0  # sessions that came to an old primary
    strayed: int = 0  # rows that were written to one
    resumed: list[float] = field(default_factory=list)  # seconds from each kill to the next job that ended

    def __str__(self) -> str:
        times = ", ".join(f"{seconds:.2f}" for seconds in self.resumed)
        return (
            f"failovers={len(self.resumed)} acknowledged={self.acknowledged} lost={self.lost} doubled={self.doubled}"
            f" unfinished={self.unfinished} old_primary_sessions={self.tempted} old_primary_writes={self.strayed}"
            f" resumed_after_seconds=[{times}]"
        )


class Cast:
    """The processes of the test, which write their logs into one folder."""

    def __init__(self, pair: Pair, folder: Path, unfenced: bool) -> None:
        self._pair, self._folder, self._how = pair, folder, ["unfenced"] if unfenced else []
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def enter(self, name: str, *, reverse: bool) -> None:
        """Start a process; every second one knows the servers in the other order."""
        command = [
            sys.executable,
            "-m",
            "tests.proofs.surroundings.actors",
            name.split("-")[0],
            self._pair.dsn(reverse=reverse),
        ]
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen([*command, self._folder, *self._how], stdout=log, stderr=log)

    def leave(self, name: str) -> None:
        process = self._processes.pop(name)
        process.terminate()
        process.wait(20)

    def leave_all(self, kind: str = "") -> None:
        for name in [name for name in self._processes if name.startswith(kind)]:
            self.leave(name)


def run(folder: Path, failovers: int, *, unfenced: bool = False, seconds: float = 1.0) -> Result:
    """Play it through; `folder` is for the servers and the logs."""
    result = Result()
    with ExitStack() as stack:
        pair = Pair(folder)
        stack.callback(pair.remove)
        pair.start()
        with psycopg.connect(pair.primary.dsn(), autocommit=True) as conn:
            migrate(conn)
            conn.execute("create table ledger (job uuid)")
        cast = Cast(pair, folder, unfenced)
        stack.callback(cast.leave_all)
        for number, kind in enumerate(("worker", "worker", "writer", "writer")):
            cast.enter(f"{kind}-{number}", reverse=number % 2 == 1)
        until(lambda: _count(pair.primary, "1970-01-01") > 20)
        for number in range(failovers):
            time.sleep(seconds)
            killed = time.monotonic()
            pair.fail_over()
            promoted = _now(pair.primary)
            until(lambda: _count(pair.primary, promoted))  # noqa: B023 (called at once)
            result.resumed.append(time.monotonic() - killed)
            _tempt(pair, cast, result, f"writer-late-{number}", seconds)
            if number + 1 < failovers:
                pair.follow()
        cast.leave_all("writer")
        acked = {line[0] for line in lines(folder, "acked")}
        _wait_for_end(pair)
        cast.leave_all()
        with psycopg.connect(pair.primary.dsn(), autocommit=True) as conn:
            check_tickets(conn)
            states: dict[str, str] = dict(conn.execute("select id::text, state from mainspring.jobs").fetchall())
            result.doubled = len(conn.execute("select 1 from ledger group by job having count(*) > 1").fetchall())
        result.acknowledged, result.lost = len(acked), len(acked - states.keys())
        result.unfinished = sum(state != "succeeded" for state in states.values())
    return result


def _tempt(pair: Pair, cast: Cast, result: Result, fresh: str, seconds: float) -> None:
    """Let the old primary come back for a while, make everybody choose again, and count who chose it."""
    bait = pair.bait()
    cast.enter(fresh, reverse=False)
    cast.enter(f"{fresh}-reverse", reverse=True)
    for _ in range(3):
        pair.cut()
        time.sleep(seconds / 2)
    sessions, writes = temptation(bait)
    result.tempted += sessions
    result.strayed += writes
    for name in (fresh, f"{fresh}-reverse"):
        cast.leave(name)
    bait.stop("immediate")


def _wait_for_end(pair: Pair) -> None:
    def ended() -> bool:
        with psycopg.connect(pair.primary.dsn(), autocommit=True) as conn:
            open_ = "select 1 from mainspring.waiting union all select 1 from mainspring.running"
            return conn.execute(open_).fetchone() is None

    until(ended, 30)


def _now(cluster: Cluster) -> str:
    with psycopg.connect(cluster.dsn()) as conn:
        row = conn.execute("select statement_timestamp()::text").fetchone()
    assert row is not None
    return str(row[0])


def _count(cluster: Cluster, since: str) -> int:
    with psycopg.connect(cluster.dsn()) as conn:
        row = conn.execute(FINISHED, [since]).fetchone()
    assert row is not None
    return int(row[0])


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill the primary, promote the standby, bring the old primary back.")
    parser.add_argument("--failovers", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of quiet work before each, and of temptation")
    parser.add_argument("--unfenced", action="store_true", help="without the timeline fence")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="mainspring-failover-"))
    folder.chmod(0o755)
    try:
        result = run(folder, given.failovers, unfenced=given.unfenced, seconds=given.seconds)
    finally:
        shutil.rmtree(folder)
    say(str(result))
    return int(bool(result.lost or result.strayed or result.doubled or max(result.resumed) > 5))


if __name__ == "__main__":
    sys.exit(main())
