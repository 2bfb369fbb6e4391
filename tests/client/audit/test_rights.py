"""Who writes to the audit trail cannot choose where, and who seals it cannot choose what."""

from __future__ import annotations

import json
from contextlib import closing

import pytest
from psycopg.errors import InsufficientPrivilege
from tests.databases import Database
from tests.secured import Secured

from mainspring import Client
from mainspring.db.wire.sql import Sql


def test_a_worker_s_login_cannot_stop_the_seals(database: Database) -> None:
    """An id of its choice would raise the floor above everything that comes; a seal of its own would say anything."""
    with closing(Secured(database)) as secured:
        record = "select mainspring.record_business('invoice.paid', '{}', %s)"
        event = "(org_id, {}at, event, actor_type, actor_id) values ('acme', {}now(), 'job.failed', 'user', 'me')"
        with secured.connect("worker") as worker:
            with pytest.raises(InsufficientPrivilege):
                worker.execute(f"insert into mainspring.audit {event.format('id, ', '9000000000000000000, ')}".encode())
            with pytest.raises(InsufficientPrivilege):
                worker.execute("insert into mainspring.seal select * from mainspring.seal")
            worker.execute(f"insert into mainspring.audit {event.format('', '')}".encode())
            for org in ("acme", "globex"):
                with secured.connect("api", org) as conn:
                    conn.execute(record, [org])
            with secured.connect("worker", "acme") as bound:
                assert bound.execute("select mainspring.seal('globex', 10)").fetchone() == (0,)
            assert worker.execute("select mainspring.seal('acme', 10)").fetchone() == (2,)
            with worker.transaction():
                assert worker.execute("select mainspring.seal('globex', 10)").fetchone() == (1,)
                assert worker.execute("select current_setting('mainspring.org', true)").fetchone() == ("",)
        with Client(secured.dsn("operator"), secured=True) as client:
            assert [found.findings for found in client.audit.verify(org="acme")] == [[]]


@pytest.mark.mainspring_new
def test_an_organisation_finds_its_own_events_about_a_thing_by_the_index(database: Database) -> None:
    with database.connect() as owner:
        owner.execute(
            """insert into mainspring.audit (org_id, at, event, actor_type, actor_id, subject)
               select (array['acme', 'globex'])[1 + n % 2], mainspring.now(), 'booking.paid', 'user', 'ada',
                      'booking ' || n / 10
               from generate_series(0, 4999) n"""
        )
        owner.execute("analyze mainspring.audit")
    about = dict.fromkeys(("org", "event", "actor", "job", "correlation", "since", "until", "before", "newest"))
    with closing(Secured(database)) as secured, secured.connect("api", "acme") as conn:
        told = conn.execute(Sql()["list_audit"], {**about, "subject": "booking 17", "limit": 50}).fetchall()
        assert [json.loads(text)["org_id"] for (text,) in told] == ["acme"] * 5
        explain = "explain (format json) " + Sql()["list_audit"]
        ((plan,),) = conn.execute(explain, {**about, "subject": "booking 17", "limit": 50}).fetchall()
        assert "'Index Name': 'audit_subject'" in str(plan)
