"""`mainspring schema secure` and `unsecure`: twice, at once, undone, and refused where they would promise too much."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from tests.cli.conftest import Cli, cli  # noqa: F401 (a fixture)
from tests.databases import Database, server
from tests.secured import Secured, superuser
from tools.dump_schema import dump

from mainspring.db.schema.migrate import migrate
from mainspring.db.schema.rights import CALLS, PARTS, SEQUENCES, TABLE_RIGHTS, VERB_RIGHTS, VIEWS
from mainspring.db.schema.secure import cover, is_secured, secure, unsecure
from mainspring.embedded import Cluster
from mainspring.errors import ConfigurationError, SchemaMissing

ROLES = {"mainspring_worker", "mainspring_api", "mainspring_operator"}
PUBLIC = """
    select p.proname from pg_proc p
    where p.pronamespace = 'mainspring'::regnamespace and has_function_privilege('public', p.oid, 'execute')
"""
GRANTED = """
    select a.grantee::regrole::text
    from (select relacl as acl from pg_class where relnamespace = 'mainspring'::regnamespace
          union all select proacl from pg_proc where pronamespace = 'mainspring'::regnamespace
          union all select nspacl from pg_namespace where nspname = 'mainspring') x, aclexplode(x.acl) a
    where a.grantee <> 0
"""


@pytest.fixture
def schema(database: Database) -> Iterator[str]:
    """A schema whose roles no other test uses."""
    name = f"jobs{uuid4().hex[:8]}"
    with superuser(database) as conn:
        conn.execute("set role mainspring")
        migrate(conn, schema=name)
        conn.execute("reset role")
        yield name
        conn.execute(f"drop schema {name} cascade".encode())
        for role in ("worker", "api", "operator"):
            conn.execute(f"drop role if exists {name}_{role}".encode())


def test_everything_of_the_schema_is_classified(secured: Secured) -> None:
    """A new table or function fails here until somebody says in mainspring.db.schema.rights who may use it."""
    kinds = {"r": set(TABLE_RIGHTS), "S": set(SEQUENCES), "v": set(VIEWS)}
    query = "select relname, relkind::text from pg_class where relnamespace = 'mainspring'::regnamespace"
    found = secured.do(query)
    for kind, known in kinds.items():
        assert {name for name, its in found if its == kind} == known
    functions = {
        row[0] for row in secured.do("select proname from pg_proc where pronamespace = 'mainspring'::regnamespace")
    }
    assert functions == {*VERB_RIGHTS, *CALLS, *PARTS}
    assert len({*VERB_RIGHTS, *CALLS, *PARTS}) == len(VERB_RIGHTS) + len(CALLS) + len(PARTS)


def test_views_read_by_the_rights_of_who_asks(secured: Secured) -> None:
    query = "select relname, reloptions from pg_class where relnamespace = 'mainspring'::regnamespace and relkind = 'v'"
    assert {options and tuple(options) for _, options in secured.do(query)} == {("security_invoker=true",)}


def test_verbs_cannot_be_led_astray_by_the_caller_s_names(secured: Secured) -> None:
    query = "select proname, proconfig from pg_proc where pronamespace = 'mainspring'::regnamespace and prosecdef"
    found = dict(secured.do(query))
    assert found.keys() == VERB_RIGHTS.keys()
    assert all("search_path=pg_catalog, pg_temp" in settings for settings in found.values())


def test_once_more_changes_nothing(database: Database) -> None:
    with superuser(database) as conn:
        first = secure(conn)
        once = dump(database.dsn)
        second = secure(conn)
        assert (set(first.roles), second.created) == (ROLES, [])
        assert dump(database.dsn) == once
        assert cover(conn).gaps == []
        unsecure(conn)


def test_undone_whole(database: Database) -> None:
    before = dump(database.dsn)
    with superuser(database) as conn:
        public = conn.execute(PUBLIC).fetchall()
        secure(conn)
        assert conn.execute(PUBLIC).fetchall() == []
        assert dump(database.dsn) != before
        unsecure(conn)
        assert dump(database.dsn) == before
        assert sorted(conn.execute(PUBLIC).fetchall()) == sorted(public)
        assert {row[0] for row in conn.execute(GRANTED)} == {"mainspring"}
        assert unsecure(conn).keys() == ROLES  # twice is harmless
        assert not is_secured(conn)


def test_many_at_once(database: Database) -> None:
    def run(n: int) -> None:
        with superuser(database) as conn:
            secure(conn)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(run, range(6)))
    with superuser(database) as conn:
        assert cover(conn).gaps == []
        unsecure(conn)


def test_many_databases_at_once_share_the_roles(volatile_cluster: Cluster) -> None:
    """Roles are the cluster's: while one database makes them, another drops them."""
    name = f"jobs{uuid4().hex[:8]}"  # whose roles no other test keeps

    def run(n: int) -> list[str]:
        with server(volatile_cluster).fresh(schema=name, reuse=False) as database, superuser(database) as conn:
            gaps = []
            for _ in range(2):
                secure(conn, schema=name)
                gaps += cover(conn, schema=name).gaps
                unsecure(conn, schema=name)
            return gaps

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, range(4))) == [[], [], [], []]
    with superuser(Database(volatile_cluster.dsn("postgres"))) as conn:
        assert conn.execute("select rolname from pg_roles where rolname like %s", [f"{name}%"]).fetchall() == []


