"""Tokens, users, sessions and links in the database: what holds whoever calls the verbs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, TypeVar

import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege
from tests.databases import Database, await_others
from tests.secured import Secured

from mainspring.db import access
from mainspring.db.access import AccessHolder, Grant, Opening
from mainspring.db.audit import verify
from mainspring.db.jobs import Who
from mainspring.db.wire.run import psycopg_door, run
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue
from mainspring.declare.credential import AccessToken, new_secret, secret_digest
from mainspring.declare.password import PasswordRecipe
from mainspring.errors import UnknownName, ValidationError
from mainspring.testing import Clock

T = TypeVar("T")
Do = Callable[[Dialogue[T]], T]

SQL = Sql()
ME = Who(actor_type="user", actor_id="olga")
VIEWER = Grant(role="viewer")
TABLES = ("access_token", "access_user", "access_session", "access_link", "access_try")
PASSWORD = "correct horse battery"
WAITING = "select pid from pg_locks where not granted"


@pytest.fixture
def conn(database: Database) -> Iterator[psycopg.Connection[Any]]:
    with database.connect() as conn:
        yield conn


@pytest.fixture
def do(conn: psycopg.Connection[Any]) -> Do[Any]:
    return lambda dialogue: run(psycopg_door(conn), dialogue)


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passwords that cost a guess nothing."""
    new = PasswordRecipe.new
    monkeypatch.setattr(PasswordRecipe, "new", lambda: new(4))


def opening(before: str | None = None) -> Opening:
    return Opening(secret=new_secret(), address="203.0.113.9", before=before)


def by_link(do: Do[Any], name: str) -> tuple[AccessHolder | None, str]:
    """Sign somebody in; gives the secret of their session."""
    code, opened = new_secret(), opening()
    do(access.create_link(SQL, name, code, ME))
    return do(access.sign_in_by_link(SQL, code, opened)), opened.secret


def trail(conn: psycopg.Connection[Any], event: str) -> list[Any]:
    query = "select org_id, actor_id, detail from mainspring.audit where event = %s order by id"
    return conn.execute(query, [event]).fetchall()


def test_a_token_is_known_until_it_expires_or_is_revoked(do: Do[Any], conn: psycopg.Connection[Any]) -> None:
    grant = Grant(role="operator", org="acme", reveals=True)
    token = do(access.create_token(SQL, "deploys", grant, timedelta(days=1), ME))
    other = do(access.create_token(SQL, "graphs", VIEWER, None, ME))

    found = do(access.check_token(SQL, token))
    assert (found.name, found.role, found.org, found.reveals) == ("deploys", "operator", "acme", True)
    assert do(access.check_token(SQL, AccessToken(token.id, other.secret))) is None
    assert do(access.check_token(SQL, AccessToken("0" * 12, token.secret))) is None
    used = "select used_at = mainspring.now() from mainspring.access_token where id = %s"
    Clock(conn).advance(seconds=59)
    do(access.check_token(SQL, token))
    assert conn.execute(used, [token.id]).fetchone() == (False,)  # written once a minute at the most
    Clock(conn).advance(seconds=1)
    do(access.check_token(SQL, token))
    assert conn.execute(used, [token.id]).fetchone() == (True,)

    assert do(access.revoke_token(SQL, other.text, ME, "left on a train"))
    assert not do(access.revoke_token(SQL, other.id, ME))
    with pytest.raises(UnknownName):
        do(access.revoke_token(SQL, "0" * 12, ME))
    assert do(access.check_token(SQL, other)) is None
    Clock(conn).advance(days=1)
    assert do(access.check_token(SQL, token)) is None
    assert [(row.name, row.state) for row in do(access.tokens(SQL))] == [("graphs", "revoked"), ("deploys", "expired")]
    assert [row.name for row in do(access.tokens(SQL, "acme"))] == ["deploys"]

    ((org, actor, made), (_, _, _)) = trail(conn, "access.token_created")
    assert (org, actor, made["before"], made["after"]["role"]) == ("acme", "olga", None, "operator")
    ((org, _, gone),) = trail(conn, "access.token_revoked")
    assert (org, gone["reason"], gone["before"]["revoked_at"]) == ("SYSTEM", "left on a train", None)
    assert gone["after"]["revoked_at"] is not None


