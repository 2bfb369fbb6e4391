"""The seal: rows that were changed, removed or put in are found and named; rows that committed late are not."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from tests.client.audit.conftest import Forge, note
from tests.databases import Database
from tests.db.engine import Engine

from mainspring import Client
from mainspring.audit import AuditFinding, Verified
from mainspring.client.sync import SyncClientSeam


def check(client: Client, org: str = "acme", head: str | None = None) -> Verified:
    (found,) = client.audit.verify(org=org, head=head)
    return found


def problems(verified: Verified) -> list[tuple[str, int | None]]:
    return [
        (finding.problem, finding.id if finding.id is not None else finding.number) for finding in verified.findings
    ]


def test_what_is_sealed_verifies_and_what_came_since_waits(engine: Engine, client: Client) -> None:
    for n in range(5):
        note(engine, n=n)
    note(engine, "other")

    assert client.audit.seal() == 6
    assert client.audit.seal() == 0
    note(engine, n=5)

    found = check(client)
    assert (found.seals, found.rows, found.waiting, found.findings) == (1, 5, 1, [])
    assert {head.org_id: head.number for head in client.audit.heads()} == {"acme": 1, "other": 1}
    assert [head.hash for head in client.audit.heads(org="acme")] == [found.head]
    assert client.audit.seal(org="acme") == 1
    assert [verified.findings for verified in client.audit.verify()] == [[], []]


def test_seals_are_linked_and_each_covers_a_bounded_number_of_rows(engine: Engine, client: Client) -> None:
    for n in range(25):
        note(engine, n=n)
    while engine.rows("select mainspring.seal('acme', 10)") == [(10,)]:
        pass

    chain = engine.rows(
        "select number, cardinality(ids), previous, hash, floor, last_id from mainspring.seal order by number"
    )
    assert [row[:2] for row in chain] == [(1, 10), (2, 10), (3, 5)]
    assert [row[2] for row in chain] == [None, chain[0][3], chain[1][3]]
    assert chain[2][4] == chain[1][5]  # nobody looks below it again
    assert check(client).findings == []


COLUMNS = {
    "at": "at + interval '1 microsecond'",
    "event": "'invoice.lost'",
    "job_id": "gen_random_uuid()",
    "task": "'other'",
    "attempt": "7",
    "project_id": "gen_random_uuid()",
    "actor_type": "'user'",
    "actor_id": "'eve'",
    "request_id": "'r'",
    "correlation_id": "'c'",
    "subject": "'booking 18'",
    "detail": "'{}'",
    "epoch": "7",
}


def test_every_column_of_a_row_is_covered(engine: Engine) -> None:
    columns = engine.rows(
        "select attname from pg_attribute where attrelid = 'mainspring.audit'::regclass and attnum > 0"
    )
    assert {name for (name,) in columns} == COLUMNS.keys() | {"id", "org_id"}


@pytest.mark.parametrize("column", COLUMNS)
def test_a_changed_row_is_found_and_named(engine: Engine, client: Client, forge: Forge, column: str) -> None:
    ids = [note(engine, n=n) for n in range(3)]
    client.audit.seal()

    forge(f"update mainspring.audit set {column} = {COLUMNS[column]} where id = %s", ids[1])

    assert problems(check(client)) == [("changed", ids[1])]
    assert str(check(client).findings[0]) == f"acme: audit row {ids[1]} of seal 1 is changed"


def test_a_row_that_is_said_to_be_about_something_else_is_found_and_named(
    engine: Engine, client: Client, forge: Forge
) -> None:
    ids = [client.audit.record("booking.paid", subject=f"booking {n}", org="acme") for n in (17, 18)]
    client.audit.seal()
    assert check(client).findings == []

    forge("update mainspring.audit set subject = 'booking 18' where id = %s", ids[0])
    assert problems(check(client)) == [("changed", ids[0])]

    forge("update mainspring.audit set subject = null where id = %s", ids[0])
    assert problems(check(client)) == [("changed", ids[0])]


def test_a_removed_row_is_found_and_named(engine: Engine, client: Client, forge: Forge) -> None:
    ids = [note(engine, n=n) for n in range(3)]
    client.audit.seal()

    forge("delete from mainspring.audit where id = %s", ids[1])

    assert problems(check(client)) == [("missing", ids[1])]


def test_a_row_that_went_to_another_organisation_is_missing_here(engine: Engine, client: Client, forge: Forge) -> None:
    ids = [note(engine, n=n) for n in range(3)]
    client.audit.seal()

    forge("update mainspring.audit set org_id = 'eve' where id = %s", ids[1])

    assert problems(check(client)) == [("missing", ids[1])]


def test_a_row_put_in_between_is_found_and_named(engine: Engine, client: Client, forge: Forge) -> None:
    ids = [note(engine, n=n) for n in range(3)]
    engine.rows("select setval('mainspring.epoch', nextval('mainspring.epoch') + 10)")
    ids.append(note(engine))
    client.audit.seal()
    note(engine)
    client.audit.seal()  # from now on nothing can come below what the first one covers

    forge(
        """insert into mainspring.audit (org_id, id, at, event, actor_type, actor_id)
           values ('acme', %s, now(), 'invoice.paid', 'user', 'eve')""", ids[-1] - 1,
    )  # fmt: skip

    assert problems(check(client)) == [("added", ids[-1] - 1)]
    client.audit.seal()  # and sealing does not legalise it
    assert problems(check(client)) == [("added", ids[-1] - 1)]


@pytest.mark.parametrize(
    ("forgery", "found"),
    [
        ("update mainspring.seal set hash = hash where number = 2", set()),
        ("update mainspring.seal set ids[3] = 99 where number = 2",
         {("seal changed", 2), ("missing", 99), ("added", 6)}),
        ("update mainspring.seal set digests = set_byte(digests, 40, get_byte(digests, 40) # 1) where number = 2",
         {("seal changed", 2), ("changed", 5)}),
        ("update mainspring.seal set sealed_at = sealed_at - interval '1 day' where number = 1", {("seal changed", 1)}),
        ("update mainspring.seal set tx = '9' where number = 2", {("seal changed", 2)}),
        ("update mainspring.seal set hash = sha256('x') where number = 1", {("seal changed", 1), ("seal changed", 2)}),
        ("delete from mainspring.seal where number = 1",
         {("seal missing", 1), ("added", 1), ("added", 2), ("added", 3)}),
        ("delete from mainspring.seal where number = 2",
         {("seal missing", 2), ("added", 4), ("added", 5), ("added", 6)}),
    ],
)  # fmt: skip
def test_a_changed_or_removed_seal_is_found(
    engine: Engine, client: Client, forge: Forge, forgery: str, found: set[tuple[str, int]]
) -> None:
    for n in range(9):
        assert note(engine, n=n) == n + 1
        if n % 3 == 2:
            client.audit.seal()

    forge(forgery)

    assert set(problems(check(client))) == found


def test_a_row_changed_with_its_seal_and_all_seals_after_it_shows_by_the_head_that_was_kept(
    engine: Engine, client: Client, forge: Forge
) -> None:
    ids = [note(engine, n=n) for n in range(3)]
    client.audit.seal()
    kept = client.audit.heads(org="acme")[0].hash
    forge("update mainspring.audit set actor_id = 'eve' where id = %s", ids[0])
    forge("delete from mainspring.seal")

    client.audit.seal()

    assert check(client).findings == []  # a chain made anew is a chain
    assert check(client, head=kept).findings == [AuditFinding(org_id="acme", problem="head unknown")]


def test_a_chain_that_was_cut_short_shows_by_the_head_that_was_kept(
    engine: Engine, client: Client, forge: Forge
) -> None:
    heads = []
    for n in range(3):
        note(engine, n=n)
        client.audit.seal()
        heads.append(client.audit.heads(org="acme")[0].hash)
    assert all(check(client, head=head).findings == [] for head in heads)

    forge("delete from mainspring.seal where number = 3")

    assert problems(check(client)) == []
    assert problems(check(client, head=heads[1])) == []
    assert problems(check(client, head=heads[2])) == [("head unknown", None)]


SETTINGS = [
    "timezone = 'Asia/Kathmandu'", "datestyle = 'German, DMY'", "intervalstyle = 'iso_8601'", "extra_float_digits = -5",
    "bytea_output = 'escape'",
]  # fmt: skip


@pytest.mark.parametrize("setting", SETTINGS)
def test_seals_depend_on_no_setting_of_a_session(engine: Engine, client: Client, setting: str) -> None:
    note(engine, amount=0.1, at="2026-03-29T02:30:00+01:00", big=10**30, text='e\u0301 \u00e9 😀 " \\')
    engine.conn.execute(f"set {setting}".encode())
    engine.rows("select mainspring.seal('acme', 10)")
    assert check(client).findings == []

    assert isinstance(client.seam, SyncClientSeam)
    with client.seam.connection() as conn:  # and the other way round
        conn.execute(f"set {setting}".encode())
    assert check(client).findings == []


def test_seals_are_the_same_on_the_oldest_server(database15: Database, engine: Engine) -> None:
    row = """select encode(mainspring.digest(row(
             'acme', 7, '2026-03-02 12:00:00.000001Z', 'invoice.paid', null, null, null, null, 'user', 'ada', 'r', 'c',
             'booking 17', '{"b": 1.50, "aa": [null, "é"], "a": 1e3}', null)::mainspring.audit), 'hex')"""
    with database15.connect() as old:
        assert old.execute(row.encode()).fetchall() == engine.rows(row)


def test_a_row_of_an_open_transaction_is_sealed_later_and_nothing_is_reported_meanwhile(
    database: Database, engine: Engine, client: Client
) -> None:
    with database.connect() as slow, slow.transaction():
        (late,) = slow.execute("select mainspring.record_business('a.b', '{}', 'acme')").fetchone() or (0,)
        later = [note(engine, n=n) for n in range(3)]
        assert client.audit.seal() == 0  # nothing beside an open transaction is settled
        assert (check(client).waiting, check(client).findings) == (3, [])
    assert client.audit.seal() == 4
    assert engine.rows("select ids from mainspring.seal") == [([late, *later],)]
    assert check(client).findings == []


def test_a_row_with_a_low_id_that_commits_after_seals_above_it_goes_into_the_next(
    database: Database, engine: Engine, client: Client
) -> None:
    """Numbers of transactions and ids of rows need not have the same order."""

    def write(conn: psycopg.Connection[Any], event: str) -> None:
        conn.execute("select mainspring.record_business(%s, '{}', 'acme')", [event])

    with ExitStack() as stack:
        first, second, late = (stack.enter_context(database.connect()) for _ in range(3))
        for conn in (first, second, late):
            conn.execute("begin")
            conn.execute("select pg_current_xact_id()")
        write(late, "late.low")
        for conn in (first, second):
            write(conn, "early.high")
            conn.execute("commit")
            assert client.audit.seal() == 1
            assert check(client).findings == []
        late.execute("commit")
        assert (check(client).waiting, check(client).findings) == (1, [])
        assert client.audit.seal() == 1
    note(engine)
    client.audit.seal()
    rows = engine.rows("select cardinality(ids), floor from mainspring.seal order by number")
    assert rows == [(1, 0), (1, 0), (1, 3), (1, 3)]
    assert (check(client).rows, check(client).waiting, check(client).findings) == (4, 0, [])


def test_a_row_whose_savepoint_got_its_number_after_the_id_was_drawn_is_not_passed_by(
    database: Database, engine: Engine, client: Client
) -> None:
    """A row written after a savepoint bears that savepoint's number, which may come later than a seal above the row."""
    stalled = """insert into mainspring.audit (org_id, at, event, actor_type, actor_id) values
        ('acme', case when pg_advisory_lock(7) is null then now() else now() end, 'late.low', 'user', 'ada')"""
    with ExitStack() as stack:
        gate, first, second, late, busy = (stack.enter_context(database.connect()) for _ in range(5))
        gate.execute("select pg_advisory_lock(7)")
        for conn in (first, second, late):
            conn.execute("begin")
            conn.execute("select pg_current_xact_id()")
        late.execute("savepoint s")
        thread = threading.Thread(target=late.execute, args=[stalled])
        thread.start()
        waits = "select count(*) from pg_locks where locktype = 'advisory' and not granted and objid = 7"
        while engine.rows(waits) != [(1,)]:  # its id is drawn
            time.sleep(0.001)
        for conn in (first, second):
            conn.execute("select mainspring.record_business('early.high', '{}', 'acme')")
        first.execute("commit")
        assert client.audit.seal() == 1
        second.execute("commit")
        busy.execute("begin")
        busy.execute("select pg_current_xact_id()")
        gate.execute("select pg_advisory_unlock(7)")
        thread.join()
        late.execute("commit")
        assert client.audit.seal() == 1
        assert (check(client).waiting, check(client).findings) == (1, [])
        busy.execute("commit")
        assert client.audit.seal() == 1
    assert (check(client).rows, check(client).waiting, check(client).findings) == (3, 0, [])


