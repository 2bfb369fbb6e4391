from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import psycopg
from psycopg.rows import TupleRow
from tests.client.frameworks.joins import django_connection
from tests.client.frameworks.test_joining import hints, rows
from tests.client.tasks import greet
from tests.databases import Database

from mainspring import Client

Sql = psycopg.Connection[TupleRow]


def test_outside_of_atomic_a_job_commits_by_itself_and_wakes(database: Database, sql: Sql) -> None:
    def view() -> None:
        with django_connection(database.dsn) as connection, Client(database.dsn) as client:
            client.enqueue(greet.job(), conn=connection)
            assert rows(sql) == (0, 1)
            assert not connection.in_atomic_block

    with database.connect() as listener, ThreadPoolExecutor(1) as thread:
        listener.execute("listen mainspring")
        sql.execute("select mainspring.raise_idle(60000)")
        thread.submit(view).result()
        assert hints(listener, sql) == 1


def test_a_hint_that_fails_does_not_make_the_commit_fail(database: Database, sql: Sql) -> None:
    def view() -> None:
        from django.db import transaction

        with django_connection(database.dsn) as connection, Client(database.dsn) as client:
            with transaction.atomic():
                client.enqueue(greet.job(), conn=connection)
                sql.execute("drop function mainspring.wake cascade")
            with connection.cursor() as cursor:
                cursor.execute("insert into booking values (1)")

    with ThreadPoolExecutor(1) as thread:
        thread.submit(view).result()
    assert rows(sql) == (1, 1)


PSYCOPG2 = """
import json, sys
import mainspring as ms
from mainspring import Client
from mainspring.errors import KeyReused
psycopg, sys.modules["psycopg"] = sys.modules["psycopg"], None  # Django must not see psycopg 3
import django
import django.db.backends.postgresql.base as backend
sys.modules["psycopg"] = psycopg
from django.conf import settings
from django.db import connection, transaction

dsn, database = sys.argv[1], json.loads(sys.argv[2])
settings.configure(DATABASES={"default": database}, USE_TZ=True)
django.setup()
tasks = ms.Registry("subprocess")

@tasks.task
async def greet(*, name: str) -> None: ...

seen = {"driver": backend.Database.__name__}
with Client(dsn) as client:
    with transaction.atomic():
        first = client.enqueue(greet.job(name="committed").with_key("k"), conn=connection)
        seen["hooks"] = len(connection.run_on_commit)
        try:
            with transaction.atomic():
                client.enqueue(greet.job(name="refused").with_key("k"), conn=connection)
        except KeyReused as error:
            seen["refused"] = error.job_id == first.id
        client.enqueue(greet.job(name="after the savepoint"), conn=connection)
    try:
        with transaction.atomic():
            client.enqueue(greet.job(name="rolled back"), conn=connection)
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    seen["cancelled"] = client.cancel(key="k", conn=connection)
    seen["jobs"] = sorted(job.payload["name"] for job in client.jobs(conn=connection))
connection.close()
print(json.dumps(seen))
"""


def test_django_on_psycopg2_joins_as_well(database: Database) -> None:
    from tests.client.frameworks.joins import django_settings

    arguments = [database.dsn, json.dumps(django_settings(database.dsn))]
    done = subprocess.run([sys.executable, "-c", PSYCOPG2, *arguments], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "driver": "psycopg2",
        "hooks": 1,
        "refused": True,
        "cancelled": "cancelled",
        "jobs": ["after the savepoint", "committed"],
    }