def test_a_session_ends_when_nobody_comes_by_and_after_half_a_day_at_the_latest(
    do: Do[Any], conn: psycopg.Connection[Any]
) -> None:
    do(access.create_user(SQL, "ana", VIEWER, None, ME))
    _, idle = by_link(do, "ana")
    _, busy = by_link(do, "ana")
    for _ in range(24):
        Clock(conn).advance(minutes=29)
        assert do(access.check_session(SQL, busy)) is not None
    assert do(access.check_session(SQL, idle)) is None
    assert [row.current for row in do(access.sessions(SQL, busy))] == [True]
    Clock(conn).advance(minutes=24)
    assert do(access.check_session(SQL, busy)) is None  # seen 24 minutes ago, opened 12 hours ago


def test_a_link_signs_in_once_and_for_fifteen_minutes(do: Do[Any], conn: psycopg.Connection[Any]) -> None:
    do(access.create_user(SQL, "ana", VIEWER, None, ME))
    code, late, void = new_secret(), new_secret(), new_secret()
    do(access.create_link(SQL, "ana", void, ME))
    do(access.create_link(SQL, "ana", code, ME))
    assert do(access.sign_in_by_link(SQL, void, opening())) is None  # the next one took its place
    assert do(access.sign_in_by_link(SQL, code, opening())).name == "ana"
    assert do(access.sign_in_by_link(SQL, code, opening())) is None
    do(access.create_link(SQL, "ana", late, ME))
    Clock(conn).advance(minutes=15)
    assert do(access.sign_in_by_link(SQL, late, opening())) is None
    with pytest.raises(UnknownName):
        do(access.create_link(SQL, "nobody", code, ME))


def test_of_many_who_use_one_link_at_once_one_signs_in(do: Do[Any], database: Database) -> None:
    do(access.create_user(SQL, "ana", VIEWER, None, ME))
    code = new_secret()
    do(access.create_link(SQL, "ana", code, ME))

    def use(_: int) -> bool:
        with database.connect() as conn:
            return run(psycopg_door(conn), access.sign_in_by_link(SQL, code, opening())) is not None

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(use, range(8))) == 1


def test_who_is_disabled_or_gets_a_password_has_no_session_and_no_link_from_then_on(
    do: Do[Any], conn: psycopg.Connection[Any]
) -> None:
    do(access.create_user(SQL, "ana", VIEWER, PASSWORD, ME))
    _, session = by_link(do, "ana")
    code = new_secret()
    do(access.create_link(SQL, "ana", code, ME))
    assert do(access.change_user(SQL, "ana", {"disabled": True}, ME, "has left"))
    assert not do(access.change_user(SQL, "ana", {"disabled": True}, ME))
    assert do(access.check_session(SQL, session)) is None
    assert do(access.sign_in_by_link(SQL, code, opening())) is None
    verifier = PasswordRecipe.parse(do(access.try_sign_in(SQL, "ana", "::1")).recipe).verifier(PASSWORD)
    assert do(access.sign_in(SQL, "ana", verifier, opening())) is None

    assert do(access.change_user(SQL, "ana", {"disabled": False, "role": "admin"}, ME))
    assert do(access.sign_in(SQL, "ana", verifier, opening())).role == "admin"
    _, session = by_link(do, "ana")
    do(access.set_password(SQL, "ana", "another one, as long", ME))
    assert do(access.check_session(SQL, session)) is None
    assert do(access.sign_in(SQL, "ana", verifier, opening())) is None
    ((_, actor, detail),) = trail(conn, "access.user_disabled")
    assert (actor, detail["reason"], detail["before"]["disabled"], detail["after"]["disabled"]) == (
        "olga", "has left", False, True,
    )  # fmt: skip


