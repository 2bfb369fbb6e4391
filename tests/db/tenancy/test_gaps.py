"""`mainspring schema status` does not say secured where somebody has weakened it."""

from __future__ import annotations

from contextlib import closing

import psycopg
import pytest
from tests.databases import Database
from tests.secured import Secured

from mainspring.db.schema.policy import policies
from mainspring.db.schema.secure import cover

#: What somebody did, and the beginning of what is said of it.
WEAKENED = {
    "a right that nobody has": (
        "grant truncate on mainspring.job to mainspring_api",
        "mainspring_api may truncate job",
    ),
    "a right to all columns": (
        "grant insert on mainspring.audit to mainspring_worker",
        "mainspring_worker may insert audit",
    ),
    "a right of everybody": ("grant all on mainspring.epoch to public", "public may select epoch"),
    "one more policy": (
        "create policy oops on mainspring.finished using (true)",
        "table finished has a policy oops, which admits more",
    ),
    "a policy is gone": (
        "drop policy api on mainspring.job",
        "table job has no row-level security for everybody",
    ),
    "the owner is not bound": (
        "alter table mainspring.waiting no force row level security",
        "table waiting has no row-level security for everybody",
    ),
    "names of the caller": (
        "alter function mainspring.cancel reset search_path",
        "function cancel takes names from who calls it",
    ),
    "a role in a role": (
        "grant mainspring_worker to mainspring_api",
        "mainspring_api is a member of mainspring_worker: revoke",
    ),
    "a role that bypasses": (
        "alter role mainspring_operator bypassrls",
        "mainspring_operator is a superuser or bypasses row-level security",
    ),
    # -- these were not seen
    "a policy was altered": (
        "alter policy api on mainspring.job using (true)",
        "table job has a policy api that is not as we made it",
    ),
    "a column was granted": (
        "grant update (payload) on mainspring.job to mainspring_worker",
        "mainspring_worker may update job (payload)",
    ),
    "a login with two roles": (
        "create role shop login in role mainspring_worker, mainspring_api",
        "shop has more than one role: revoke all but one of mainspring_api, mainspring_worker",
    ),
    "a login that bypasses": (
        "create role shop login bypassrls in role mainspring_api",
        "shop is a superuser or bypasses row-level security",
    ),
    "a right of a login": (
        "create role shop login; grant select on mainspring.jobs to shop",
        "shop may select jobs",
    ),
    "a verb of operators": (
        "grant execute on function mainspring.replay to mainspring_api",
        "mainspring_api may execute replay",
    ),
    "things beside ours": (
        "grant create on schema mainspring to mainspring_api",
        "mainspring_api may create in schema mainspring",
    ),
    "a view of its owner": (
        "alter view mainspring.jobs reset (security_invoker)",
        "view jobs reads by the rights of its owner",
    ),
    "a guard that sleeps": (
        "alter table mainspring.audit disable trigger audit_guard",
        "trigger audit_guard on audit is disabled or gone",
    ),
    "a login that is the owner": (
        "create role shop login in role mainspring_api, mainspring",
        "shop is a member of mainspring as well: revoke mainspring from shop",
    ),
    "a verb of somebody else": (
        "alter function mainspring.cancel owner to postgres",
        "function cancel belongs to postgres, not to mainspring",
    ),
}
#: More of the same kinds.
AND_ALSO = {
    "a policy of everybody": (
        "alter policy api on mainspring.job to public",
        "table job has a policy api that is not as we made it",
    ),
    "a policy of what is written": (
        "alter policy worker on mainspring.step with check (true)",
        "table step has a policy worker that is not as we made it",
    ),
    "a verb of a login": (
        "create role shop login; grant execute on function mainspring.erase to shop",
        "shop may execute erase",
    ),
    "a part of a verb": (
        "grant execute on function mainspring.seize to mainspring_api",
        "mainspring_api may execute seize",
    ),
    "a guard that is gone": (
        "drop trigger job_guard on mainspring.job",
        "trigger job_guard on job is disabled or gone",
    ),
    "a login through a group": (
        "create role team in role mainspring_worker, mainspring_api; create role shop login in role team",
        "shop has more than one role",
    ),
    "a login that writes everywhere": (
        "create role shop login in role mainspring_api, pg_write_all_data",
        "shop is a member of pg_write_all_data as well",
    ),
}


def seen(conn: psycopg.Connection, statement: str, gap: str) -> bool:
    """Whether a gap is told after a statement, which is undone: roles are the cluster's."""
    with conn.transaction(force_rollback=True):
        conn.execute(statement.encode())
        return any(said.startswith(gap) for said in cover(conn).gaps)


@pytest.mark.rule("ENG-29.07")
@pytest.mark.parametrize("how", [*WEAKENED, *AND_ALSO])
def test_status_sees_how_a_secured_schema_was_weakened(secured: Secured, how: str) -> None:
    assert len(WEAKENED) == 20
    assert seen(secured.conn, *(WEAKENED | AND_ALSO)[how])
    assert cover(secured.conn).gaps == []


def test_status_sees_the_same_on_the_oldest_server(database15: Database) -> None:
    with closing(Secured(database15)) as secured:
        assert cover(secured.conn).gaps == []
        assert [how for how, said in (WEAKENED | AND_ALSO).items() if not seen(secured.conn, *said)] == []


def test_who_may_give_a_role_away_does_not_play_it(secured: Secured) -> None:
    with secured.conn.transaction(force_rollback=True):
        secured.do("create role boss login")
        for role in ("worker", "api"):
            secured.do(f"grant mainspring_{role} to boss with admin true, inherit false, set false")
        assert cover(secured.conn).gaps == []


def test_a_role_s_name_stands_in_a_policy_as_a_name() -> None:
    assert "'o''brien_worker'::name" in policies("job", "o'brien", "boss")["owner"].seen
