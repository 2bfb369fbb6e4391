"""Who acts over HTTP is who asks: a session or an access token says it; only a program that knows the secret does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import pytest
from tests.apps.staffing.serving import TOKEN, TOKENS, ask
from tests.apps.staffing.town import NEXT_MONDAY, W10, Booking, Town
from tests.web.visit import served, visiting

import mainspring as ms
from mainspring.cli import main
from mainspring.db import access
from mainspring.db.access import Grant
from mainspring.db.jobs import Who
from mainspring.db.wire.run import psycopg_door, run
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue
from mainspring.declare.password import PasswordRecipe
from mainspring.web import create
from mainspring_apps.staffing import bookings
from mainspring_apps.staffing.people import SYSTEM
from mainspring_apps.staffing.states import Refused
from mainspring_apps.staffing.web import ENDPOINTS, PEOPLE

T = TypeVar("T")
SQL, ME = Sql(), Who(actor_type="user", actor_id="olga")
SAID_BY = {"code": "INVALID_INPUT", "field": "by", "message": "by: is said by who asks, and not by the body"}


def do(town: Town, dialogue: Dialogue[T]) -> T:
    return run(psycopg_door(town.conn), dialogue)


def shown(town: Town, user: int | None, name: str, org: str | None = PEOPLE, role: Any = "member") -> dict[str, str]:
    """The header of somebody who has an access token and, where a user is named, is let in as this one."""
    if user is not None:
        bookings.let_in(town.desk, town.conn, user, principal=f"token:{name}", by=SYSTEM)
    token = do(town, access.create_token(SQL, name, Grant(role=role, org=org), None, ME))
    return {"Authorization": f"Bearer {token.text}"}


@pytest.fixture
def booked(town: Town) -> Booking:
    """A booking with a shift that begins now."""
    booking = town.booking(shifts=[W10.date()])
    town.mainspring.clock.set(town.row("time_log", booking.shifts[0])["scheduled_start_time"])
    return booking


@pytest.fixture
def url(town: Town, mainspring_app: ms.App) -> Iterator[str]:
    """A server without the token of a program."""
    with served(mainspring_app) as address:
        yield address


@pytest.mark.rule("STAFF-20.13")
def test_who_acts_is_who_asks_and_a_body_that_says_so_is_refused(town: Town, booked: Booking, url: str) -> None:
    worker, admin = shown(town, booked.worker_user, "welder"), shown(town, booked.borrowing_admin, "ada")
    clock_in = f"/shifts/{booked.shifts[0]}/clock-in"
    written = "select (select count(*) from mainspring.audit) + (select count(*) from mainspring.job)"
    before = town.value(written)
    for by in (booked.worker_user, booked.borrowing_admin, None):
        assert ask(url, clock_in, {"by": by}, **worker) == (400, {"error": SAID_BY})
        assert ask(url, clock_in, {"by": by}, **admin) == (400, {"error": SAID_BY})
    code, said = ask(url, clock_in, {}, **admin)
    assert (code, said["error"]["message"]) == (403, "by: a Borrowing Admin may not clock_in")
    assert town.value(written) == before

    assert ask(url, clock_in, {}, **worker) == (200, {"done": True})

    assert town.audit("clock_in") == [(str(booked.worker_user), "time_log", booked.shifts[0], None, None)]
    assert town.value("select distinct org_id from mainspring.job") == "default"
    assert town.value("select org_id from mainspring.audit where event = 'staffing.clock_in'") == "default"
    assert not any("by" in one["body"] for one in ask(url, "", **worker)[1] if "body" in one)
    with town.conn.transaction():
        bookings.let_in(town.desk, town.conn, booked.worker_user, principal=None, by=SYSTEM)
    assert ask(url, f"/shifts/{booked.shifts[0]}/submit", {}, **worker)[0] == 403


@pytest.mark.rule("STAFF-20.13")
def test_nobody_acts_without_being_known_not_even_on_this_machine(town: Town, booked: Booking, url: str) -> None:
    """No token, the token of a program where none is set up, tokens of the engine that are nobody here."""
    strangers = [{"Accept": "*/*"}, {"Authorization": f"Bearer {TOKEN}"}, {"Authorization": "Bearer STAFFING_TOKEN"}]
    strangers.append(shown(town, None, "grafana", org="acme", role="admin"))
    strangers += [shown(town, None, name, org=None, role="admin") for name in ("root", "STAFFING_TOKEN")]
    paths = [one.path.replace(":int", "").format_map(_Ones()) for one in ENDPOINTS]
    for headers, status in zip(strangers, (401, 401, 401, 404, 403, 403), strict=True):
        for path in ("", "/clock", "/bookings", f"/bookings/{booked.id}"):
            assert ask(url, path, **headers)[0] == status, (headers, path)
        for path in paths:
            assert ask(url, path, {"by": booked.worker_user}, **headers)[0] == status, (headers, path)


class _Ones(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return "1"


@pytest.mark.rule("STAFF-20.13")
def test_people_see_what_they_have_a_part_in_and_nothing_else_is_there(town: Town, booked: Booking, url: str) -> None:
    second, other = town.booking(borrower=booked.borrower), town.booking(shifts=[NEXT_MONDAY])
    seen = {
        "worker": (booked.worker_user, {booked.id}), "supervisor": (booked.supervisor, {booked.id, second.id}),
        "borrower": (booked.borrowing_manager, {booked.id, second.id}), "lender": (booked.lending_admin, {booked.id}),
        "another": (other.lending_admin, {other.id}), "newcomer": (town.user(other.lender, "Worker"), set()),
        "platform": (town.operator, {booked.id, second.id, other.id}),
    }  # fmt: skip
    for name, (user, theirs) in seen.items():
        headers = shown(town, user, name)
        assert {line["id"] for line in ask(url, "/bookings", **headers)[1]} == theirs, name
        for booking in (booked.id, second.id, other.id, 999):
            code, said = ask(url, f"/bookings/{booking}", **headers)
            assert code == (200 if booking in theirs else 404), (name, booking)
            if code == 404:
                assert said["error"]["message"] == f"booking_id: there is no booking {booking}"


@pytest.mark.rule("STAFF-20.13")
def test_a_program_that_knows_the_secret_says_itself_who_acts_and_sees_all(
    town: Town, booked: Booking, mainspring_app: ms.App
) -> None:
    clock_in = f"/shifts/{booked.shifts[0]}/clock-in"
    forger = shown(town, booked.borrowing_admin, "STAFFING_TOKEN")  # a name makes nobody a program
    with served(mainspring_app, tokens=TOKENS) as url:
        assert ask(url, clock_in, {"by": booked.worker_user}, **forger)[0] == 400
        assert ask(url, clock_in, {})[1]["error"]["message"] == "by: is missing"
        assert ask(url, clock_in, {"by": booked.borrowing_admin})[0] == 403
        assert ask(url, clock_in, {"by": booked.worker_user}) == (200, {"done": True})
        assert [line["id"] for line in ask(url, "/bookings")[1]] == [booked.id]
        assert ask(url, f"/bookings/{booked.id}")[0] == 200
        assert all(one["body"]["by"] == "a number" for one in ask(url, "")[1] if "body" in one)


@pytest.mark.anyio
@pytest.mark.rule("STAFF-20.13", "ENG-1.08")
async def test_somebody_who_signs_in_acts_by_the_session_of_their_browser(
    town: Town, booked: Booking, mainspring_app: ms.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = PasswordRecipe.new
    monkeypatch.setattr(PasswordRecipe, "new", lambda: new(4))
    password = "correct horse battery"
    do(town, access.create_user(SQL, "wilma", Grant(role="member", org=PEOPLE), password, ME))
    shown(town, booked.borrowing_admin, "wilma")  # a token of the same name is somebody else
    bookings.let_in(town.desk, town.conn, booked.worker_user, principal="user:wilma", by=SYSTEM)
    clock_in = f"/staffing/shifts/{booked.shifts[0]}/clock-in"
    async with visiting(create(mainspring_app)) as browser:
        assert (await browser.post(clock_in, json={})).status_code == 401
        signed = await browser.post("/api/v1/sign-in", json={"name": "wilma", "password": password})
        assert (await browser.post(clock_in, json={})).status_code == 403  # without the token of the session
        about = {"x-csrf-token": signed.json()["csrf"]}
        assert (await browser.post(clock_in, json={"by": booked.worker_user}, headers=about)).status_code == 400
        assert (await browser.post(clock_in, json={}, headers=about)).status_code == 200
        for place in ("/console", "/console/jobs", "/api/v1/jobs", "/api/v1/audit", "/api/v1/workers"):
            assert (await browser.get(place)).status_code == 403  # for operators of the engine alone
        assert (await browser.get("/api/v1/me")).json()["role"] == "member"
        await browser.post("/api/v1/sign-out", headers=about)
        assert (await browser.get(f"/staffing/bookings/{booked.id}")).status_code == 401


def test_a_name_is_one_user_s_and_the_first_operator_is_added_in_a_terminal(
    town: Town, booked: Booking, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRIPE_WEBHOOK_SECRET", "whsec_none")
    dsn = ["--dsn", town.mainspring.dsn]
    assert main(["staffing", "operator", "add", "Otto", "--email", "otto@example.com", *dsn]) == 0
    otto = int(capsys.readouterr().out)
    assert town.row("users", otto)["role"] == "Operator"
    assert main(["staffing", "user", "let-in", str(otto), "user:otto", *dsn]) == 0
    assert town.row("users", otto)["principal"] == "user:otto"
    with pytest.raises(Refused, match="principal: is another user already"):
        bookings.let_in(town.desk, town.conn, booked.worker_user, principal="user:otto", by=otto)
    with pytest.raises(Refused, match="principal: is neither user:NAME nor token:NAME"):
        bookings.let_in(town.desk, town.conn, booked.worker_user, principal="otto", by=otto)
    assert main(["staffing", "user", "shut-out", str(otto), *dsn]) == 0
    assert town.row("users", otto)["principal"] is None
    assert "otto" not in str(town.rows("select detail from mainspring.audit"))
