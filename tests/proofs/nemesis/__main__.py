"""The nemesis: `make nemesis`, or `python -m tests.proofs.nemesis --seed 7 --seconds 60 --without killers`.

Ends with one line of numbers, and fails when anything is wrong, with what is known about it. Same seed, same plan.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from uuid import UUID

from tests.proofs.chaos.journal import say
from tests.proofs.nemesis.checker import Seen, Verdict
from tests.proofs.nemesis.nemesis import Nemesis
from tests.proofs.nemesis.plan import FEATURES, SHORT, Plan, only

import mainspring as ms
from mainspring.embedded import Cluster
from mainspring.errors import JobNotFound

MOST = 30  # violations that are told one by one
OF_ONE_KIND = 4


def main() -> int:
    parser = argparse.ArgumentParser(prog="make nemesis", description=__doc__)
    parser.add_argument("--short", action="store_true", help="the form of `make test`")
    for name in ("seed", "seconds", "workers", "lease", "killers", "parked", "distance"):
        parser.add_argument(f"--{name}", type=type(getattr(Plan(), name)))
    parser.add_argument("--without", nargs="+", choices=FEATURES, default=[], metavar="FEATURE")
    parser.add_argument("--only", nargs="+", choices=FEATURES, default=[], metavar="FEATURE", help=", ".join(FEATURES))
    parser.add_argument("--keep", action="store_true", help="keep the files of the run")
    given = vars(parser.parse_args())
    short, keep, features, without = (given.pop(name) for name in ("short", "keep", "only", "without"))
    plan = replace(SHORT if short else Plan(), **{name: value for name, value in given.items() if value is not None})
    plan = only(plan, features) if features else replace(plan, without=(*plan.without, *without))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what we started ends with us
    home = Path(tempfile.mkdtemp(prefix="mainspring-nemesis-"))
    home.chmod(0o755)  # for the account that runs PostgreSQL when we are root
    files = home / "files"
    files.mkdir()
    cluster = Cluster(home / "postgres")
    verdict: Verdict | None = None
    try:
        cluster.start()
        cluster.ensure_database("nemesis")
        say(
            f"seed {plan.seed}, {plan.seconds:g} s with {len(plan.faults())} faults, then at most {plan.drain:.0f} s; "
            f"it stands still after {plan.stall:.0f} s; files in {home}"
        )
        nemesis = Nemesis(cluster, cluster.dsn("nemesis"), files, plan, say=say)
        verdict = nemesis.run()
        tell(verdict, nemesis.seen, files, cluster.dsn("nemesis"))
        say("faults: " + " ".join(f"{kind}={count}" for kind, count in nemesis.struck.items()))
        say(" ".join(f"{name}={value:g}" for name, value in verdict.numbers.items()))
        say(f"violations={len(verdict.violations)}{': ' + verdict.faults if verdict.faults else ''}")
        return 0 if verdict.clean else 1
    finally:
        cluster.remove()
        if keep or verdict is None or not verdict.clean:
            sys.stderr.write(f"files kept in {home}\n")
        else:
            shutil.rmtree(home, ignore_errors=True)


def tell(verdict: Verdict, seen: Seen, files: Path, dsn: str) -> None:
    """Each violation with its job's history, some of each kind."""
    told: dict[str, int] = {}
    with ms.Client(dsn) as client:
        for wrong in verdict.violations:
            told[wrong.what] = told.get(wrong.what, 0) + 1
            if told[wrong.what] > OF_ONE_KIND or sum(told.values()) > MOST:
                continue
            say(f"VIOLATION {wrong.what}: {wrong.detail} {wrong.job or ''}")
            if wrong.job:
                if wrong.job in seen.reasons:
                    say(f"    {seen.reasons[wrong.job]}")
                for line in history(wrong.job, files, client):
                    say(f"    {line}")


def history(job: str, files: Path, client: ms.Client) -> Iterator[str]:
    """What the files and the engine know of a job; a hint for people, no part of the verdict."""
    said = (line for path in sorted(files.glob("*.txt")) for line in path.read_text().splitlines() if job in line)
    yield from list(said)[:12]
    with suppress(ValueError, JobNotFound):  # a key stands for its jobs
        for attempt in client.attempts(UUID(job))[:6]:
            code = (attempt.error or {}).get("code", "")
            yield f"attempt {attempt.attempt} of {attempt.worker}: {attempt.outcome} {code}"


if __name__ == "__main__":
    sys.exit(main())