@pytest.mark.parametrize("change", [{"role": "admin"}, {"org": None}, {"reveals": True}, {"org": "globex"}])
@pytest.mark.cases(4)
def test_what_was_opened_for_who_may_less_does_not_open_what_they_may_now(
    do: Do[Any], database: Database, change: dict[str, Any]
) -> None:
    do(access.create_user(SQL, "ana", Grant(role="viewer", org="acme"), None, ME))
    _, session = by_link(do, "ana")
    code, other, found = new_secret(), new_secret(), []
    do(access.create_link(SQL, "ana", code, ME))
    with database.connect() as raising, ThreadPoolExecutor(1) as pool:
        with raising.transaction():
            assert run(psycopg_door(raising), access.change_user(SQL, "ana", change, ME))
            late = pool.submit(do, access.sign_in_by_link(SQL, code, opening()))
            while not late.done() and not raising.execute(WAITING).fetchone():
                pass
        found.append(late.result())
    assert found == [None]  # it came while the change was under way, and waited for it
    assert do(access.check_session(SQL, session)) is None
    assert do(access.sign_in_by_link(SQL, code, opening())) is None
    do(access.create_link(SQL, "ana", other, ME))
    assert do(access.sign_in_by_link(SQL, other, opening())) is not None


def test_who_is_vouched_for_keeps_no_session_over_a_change_and_gets_no_link(do: Do[Any]) -> None:
    first, again, raised = opening(), opening(), opening()
    do(access.sign_in_vouched(SQL, "ben", "oidc", VIEWER, first))
    do(access.sign_in_vouched(SQL, "ben", "oidc", VIEWER, again))
    assert do(access.check_session(SQL, first.secret)) is not None  # nothing has changed
    assert do(access.sign_in_vouched(SQL, "ben", "oidc", Grant(role="admin"), raised)).role == "admin"
    assert [do(access.check_session(SQL, one.secret)) for one in (first, again)] == [None, None]
    assert do(access.check_session(SQL, raised.secret)).role == "admin"
    with pytest.raises(ValidationError, match="has no link here"):
        do(access.create_link(SQL, "ben", new_secret(), ME))


def test_the_trail_of_an_organisation_does_not_name_another_from_where_or_to_where_somebody_moved(
    do: Do[Any], conn: psycopg.Connection[Any]
) -> None:
    do(access.create_user(SQL, "ana", Grant(role="viewer", org="acme"), None, ME))
    do(access.change_user(SQL, "ana", {"org": "globex"}, ME))
    do(access.sign_in_vouched(SQL, "ben", "oidc", Grant(role="viewer", org="acme"), opening()))
    do(access.sign_in_vouched(SQL, "ben", "oidc", Grant(role="viewer", org="globex"), opening()))
    told = [
        (org, "acme" in str(detail), "globex" in str(detail)) for org, _, detail in trail(conn, "access.user_changed")
    ]
    assert told == [("acme", True, False), ("globex", False, True)] * 2


def test_signing_in_ends_the_session_that_the_browser_had(do: Do[Any]) -> None:
    do(access.create_user(SQL, "ana", VIEWER, None, ME))
    do(access.create_user(SQL, "eve", VIEWER, None, ME))
    _, planted = by_link(do, "eve")
    code = new_secret()
    do(access.create_link(SQL, "ana", code, ME))
    opened = opening(before=planted)
    assert do(access.sign_in_by_link(SQL, code, opened)).name == "ana"
    assert do(access.check_session(SQL, planted)) is None
    assert do(access.check_session(SQL, opened.secret)).name == "ana"
    assert do(access.end_sessions(SQL, opened.secret)) == 1
    assert do(access.check_session(SQL, opened.secret)) is None
    assert do(access.end_sessions(SQL, opened.secret)) == 0


def test_of_one_users_sessions_twenty_are_kept_and_only_they_end_them(do: Do[Any]) -> None:
    do(access.create_user(SQL, "ana", VIEWER, None, ME))
    do(access.create_user(SQL, "eve", VIEWER, None, ME))
    opened = [by_link(do, "ana")[1] for _ in range(22)]
    _, eves = by_link(do, "eve")
    rows = do(access.sessions(SQL, opened[-1]))
    assert len(rows) == 20
    assert do(access.check_session(SQL, opened[1])) is None
    assert do(access.end_sessions(SQL, eves, rows[-1].id)) == 0
    assert do(access.end_sessions(SQL, opened[-1], rows[-1].id)) == 1
    assert do(access.end_sessions(SQL, opened[-1])) == 19
    assert do(access.check_session(SQL, eves)) is not None


