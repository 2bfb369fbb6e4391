"""The full crash test: `make chaos`, or `python -m tests.proofs.chaos --seed 7 --jobs 20000 --seconds 110`.

Ends with one line of counts, and fails when one is wrong or when the faults did not hit running work.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import psycopg
from tests.proofs.chaos.checker import Verdict
from tests.proofs.chaos.journal import say
from tests.proofs.chaos.plan import Plan
from tests.proofs.chaos.storm import Storm, Struck

from mainspring.embedded import Cluster


def main() -> int:
    plan = Plan()
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    for name in ("seed", "jobs", "seconds", "workers", "worker_kills", "postgres_kills", "freezes"):
        default = getattr(plan, name)
        parser.add_argument(f"--{name.replace('_', '-')}", dest=name, type=type(default), default=default)
    parser.add_argument("--keep", action="store_true", help="keep the files of the run")
    given = vars(parser.parse_args())
    keep = given.pop("keep")
    plan = replace(plan, **given)
    home = Path(tempfile.mkdtemp(prefix="mainspring-chaos-"))
    home.chmod(0o755)  # for the account that runs PostgreSQL when we are root
    files = home / "files"
    files.mkdir()
    cluster = Cluster(home / "postgres")
    verdict: Verdict | None = None
    try:
        cluster.start()
        cluster.ensure_database("chaos")
        say(f"seed {plan.seed}, {plan.jobs} jobs over {plan.seconds:g} s, files in {home}")
        storm = Storm(cluster, cluster.dsn("chaos"), files, plan, say=say)
        verdict = storm.run()
        return report(verdict, storm.struck, plan, cluster.dsn("chaos"))
    finally:
        cluster.remove()
        if keep or verdict is None or not verdict.clean:
            sys.stderr.write(f"files kept in {home}\n")
        else:
            shutil.rmtree(home, ignore_errors=True)


def report(verdict: Verdict, struck: Struck, plan: Plan, dsn: str) -> int:
    """Print what happened, and say whether it is as it must be."""
    hit = {kind: (len(jobs), len(jobs & verdict.repeated)) for kind, jobs in struck.jobs.items()}
    say(
        "jobs in flight when struck, and of those started again: "
        + ", ".join(f"{kind} {jobs}/{again}" for kind, (jobs, again) in hit.items())
    )
    say(f"late commits refused={verdict.refused} unexpected={len(verdict.unexpected)} early={len(verdict.early)}")
    if not verdict.clean:
        explain(verdict, dsn)
    wanted = (plan.worker_kills, plan.postgres_kills, plan.freezes)
    missed = (struck.worker_kills, struck.postgres_kills, struck.freezes) != wanted or any(
        not again for kind, (_, again) in hit.items() if struck.jobs[kind]
    )
    if missed:
        say("the faults did not hit running work as planned")
    say(
        f"acknowledged={verdict.acknowledged} lost={len(verdict.lost)} doubled={len(verdict.doubled)} "
        f"stale={len(verdict.stale)} worker_kills={struck.worker_kills} postgres_kills={struck.postgres_kills} "
        f"freezes={struck.freezes}"
    )
    return 0 if verdict.clean and not missed and verdict.acknowledged >= plan.jobs else 1


def explain(verdict: Verdict, dsn: str) -> None:
    """What the engine says about jobs that went wrong; a hint for people, no part of the verdict."""
    wrong = verdict.lost | verdict.doubled | verdict.stale | verdict.unexpected | verdict.early
    with psycopg.connect(dsn, autocommit=True) as conn:
        for job in sorted(wrong)[:20]:
            row = conn.execute(
                "select state, attempt, crashes, task, queue, due_at, held_by, error->>'message' from mainspring.jobs "
                "where id::text = %s", [job],
            ).fetchone()  # fmt: skip
            say(f"  {job} {row}")


if __name__ == "__main__":
    sys.exit(main())
