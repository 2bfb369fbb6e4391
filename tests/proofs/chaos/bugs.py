"""Plant bugs, one by one, and show that tests catch each: `make bugs`, `python -m tests.proofs.chaos.bugs NAME …`.

A catcher is the crash test, the state machine, a race of two sessions, or a part of the nemesis. Each runs without a
bug first and must find nothing; then with the bug, a bounded number of times, and must find it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.databases import Database, fresh_database
from tests.proofs.chaos import plants, races
from tests.proofs.chaos.journal import say
from tests.proofs.chaos.plan import Plan
from tests.proofs.chaos.storm import Storm
from tests.proofs.model.machine import run_machine
from tests.proofs.nemesis.nemesis import Nemesis
from tests.proofs.nemesis.plan import SHORT, only

from mainspring.embedded import Cluster

TRIES = 3

_SMALL = Plan(
    jobs=200, seconds=3.0, workers=3, producers=2, worker_kills=0, postgres_kills=0, freezes=0, lease=10.0, drain=4.0
)
CALM = _SMALL
LATE = replace(_SMALL, workers=1, held=1.5)
KILLS = replace(_SMALL, lease=1.0, worker_kills=3, longest=0.4)
CRASHES = replace(_SMALL, jobs=400, lease=2.0, postgres_kills=2)
FREEZES = replace(_SMALL, seconds=4.0, lease=1.0, freezes=4, longest=0.4, threads=0.8, frozen=(1.4, 2.0))

#: What a catcher is given: the cluster, the planted bug or None, and the number of the try. It returns its evidence.
Catcher = Callable[[Cluster, "Bug | None", int], "str | None"]


@dataclass(frozen=True, slots=True)
class Bug:
    """A bug, where it is planted, and who must catch it."""

    plant: Callable[..., None]
    caught_by: str
    catcher: Catcher

    @property
    def name(self) -> str:
        return self.plant.__name__.replace("_", "-")

    @property
    def in_process(self) -> bool:
        return self.plant.__name__ in plants.IN_PROCESS


def crash_test(plan: Plan) -> Catcher:
    def catch(cluster: Cluster, bug: Bug | None, number: int) -> str | None:
        planned = replace(plan, seed=number + 1, bugs=(bug.plant.__name__,) if bug and bug.in_process else ())
        folder = Path(tempfile.mkdtemp(prefix="mainspring-bugs-"))
        try:
            with fresh_database(cluster, migrated=False) as database:
                prepare = bug.plant if bug and not bug.in_process else None
                verdict = Storm(cluster, database.dsn, folder, planned, prepare=prepare).run()
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if not verdict.clean:
            return verdict.faults
        assert verdict.acknowledged >= plan.jobs, "the run did not do its work"
        quiet = not (plan.worker_kills or plan.postgres_kills or plan.freezes)
        return (
            f"{len(verdict.repeated)} jobs started again though nothing failed" if quiet and verdict.repeated else None
        )

    return catch


def nemesis(*features: str) -> Catcher:
    """The short form of the nemesis with these features alone."""

    def catch(cluster: Cluster, bug: Bug | None, number: int) -> str | None:
        bugs = (bug.plant.__name__,) if bug and bug.in_process else ()
        plan = replace(only(SHORT, features), seed=number + 1, bugs=bugs)
        folder = Path(tempfile.mkdtemp(prefix="mainspring-bugs-"))
        try:
            with fresh_database(cluster, migrated=False) as database:
                prepare = bug.plant if bug and not bug.in_process else None
                verdict = Nemesis(cluster, database.dsn, folder, plan, prepare=prepare).run()
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        assert verdict.numbers["jobs"] > 20, "the run did not do its work"
        return verdict.faults or None

    return catch


def state_machine(cluster: Cluster, bug: Bug | None, number: int) -> str | None:
    with _planted(cluster, bug) as database, contextlib.redirect_stdout(io.StringIO()):
        try:
            run_machine(database.dsn, seed=number + 1, max_examples=20, steps=60)
        except Exception as error:
            return _first(error)
    return None


def race(run: Callable[[Database], Any]) -> Catcher:
    def catch(cluster: Cluster, bug: Bug | None, _: int) -> str | None:
        with _planted(cluster, bug) as database:
            seen: Any = run(database)
            return asyncio.run(seen) if asyncio.iscoroutine(seen) else seen  # type: ignore[no-any-return]  # as declared

    return catch


@contextlib.contextmanager
def _planted(cluster: Cluster, bug: Bug | None) -> Any:
    """A database, or this process, with the bug in it."""
    with fresh_database(cluster) as database:
        if bug and bug.in_process:
            with plants.planted_here(bug.plant, database.dsn):
                yield database
            return
        if bug:
            with database.connect() as conn:
                bug.plant(conn)
        yield database


def _first(error: BaseException) -> str:
    """What failed first, in one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    where = traceback.extract_tb(error.__traceback__)[-1].name
    return (str(error).partition("\n")[0] or f"{where}: the database and the model differ")[:70]