def test_who_is_vouched_for_is_written_down_and_takes_nobodys_name(do: Do[Any], conn: psycopg.Connection[Any]) -> None:
    do(access.create_user(SQL, "olga", Grant(role="admin"), PASSWORD, ME))
    assert do(access.sign_in_vouched(SQL, "olga", "oidc", VIEWER, opening())) is None
    assert do(access.sign_in_vouched(SQL, "ben", "oidc", VIEWER, opening())).role == "viewer"
    assert do(access.sign_in_vouched(SQL, "ben", "proxy", Grant(role="admin"), opening())) is None
    assert do(access.sign_in_vouched(SQL, "ben", "oidc", Grant(role="operator"), opening())).role == "operator"
    with pytest.raises(ValidationError, match="has no password here"):
        do(access.set_password(SQL, "ben", PASSWORD, ME))
    do(access.change_user(SQL, "ben", {"disabled": True}, ME))
    assert do(access.sign_in_vouched(SQL, "ben", "oidc", VIEWER, opening())) is None
    assert [(row.name, row.role, row.signs_in_by) for row in do(access.users(SQL))] == [
        ("ben", "operator", "oidc"), ("olga", "admin", "password"),
    ]  # fmt: skip
    assert [detail["after"]["role"] for _, _, detail in trail(conn, "access.user_changed")] == ["operator"]


def test_a_thousand_tries_are_held_back_and_take_no_room(do: Do[Any], conn: psycopg.Connection[Any]) -> None:
    Clock(conn).advance(seconds=0)  # it stands: a try comes back every six seconds

    def tries(names: list[str], addresses: list[str]) -> int:
        pairs = zip(names, addresses, strict=True)
        return sum(do(access.try_sign_in(SQL, name, address)).wait == 0 for name, address in pairs)

    assert tries(["ana"] * 500, ["203.0.113.9"] * 500) == 10
    assert tries(["ana"] * 250, [f"10.0.0.{n}" for n in range(250)]) == 0  # from elsewhere either
    assert tries([f"user {n}" for n in range(250)], ["203.0.113.9"] * 250) == 0  # nor under other names
    assert 1 <= do(access.try_sign_in(SQL, "ana", "198.51.100.1")).wait <= 6
    Clock(conn).advance(seconds=12)
    assert tries(["ana"] * 20, ["203.0.113.9"] * 20) == 2
    highest = "select max(split_part(slot, ':', 2)::integer) < 65536 from mainspring.access_try"
    assert conn.execute(highest).fetchone() == (True,)
    computed = """select bool_and(mainspring.try_slot(n::text, 65536) = hashtextextended(n::text, 0) & 65535)
                  from generate_series(1, 9) n"""
    assert conn.execute(computed).fetchone() == (False,)  # who shares a slot is not known outside
    Clock(conn).advance(minutes=2)
    assert conn.execute("select mainspring.prune_access(1000)").fetchone() != (0,)
    assert conn.execute("select count(*) from mainspring.access_try").fetchone() == (0,)


def test_maintenance_removes_what_is_over_and_keeps_the_rest(do: Do[Any], conn: psycopg.Connection[Any]) -> None:
    do(access.create_user(SQL, "ana", VIEWER, None, ME))
    do(access.create_token(SQL, "old", VIEWER, timedelta(days=1), ME))
    do(access.create_token(SQL, "good", VIEWER, None, ME))
    by_link(do, "ana")
    do(access.create_link(SQL, "ana", new_secret(), ME))
    Clock(conn).advance(days=90)
    _, session = by_link(do, "ana")
    conn.execute("select mainspring.prune_access(1000)")
    assert do(access.check_session(SQL, session)) is not None
    assert [row.name for row in do(access.tokens(SQL))] == ["good", "old"]
    Clock(conn).advance(days=1)
    assert conn.execute("select mainspring.prune_access(1000)").fetchone() == (2,)  # a session and a token
    assert [row.name for row in do(access.tokens(SQL))] == ["good"]
    assert [row.name for row in do(access.users(SQL))] == ["ana"]