def test_a_role_that_is_used_is_kept(database: Database, schema: str) -> None:
    with superuser(database) as conn:
        secure(conn, schema=schema)
        login = f"{schema}_login"
        conn.execute(f"create role {login} login in role {schema}_api".encode())
        conn.execute(f"create table elsewhere (); grant select on elsewhere to {schema}_worker".encode())
        fates = unsecure(conn, schema=schema)
        assert fates == {
            f"{schema}_worker": "kept: another database or schema uses it",
            f"{schema}_api": "kept: it has members",
            f"{schema}_operator": "dropped",
        }
        conn.execute(f"drop table elsewhere; drop role {login}".encode())


@pytest.mark.parametrize("version", [18, 15])
def test_an_ordinary_owner_secures_it_who_may_create_roles(request: pytest.FixtureRequest, version: int) -> None:
    database: Database = request.getfixturevalue("database" if version == 18 else "database15")
    owner = f"owner_{uuid4().hex[:8]}"
    with superuser(database) as conn:
        conn.execute(f"create role {owner} login; grant create on database {conn.info.dbname} to {owner}".encode())
        with psycopg.connect(make_conninfo(database.dsn, user=owner), autocommit=True) as own:
            migrate(own, schema=owner)
            with pytest.raises(
                ConfigurationError, match=f"roles: {owner}_worker is missing .* CREATEROLE, .* create role"
            ):
                secure(own, schema=owner)
            assert not is_secured(own, schema=owner)
            conn.execute(f"alter role {owner} createrole".encode())
            assert len(secure(own, schema=owner).created) == 3
            assert own.execute(f"select count(*) from {owner}.queue".encode()).fetchone() != (0,)
            assert cover(own, schema=owner).gaps == []
            assert set(unsecure(own, schema=owner).values()) == {"dropped"}
        conn.execute(f"drop owned by {owner} cascade; drop role {owner}".encode())


def test_an_owner_who_is_not_bound_is_refused(database: Database, schema: str) -> None:
    with superuser(database) as conn:
        conn.execute(f"alter table {schema}.job owner to postgres".encode())
        with pytest.raises(ConfigurationError, match="belongs to mainspring and postgres"):
            secure(conn, schema=schema)
        conn.execute(f"alter table {schema}.job owner to mainspring".encode())
        secure(conn, schema=schema)
        conn.execute(f"grant {schema}_worker to mainspring".encode())
        with pytest.raises(ConfigurationError, match=f"its owner mainspring is a member of {schema}_worker"):
            secure(conn, schema=schema)
        assert cover(conn, schema=schema).gaps != []
        conn.execute(f"revoke {schema}_worker from mainspring".encode())
        unsecure(conn, schema=schema)


def test_a_superuser_s_schema_is_refused(database: Database) -> None:
    name = f"jobs{uuid4().hex[:8]}"
    with superuser(database) as conn:
        migrate(conn, schema=name)
        with pytest.raises(ConfigurationError, match="its owner postgres is a superuser"):
            secure(conn, schema=name)


def test_a_table_without_an_organisation_is_refused_and_nothing_is_half_done(database: Database) -> None:
    before = dump(database.dsn)
    with superuser(database) as conn:
        conn.execute("set role mainspring; create table mainspring.note (org_id text, text text); reset role")
        with pytest.raises(ConfigurationError, match="note: a table without a column org_id"):
            secure(conn)
        conn.execute("drop table mainspring.note")
    assert dump(database.dsn) == before


def test_there_is_nothing_to_secure(database: Database) -> None:
    with superuser(database) as conn, pytest.raises(SchemaMissing):
        secure(conn, schema="nowhere")


def test_an_upgrade_is_noticed_and_secured(database: Database, cli: Cli) -> None:  # noqa: F811
    with closing(Secured(database)) as secured:
        at = ("--dsn", secured.dsn("owner"))
        assert cli("schema", "status", *at, "--json").json["secured"] is True
        secured.do("""
            set role mainspring;
            create table mainspring.shop_note (org_id text not null, note text);
            create function mainspring.shop_notes() returns bigint language sql return 1;
            create or replace function mainspring.wake() returns boolean language sql return false;
            reset role
        """)
        assert cli("schema", "status", *at, "--json").json["gaps"] == [
            "table shop_note has no row-level security for everybody",
            "function shop_notes may be called by everybody",
            "function wake runs by the rights of the wrong role",
        ]
        assert "But table shop_note has no row-level security" in cli("schema", "status", *at).out
        assert "are secured" in cli("schema", "secure", *at).out
        assert cli("schema", "status", *at, "--json").json["gaps"] == []
        secured.do("insert into mainspring.shop_note values ('acme', 'hello'), ('globex', 'secret')")
        secured.do("grant select on mainspring.shop_note to mainspring_api")
        with secured.connect("api", "acme") as conn:
            assert conn.execute("select note from mainspring.shop_note").fetchall() == [("hello",)]


def test_what_a_person_is_told(database: Database, cli: Cli, schema: str) -> None:  # noqa: F811
    at = ("--dsn", make_conninfo(database.dsn, user="postgres"), "--schema", schema)
    assert "It is not secured" in cli("schema", "status", *at).out
    said = cli("schema", "secure", *at).out
    assert f"roles: created {schema}_worker, {schema}_api, {schema}_operator" in said
    assert f"grant {schema}_api to your_login;" in said
    assert "roles: there already" in cli("schema", "secure", *at).out
    assert "It is secured." in cli("schema", "status", *at).out
    assert cli("schema", "secure", *at, "--json").json["roles"] == [
        f"{schema}_{r}" for r in ("worker", "api", "operator")
    ]
    said = cli("schema", "unsecure", *at).out
    assert f"schema {schema} is not secured any more\nrole {schema}_worker is dropped\n" in said
    assert cli("schema", "unsecure", *at, "--json").json == {
        "schema": schema, "roles": {f"{schema}_{role}": "not there" for role in ("worker", "api", "operator")},
    }  # fmt: skip
