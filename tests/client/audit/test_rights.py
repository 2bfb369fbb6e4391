"""Who writes to the audit trail cannot choose where, and who seals it cannot choose what."""

from __future__ import annotations

from contextlib import closing

import pytest
from psycopg.errors import InsufficientPrivilege
from tests.databases import Database
from tests.secured import Secured

from mainspring import Client


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