NO_USER: list[tuple[str, dict[str, Any]]] = [
    ("name", {"name": ""}),
    ("name", {"name": "a\x1b[2J"}),
    ("name", {"name": "a" * 201}),
    ("name", {"name": "taken"}),
    ("role", {"grant": Grant(role="root")}),  # type: ignore[arg-type]  # that is the point
    ("org", {"grant": Grant(role="viewer", org="SYSTEM")}),
    ("org", {"grant": Grant(role="viewer", org="a\nb")}),
    ("password", {"password": "short"}),
    ("password", {"password": "a" * 20}),
    ("password", {"password": "a" * 1001}),
]


def test_what_no_user_can_be_is_refused_by_its_name(do: Do[Any], conn: psycopg.Connection[Any]) -> None:
    do(access.create_user(SQL, "taken", VIEWER, None, ME))
    for field, change in NO_USER:
        about: dict[str, Any] = {"name": "ana", "grant": VIEWER, "password": PASSWORD} | change
        with pytest.raises(ValidationError) as refused:
            do(access.create_user(SQL, about["name"], about["grant"], about["password"], ME))
        assert refused.value.field == field
    for name in (".", "..", " ana", "ana ", "a\u200bna", "ana\ufeff", "a\U000e0041na", "SYSTEM", "System"):
        with pytest.raises(ValidationError, match="name: "):
            do(access.create_user(SQL, name, VIEWER, None, ME))
        with pytest.raises(psycopg.DatabaseError), conn.transaction():  # whoever calls the verb
            conn.execute("select mainspring.check_access(%s, 'viewer', null)", [name])
    assert len(do(access.users(SQL))) == 1


def test_no_secret_stands_in_any_row(do: Do[Any], conn: psycopg.Connection[Any]) -> None:
    token = do(access.create_token(SQL, "deploys", VIEWER, None, ME))
    do(access.create_user(SQL, "ana", VIEWER, PASSWORD, ME))
    (_, session), code = by_link(do, "ana"), new_secret()
    do(access.create_link(SQL, "ana", code, ME))
    tables = conn.execute(
        "select relname from pg_class where relnamespace = 'mainspring'::regnamespace and relkind = 'r'"
    )
    rows = ""
    for (table,) in tables.fetchall():
        rows += str(conn.execute(f"select to_jsonb(x)::text from mainspring.{table} x").fetchall())
    for secret in (token.secret, session, code, PASSWORD):
        assert secret not in rows
        assert secret.encode().hex() not in rows
    assert secret_digest(session) in rows  # as it was looked for


def test_on_a_secured_schema_nobody_reads_a_digest_and_the_application_lets_nobody_in(secured: Secured) -> None:
    with (
        secured.connect("operator", "SYSTEM") as operator,
        secured.connect("api") as api,
        secured.connect("worker") as worker,
    ):

        def ask(conn: psycopg.Connection[Any], dialogue: Dialogue[T]) -> T:
            return run(psycopg_door(conn), dialogue)

        token = ask(operator, access.create_token(SQL, "deploys", Grant(role="viewer", org="acme"), None, ME))
        ask(operator, access.create_user(SQL, "ana", VIEWER, PASSWORD, ME))
        code, opened = new_secret(), opening()
        ask(operator, access.create_link(SQL, "ana", code, ME))
        for conn in (operator, api):
            assert ask(conn, access.check_token(SQL, token)) is not None
        assert ask(api, access.sign_in_by_link(SQL, code, opened)) is not None
        assert ask(api, access.check_session(SQL, opened.secret)) is not None
        assert len(ask(operator, access.users(SQL))) == 1

        for conn in (operator, api, worker):
            for table in TABLES:
                with pytest.raises(InsufficientPrivilege):
                    conn.execute(f"select from mainspring.{table}")
        for conn in (api, worker):
            for call in (
                "create_token('0123456789ab', '', 'x', 'admin', null, true, null, 'user', 'x', null)",
                "create_user('x', 'admin', null, true, null, null, 'user', 'x', null)",
                "change_user('ana', '{\"role\": \"admin\"}', 'user', 'x', null)",
                "create_link('ana', '', 'user', 'x', null)",
                "sign_in_vouched('ana', 'oidc', 'admin', null, true, '', '::1', null)",
                "list_users(null)",
                "open_session(null, 'link', '', '::1', null)",
                "take_try('user:1')",
            ):
                with pytest.raises(InsufficientPrivilege):
                    conn.execute(f"select mainspring.{call}".encode())
        with pytest.raises(InsufficientPrivilege):
            worker.execute("select mainspring.check_token('0123456789ab', '')")
        assert worker.execute("select mainspring.prune_access(10)").fetchone() == (0,)
    events = "select org_id, event from mainspring.audit where event like 'access.%' order by id"
    assert secured.do(events) == [
        ("acme", "access.token_created"), ("SYSTEM", "access.user_created"), ("SYSTEM", "access.link_created"),
        ("SYSTEM", "access.signed_in"),
    ]  # fmt: skip