def test_a_transaction_that_has_written_already_seals_nothing(
    database: Database, engine: Engine, client: Client
) -> None:
    """Its number is older than the rows that it reads: a seal by it would vouch for ids that are still open."""
    with ExitStack() as stack:
        early, sealer, late = (stack.enter_context(database.connect()) for _ in range(3))
        for conn in (early, sealer, late):
            conn.execute("begin")
            conn.execute("select pg_current_xact_id()")
        late.execute("select mainspring.record_business('late.low', '{}', 'acme')")
        early.execute("select mainspring.record_business('early.high', '{}', 'acme')")
        early.execute("commit")
        assert sealer.execute("select mainspring.seal('acme', 10)").fetchone() == (0,)
        sealer.execute("commit")
        assert client.audit.seal() == 1
        late.execute("commit")
    assert client.audit.seal() == 1
    assert (check(client).rows, check(client).findings) == (2, [])


def test_two_sealers_at_once_make_one_chain(database: Database, engine: Engine, client: Client) -> None:
    note(engine)
    with database.connect() as other, other.transaction():
        assert other.execute("select mainspring.seal('acme', 10)").fetchone() == (1,)
        assert client.audit.seal() == 0  # somebody is at it: not waited for
    note(engine)
    assert client.audit.seal() == 1
    assert check(client).findings == []
    with pytest.raises(psycopg.errors.UniqueViolation):
        engine.rows("insert into mainspring.seal select * from mainspring.seal returning 1")