CALM_RUN, LATE_COMMITS, KILLED, CRASHED, FROZEN = map(crash_test, (CALM, LATE, KILLS, CRASHES, FREEZES))
RATED = nemesis("rates")
BUGS = [
    Bug(plants.unfenced_effect, "crash test", FROZEN),
    Bug(plants.completion_by_job, "state machine", state_machine),
    Bug(plants.effect_first, "crash test", FROZEN),
    Bug(plants.completed_before_run, "crash test", KILLED),
    Bug(plants.careless_commit, "crash test", CRASHED),
    Bug(plants.lease_by_clock, "crash test", CALM_RUN),
    Bug(plants.rescue_of_the_living, "crash test", CALM_RUN),
    Bug(plants.early_claim, "crash test", CALM_RUN),
    Bug(plants.no_rescan, "crash test", LATE_COMMITS),
    Bug(plants.epoch_without_worker, "state machine", state_machine),
    Bug(plants.late_settlement, "state machine", state_machine),
    Bug(plants.rescue_without_limit, "state machine", state_machine),
    Bug(plants.select_then_insert, "state machine", state_machine),
    Bug(plants.claim_without_skipping, "race", race(races.two_claims)),
    Bug(plants.cancel_in_two_steps, "race", race(races.cancel_meets_claim)),
    Bug(plants.hasty_pause, "race", race(races.pause_meets_claim)),
    Bug(plants.new_id_on_retry, "race", race(races.reply_lost)),
    Bug(plants.circles_of_causes, "race", race(races.circular_error)),
    Bug(plants.window_ignored, "nemesis", RATED),
    Bug(plants.permit_from_the_claim, "nemesis", RATED),
    Bug(plants.one_dry_queue_for_all, "race", race(races.backlog_in_one_queue)),
    Bug(plants.endless_wait, "race", race(races.silent_server)),
    Bug(plants.shared_crash_burns, "race", race(races.crash_of_many)),
    Bug(plants.suspects_one_by_one, "race", race(races.crash_of_many)),
    Bug(plants.forgotten_breaker, "race", race(races.breaker_forgotten)),
]


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bugs", description=__doc__)
    parser.add_argument("names", nargs="*", help="bugs to plant; all without")
    names = parser.parse_args().names
    chosen = [bug for bug in BUGS if not names or bug.name in names]
    home = Path(tempfile.mkdtemp(prefix="mainspring-bugs-"))
    home.chmod(0o755)  # for the account that runs PostgreSQL when we are root
    cluster = Cluster(home / "postgres")
    wrong = 0
    line = "{:24} | {:13} | {:70} | {:>7}"
    try:
        cluster.start()
        say(line.format("bug", "caught by", "evidence", "seconds"))
        for bug in chosen if len(chosen) == 1 else [None, *chosen]:
            began = time.monotonic()
            evidence = _control(cluster, chosen) if bug is None else _catch(cluster, bug)
            wrong += (evidence is None) is (bug is not None)
            name, by = (bug.name, bug.caught_by) if bug else ("none (control)", "all")
            shown = evidence or ("nothing found" if bug is None else "NOT CAUGHT")
            say(line.format(name, by, shown, f"{time.monotonic() - began:.1f}"))
    finally:
        cluster.remove()
        shutil.rmtree(home, ignore_errors=True)
    say(f"bugs={len(chosen)} wrong={wrong}")
    return 1 if wrong else 0


def _catch(cluster: Cluster, bug: Bug) -> str | None:
    found = (bug.catcher(cluster, bug, number) for number in range(TRIES))
    return next((evidence for evidence in found if evidence), None)


def _control(cluster: Cluster, chosen: list[Bug]) -> str | None:
    """Every catcher without a bug: what they find now would be no evidence later."""
    catchers = dict.fromkeys(bug.catcher for bug in chosen)
    return next((evidence for catcher in catchers if (evidence := catcher(cluster, None, 0))), None)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    sys.exit(main())