@pytest.mark.rule("ENG-19.04")
def test_an_operator_of_an_organisation_reads_nothing_about_people_who_are_bound_to_none(secured: Secured) -> None:
    seen = {}
    with secured.connect("operator", "SYSTEM") as free, secured.connect("worker") as worker:
        for org in (None, "acme", "globex"):
            run(psycopg_door(free), access.create_user(SQL, f"of {org}", Grant(role="viewer", org=org), None, ME))
        free.execute("select mainspring.pause('q:default', 'user', 'olga', 'fire')")
        await_others(worker)
        for org in ("SYSTEM", "acme"):
            assert worker.execute("select mainspring.seal(%s, 100)", [org]).fetchone() != (0,)
    for org in ("acme", "SYSTEM"):
        with secured.connect("operator", org) as conn:
            found = conn.execute("select coalesce(subject, event) from mainspring.trail order by id").fetchall()
            seen[org] = [subject for (subject,) in found]
            checked = run(psycopg_door(conn), verify(SQL))
        assert [(one.org_id, one.waiting, one.findings) for one in checked] == [(org, 0, [])]
    assert seen == {"acme": ["user of acme", "queue.paused"], "SYSTEM": ["user of None", "queue.paused"]}


def test_who_is_bound_to_an_organisation_knows_nobody_of_another(secured: Secured) -> None:
    with secured.connect("operator", "SYSTEM") as free, secured.connect("operator", "globex") as bound:

        def ask(conn: psycopg.Connection[Any], dialogue: Dialogue[T]) -> T:
            return run(psycopg_door(conn), dialogue)

        token = ask(free, access.create_token(SQL, "deploys", Grant(role="admin", org="acme"), None, ME))
        for name, grant in (("ana", Grant(role="admin", org="acme")), ("ben", Grant(role="admin"))):
            ask(free, access.create_user(SQL, name, grant, None, ME))
            for dialogue in (
                access.change_user(SQL, name, {"role": "viewer"}, ME),
                access.set_password(SQL, name, PASSWORD, ME),
                access.create_link(SQL, name, new_secret(), ME),
            ):
                with pytest.raises(UnknownName):
                    ask(bound, dialogue)
        assert (ask(bound, access.tokens(SQL)), ask(bound, access.users(SQL))) == ([], [])
        assert ask(bound, access.check_token(SQL, token)) is None
        with pytest.raises(UnknownName):
            ask(bound, access.revoke_token(SQL, token.id, ME))
        for org in (None, "acme"):
            with pytest.raises(ValidationError, match="org: is not the one"):
                ask(bound, access.create_user(SQL, "eve", Grant(role="admin", org=org), None, ME))
        ask(bound, access.create_user(SQL, "eve", Grant(role="admin", org="globex"), None, ME))
        with pytest.raises(ValidationError, match="org: is not the one"):
            ask(bound, access.change_user(SQL, "eve", {"org": None}, ME))
        assert [row.name for row in ask(bound, access.users(SQL))] == ["eve"]