@pytest.mark.parametrize("tx", ["99999999999", "3"], ids=["higher", "lower"])
def test_a_chain_that_was_restored_on_another_server_goes_on(
    engine: Engine, client: Client, forge: Forge, tx: str
) -> None:
    """There the numbers of transactions are others; ids are the same."""
    for n in range(3):
        note(engine, n=n)
    client.audit.seal()
    forge("update mainspring.seal set tx = %s::xid8", tx)
    forge("update mainspring.seal s set hash = mainspring.seal_hash(s)")
    assert check(client).findings == []

    for n in range(4):
        note(engine, n=n)
        assert client.audit.seal() == 1

    assert engine.rows("select floor from mainspring.seal order by number desc limit 1") == [(6,)]
    assert (check(client).rows, check(client).findings) == (7, [])


class World:
    """Writers with transactions of any length, a sealer and a checker, in an order that a seed decides."""

    def __init__(self, database: Database, engine: Engine, client: Client, seed: int) -> None:
        self.random = random.Random(seed)
        self.engine, self.client = engine, client
        self.conns = [database.connect() for _ in range(4)]
        self.open: set[int] = set()
        self.written: dict[int, list[int]] = {n: [] for n in range(4)}
        self.committed: set[int] = set()

    def begin(self) -> None:
        n = self.random.randrange(4)
        if n not in self.open:
            self.open.add(n)
            self.conns[n].execute("begin")
            if self.random.random() < 0.5:
                self.conns[n].execute("select pg_current_xact_id()")

    def write(self) -> None:
        n = self.random.randrange(4)
        if n in self.open:
            savepoint = self.random.random() < 0.3
            if savepoint:
                self.conns[n].execute("savepoint s")
            row = self.conns[n].execute("select mainspring.record_business('a.b', '{}', 'acme')").fetchone()
            assert row is not None
            if savepoint and self.random.random() < 0.5:
                self.conns[n].execute("rollback to s")
            else:
                self.written[n].append(row[0])

    def end(self) -> None:
        if self.open:
            n = self.random.choice(sorted(self.open))
            self.open.remove(n)
            if self.random.random() < 0.8:
                self.conns[n].execute("commit")
                self.committed.update(self.written[n])
            else:
                self.conns[n].execute("rollback")
            self.written[n] = []

    def seal(self) -> None:
        self.engine.rows("select mainspring.seal('acme', %s)", self.random.choice([1, 2, 5, 100]))

    def look(self) -> None:
        for verified in self.client.audit.verify(org="acme"):
            assert verified.findings == []
            assert verified.rows + verified.waiting == len(self.committed)

    def run(self, steps: int) -> None:
        actions: list[Callable[[], None]] = [self.begin, self.write, self.write, self.end, self.seal, self.look]
        for _ in range(steps):
            self.random.choice(actions)()
        while self.open:
            self.end()
        while self.engine.rows("select mainspring.seal('acme', 3)") != [(0,)]:
            pass
        sealed = [row[0] for row in self.engine.rows("select unnest(ids) from mainspring.seal order by 1")]
        assert sealed == sorted(self.committed)
        self.look()
        for conn in self.conns:
            conn.close()


@pytest.mark.parametrize("seed", range(12))
def test_whatever_the_interleaving_every_committed_row_is_sealed_once_and_none_is_reported(
    database: Database, engine: Engine, client: Client, seed: int
) -> None:
    World(database, engine, client, seed).run(120)
