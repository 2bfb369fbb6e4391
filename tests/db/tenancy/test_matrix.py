"""Each role, with and without an organisation, over every table, view and function: nothing of another organisation.

Here two of them call the functions, and the probe is shown three mistakes, others in each run; `make tenancy` lets all
of them call, on the oldest server as well, and shows it every mistake.
"""

from __future__ import annotations

import os
import random

import pytest
from tests.db.tenancy.town import BOUND, OURS, THEIRS, Town, tenants_have

ALL = os.environ.get("TENANCY") == "all"

#: Mistakes that somebody could make, each of them seen by the probe.
PLANTS = {
    "a policy is gone": "drop policy api on mainspring.job",
    "a policy admits everything": "create policy oops on mainspring.finished using (true)",
    "a table has no row-level security": "alter table mainspring.idempotency disable row level security",
    "the owner is not bound": "alter table mainspring.waiting no force row level security",
    "workers are never bound": "create policy oops on mainspring.running to mainspring_worker using (true)",
    "a policy guards reading only": """
        create policy oops on mainspring.step for insert to mainspring_worker with check (true)""",
    "the api may do what workers do": "grant mainspring_worker to mainspring_api",
    "a view reads as a superuser": """
        alter view mainspring.jobs owner to postgres;
        alter view mainspring.jobs reset (security_invoker)""",
    "a function acts as a superuser": """
        alter function mainspring.state_of owner to postgres;
        alter function mainspring.state_of security definer""",
    "a verb acts as a superuser": "alter function mainspring.cancel owner to postgres",
    "a part of a verb may be called": """
        alter function mainspring.seize owner to postgres;
        alter function mainspring.seize security definer;
        grant execute on function mainspring.seize to mainspring_api""",
}
#: What answers about our own jobs, so that its silence about others means something.
TALKATIVE = {
    "cancel", "reschedule", "state_of", "job_of", "find_dead", "replay", "replay_many", "discard", "discard_many",
    "fix_forward", "prioritize", "enqueue_many", "erase", "set_endpoint", "rotate_secret", "remove_endpoint",
    "redeliver", "close_alert", "begin_request",
    "resend_notification", "read_inbox", "forget_recipient",
}  # fmt: skip


@pytest.mark.rule("ENG-19.04", "ENG-29.07")
def test_nothing_of_another_organisation_can_be_read_or_written(town: Town) -> None:
    newest = town.conn.info.server_version >= 180000
    callers = BOUND if ALL else random.sample(BOUND, 2) if newest else []  # by the seed of the run, which pytest prints
    assert list(town.leaks(callers)) == []


def test_the_probe_sees_every_mistake(town18: Town) -> None:
    unseen = []
    for mistake in PLANTS if ALL else random.sample(list(PLANTS), 3):
        with town18.conn.transaction(force_rollback=True):
            town18.do(PLANTS[mistake])
            if next(town18.leaks(BOUND), None) is None:
                unseen.append(mistake)
    assert unseen == []


def test_there_is_something_to_protect_in_every_table(town18: Town) -> None:
    for relation in filter(tenants_have, town18.relations("rpv")):
        query = f"select distinct org_id from mainspring.{relation} where org_id = any(%s)"
        assert len(town18.do(query, [OURS, THEIRS])) == 2, f"{relation}: settle_in gives it no rows"


@pytest.mark.rule("ENG-19.04")
@pytest.mark.parametrize("role", ["operator", "worker", "owner"])
def test_the_view_of_queues_speaks_of_jobs_of_its_readers_organisation_only(town18: Town, role: str) -> None:
    query = "select name from mainspring.queues where due_since is not null"
    with town18.conn.transaction(force_rollback=True):
        town18.do("update mainspring.waiting set queue = org_id")
        told = {}
        for org in (OURS, THEIRS, None):
            with town18.acting(role, org):
                told[org] = {name for (name,) in town18.do(query)}
    everything = {OURS, THEIRS, "SYSTEM"} if role == "worker" else set()
    assert told == {OURS: {OURS}, THEIRS: {THEIRS}, None: everything}


def test_the_probe_asks_for_what_there_is(town18: Town) -> None:
    blind = []
    for name, parameters in town18.functions():
        if name in TALKATIVE:
            answers = []
            for org in (town18.ours, town18.ours.unknown()):
                with town18.acting("operator", OURS):
                    answers.append([town18.call(name, parameters, org, *how) for how in town18.variants(parameters)])
            if answers[0] == answers[1]:
                blind.append(name)
    assert blind == []
