"""The marketplace over HTTP: whatever somebody sends, what is wrong is named, and nothing is half written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest
from tests.apps.staffing.serving import TOKEN, TOKENS, ask
from tests.apps.staffing.town import W10, Town
from tests.web.visit import SECRET, served

import mainspring as ms
from mainspring.errors import ConfigurationError
from mainspring.web import Server
from mainspring_apps.staffing.web import ENDPOINTS

HUGE = 10**20
DEEP = "[" * 100_000
USER = {"company_id": 1, "role": "Admin", "name": "Ada"}
BOOKING = {
    "project_id": 1, "worker_id": 1, "supervisor_id": None, "start_date": "2026-07-06", "end_date": "2026-07-10",
    "start": "09:00", "end": "17:00", "rate_minor": 3000, "currency": "USD",
}  # fmt: skip
#: What is counted before and after.
TABLES = (
    "companies", "users", "projects", "workers", "bookings", "time_log", "insurance_policies", "saved_searches",
    "disputes", "incident_reports", "pending_payments",
)  # fmt: skip

#: Who asks where a body does not say: the beginning of a path, and a user. 1 is the borrower's admin, 3 the lender's.
ACTS = {
    "/companies/1/card": 1, "/companies/2/account": 3, "/companies/": 7, "/companies": 7, "/users": 7, "/operators": 7,
    "/workers": 3, "/incidents": 7, "/disputes/1/propose": 1, "/disputes": 7, "/shifts/1/draft": 6,
    "/transfers": 7, "/refunds": 7, "/bookings/1/divide": 7, "/bookings/999/divide": 7,
    "/shifts/1/submit": 6, "/shifts/2/submit": 6, "/shifts": 5,
}  # fmt: skip
#: path, body, status, field. Company 1 borrows and 2 lends; booking 1 has shift 1, where somebody works, and shift 2.
WRONG: list[tuple[str, Any, int, str | None]] = [
    ("/users/7/language", {"language": "tlh"}, 409, "language"),
    ("/operators", {"name": ""}, 409, "name"),
    ("/companies", "", 400, "kind"),
    ("/companies", "hello", 400, "body"),
    ("/companies", b"\xff\xfe{}", 400, "body"),
    ("/companies", DEEP, 400, "body"),
    ("/companies", [], 400, "body"),
    ("/companies", "null", 400, "body"),
    ("/companies", {"kind": "Bank", "name": "x"}, 400, "kind"),
    ("/companies", {"kind": "Lender"}, 400, "name"),
    ("/companies", {"kind": "Lender", "name": 5}, 400, "name"),
    ("/companies", {"kind": "Lender", "name": " "}, 409, "name"),
    ("/companies", {"kind": "Lender", "name": "a\0b"}, 400, "name"),
    ("/companies", {"kind": "Lender", "name": "x", "nme": 1}, 400, "nme"),
    ("/companies", {"kind": "Lender", "name": "x", "by": 1.5}, 400, "by"),
    ("/companies", {"kind": "Lender", "name": "x", "by": HUGE}, 400, "by"),
    ("/companies/999/card", {"customer": "c", "payment_method": "p"}, 404, "company_id"),
    ("/companies/2/card", {"customer": "c", "payment_method": "p", "by": 3}, 403, "by"),
    ("/companies/1/card", {"customer": "c"}, 400, "payment_method"),
    ("/companies/1/account", {"account": "acct_1", "by": 1}, 403, "by"),
    ("/companies/2/account", {"account": " "}, 409, "account"),
    ("/users", USER | {"company_id": 999}, 404, "company_id"),
    ("/users", USER | {"role": "Boss"}, 400, "role"),
    ("/users", USER | {"timezone": "../etc/passwd"}, 409, "timezone"),
    ("/users", USER | {"email": "nowhere"}, 409, "email"),
    ("/users", USER | {"phone": "12"}, 409, "phone"),
    ("/users", USER | {"quiet_hours_start": "25:00"}, 400, "quiet_hours_start"),
    ("/users", USER | {"quiet_hours_start": "22:00:00+02:00"}, 400, "quiet_hours_start"),
    ("/users", USER | {"alert_channels": ["pigeon"]}, 400, "alert_channels"),
    ("/users/999/principal", {"principal": "user:ada"}, 404, "user_id"),
    ("/users/1/principal", {"principal": "user: ", "by": 7}, 409, "principal"),
    ("/users/1/principal", {"principal": "user:ada", "by": 1}, 403, "by"),
    ("/projects", {"company_id": 1, "name": "x", "timezone": "Mars/Base"}, 409, "timezone"),
    ("/projects", {"company_id": HUGE, "name": "x", "timezone": "UTC"}, 400, "company_id"),
    ("/workers", {"company_id": 2, "user_id": 1, "trade": "x", "zip_code": "1"}, 409, "user_id"),
    ("/workers", {"company_id": 2, "user_id": 999, "trade": "x", "zip_code": "1"}, 409, "user_id"),
    ("/workers/999/list", {}, 404, "worker_id"),
    ("/workers/999/unlist", {}, 404, "worker_id"),
    ("/searches", {"user_id": 999, "criteria": {}}, 404, "user_id"),
    ("/users/999/opt-out", {"kind": "digest"}, 404, "user_id"),
    ("/users/1/opt-out", {"kind": "insurance_stop"}, 400, "kind"),
    ("/users/1/opt-out", {"kind": "digest", "by": 7}, 403, "by"),
    ("/users/1/opt-in", {}, 400, "kind"),
    ("/users/1/opt-in", {"kind": "digest", "by": 3}, 404, "user_id"),
    ("/searches", {"user_id": 1, "criteria": []}, 400, "criteria"),
    ("/searches", {"user_id": 1, "criteria": {"trade": "a\0"}}, 409, None),
    ("/policies", {"company_id": 1, "expiration_date": "2026-13-01"}, 400, "expiration_date"),
    ("/policies", {"company_id": 1, "expiration_date": "9999-12-31"}, 400, "expiration_date"),
    ("/policies/1/renew", {"expiration_date": "2000-01-01"}, 409, "expiration_date"),
    ("/policies/999/renew", {"expiration_date": "2030-01-01"}, 404, "policy_id"),
    ("/policies/999/deactivate", {}, 404, "policy_id"),
    ("/bookings", BOOKING | {"project_id": 999}, 404, "project_id"),
    ("/bookings", BOOKING | {"worker_id": 999}, 404, "worker_id"),
    ("/bookings", BOOKING | {"supervisor_id": 999}, 409, "supervisor_id"),
    ("/bookings", BOOKING | {"rate_minor": -5}, 409, "rate_minor"),
    ("/bookings", BOOKING | {"rate_minor": 9 * 10**18}, 409, "rate_minor"),
    ("/bookings", BOOKING | {"rate_minor": HUGE}, 400, "rate_minor"),
    ("/bookings", BOOKING | {"weekdays": [9]}, 409, "weekdays"),
    ("/bookings", BOOKING | {"start": "8"}, 400, "start"),
    ("/bookings", BOOKING | {"currency": "dollars"}, 409, "currency"),
    ("/bookings", BOOKING | {"start_date": "2020-01-01"}, 409, "start_date"),
    ("/bookings/999/pay", {"by": 1}, 404, "booking_id"),
    ("/bookings/1/pay", "{}", 400, "by"),
    ("/bookings/1/pay-arrears", {"by": 1}, 409, "booking"),
    (f"/bookings/{HUGE}/end", {"end": "16:00"}, 404, "booking_id"),
    ("/bookings/1/end", {}, 400, "end"),
    ("/bookings/1/cancel", {"by": 5}, 403, "by"),
    ("/bookings/1/incidents", {"option": "C", "by": 1}, 400, "option"),
    ("/bookings/1/incidents", {"option": "A", "by": 999}, 404, "booking_id"),
    ("/incidents/999/resolve", {}, 404, "incident_id"),
    ("/shifts/2/end", {"end": "2026-06-04T10:00:00Z"}, 409, "end"),
    ("/shifts/999/clock-in", {}, 404, "time_log_id"),
    ("/shifts/1/clock-in", {"by": "six"}, 400, "by"),
    ("/shifts/1/draft", {"end": "2026-06-03T10:00:00"}, 400, "end"),
    ("/shifts/1/submit", {"end": "2026-06-03T10:00:00"}, 400, "end"),
    ("/shifts/1/submit", {"end": "2031-06-03T10:00:00Z"}, 409, "end"),
    ("/shifts/2/submit", {}, 409, "status"),
    ("/shifts/2/force-clock-out", {}, 409, "status"),
    ("/shifts/1/edit", {"end": "2026-06-03T10:00:00Z", "by": None}, 400, "by"),
    ("/shifts/1/edit", {"end": "2026-06-03T10:00:00Z", "by": 5}, 409, "status"),
    ("/shifts/2/verify", {"by": 5}, 409, "status"),
    ("/shifts/2/confirm-extra-time", {"by": 5}, 409, "status"),
    ("/shifts/1/was-worked", {"start": "2026-06-03T10:00:00Z", "end": "2026-06-03T11:00:00Z"}, 409, "status"),
    ("/shifts/1/cancel", {"by": 1}, 409, "status"),
    ("/shifts/2/cancel", {"by": 5}, 403, "by"),
    ("/shifts/2/dispute", {"option": "A", "by": 5}, 409, "time_log_id"),
    ("/transfers/999/reverse", {"to": "held", "reason": "x"}, 404, "transfer_id"),
    ("/transfers/1/reverse", {"to": "me", "reason": "x"}, 400, "to"),
    ("/refunds/999/repeat", {}, 404, "refund_id"),
    ("/bookings/999/divide", {"lender_minor": 1, "borrower_minor": 1, "reason": "x"}, 404, "booking_id"),
    ("/bookings/1/divide", {"lender_minor": 1, "borrower_minor": 1, "reason": "x"}, 409, "booking_id"),
    ("/disputes/999/propose", {"lender_minor": 1, "borrower_minor": 1}, 404, "dispute_id"),
    ("/disputes/999/resolve", {"status": "Settled"}, 404, "dispute_id"),
    ("/disputes/1/resolve", {"status": "Forgotten"}, 400, "status"),
]


@pytest.fixture
def url(town: Town, mainspring_app: ms.App) -> Iterator[str]:
    """A booking with a shift in which somebody works, another that is to come, and a server; no worker."""
    booking = town.booking(shifts=[date(2026, 6, 3), date(2026, 6, 4)])
    town.mainspring.clock.set(W10)
    town.conn.execute("update staffing.time_log set status = 'Working' where id = %s", [booking.shifts[0]])
    with served(mainspring_app, tokens=TOKENS) as address:
        yield address


def test_what_is_wrong_is_named_and_nothing_is_written(url: str, town: Town) -> None:
    def counted() -> list[Any]:
        counts = [town.value(f"select count(*) from staffing.{table}") for table in TABLES]
        return counts + [town.value(f"select count(*) from mainspring.{table}") for table in ("jobs", "audit")]

    assert town.operator == 7
    before = counted()
    for path, body, status, field in WRONG:
        if isinstance(body, dict):
            body = {"by": next((by for start, by in ACTS.items() if path.startswith(start)), 1)} | body
        code, said = ask(url, path, body)
        about = said["error"]
        assert (code, about["field"]) == (status, field), (path, body, said)
        assert about["message"].startswith(f"{field}: " if field else ""), about
    assert counted() == before


@pytest.mark.parametrize("path", [endpoint.path for endpoint in ENDPOINTS])
def test_every_endpoint_is_among_them(path: str) -> None:
    pattern = re.sub(r"\{\w+:int\}", r"\\d+", path)
    assert any(re.fullmatch(pattern, tried) for tried, *_ in WRONG)


def test_what_is_wrong_is_said_in_the_words_of_the_field(url: str) -> None:
    for path, body, words in (
        ("/companies", {"name": "x"}, "kind: is missing"),
        ("/companies", {"kind": "Bank", "name": "x"}, "kind: is not Borrower | Lender"),
        ("/companies", {"kind": "Lender", "name": 5}, "name: is not a text"),
        ("/companies", {"kind": "Lender", "name": "x", "b": 1}, "b: is unknown here, where there are kind, name, by"),
        (
            "/policies",
            {"company_id": 1, "expiration_date": "soon"},
            "expiration_date: is not a date such as 2026-06-03",
        ),
        ("/users", USER | {"alert_channels": [1]}, "alert_channels: is not a list: sms | email"),
    ):
        assert ask(url, path, body)[1]["error"]["message"] == words


def test_paths_methods_and_bodies_that_lead_nowhere_are_answered_as_such(url: str) -> None:
    for path, body, method, status in (
        ("/nowhere", None, "GET", 404),
        ("/bookings/abc", None, "GET", 404),
        ("/bookings/999", None, "GET", 404),
        (f"/bookings/{HUGE}", None, "GET", 404),
        ("/bookings?after=x", None, "GET", 400),
        ("/users", None, "GET", 405),
        ("/bookings", None, "DELETE", 405),
        ("/clock", {}, "POST", 405),
    ):
        assert ask(url, path, body, method=method)[0] == status, path


def test_every_event_is_described_and_a_good_request_acts(url: str, town: Town) -> None:
    code, endpoints = ask(url, "")
    assert (code, len(endpoints)) == (200, 3 + len(ENDPOINTS))
    (book,) = [one for one in endpoints if one["path"] == "/staffing/bookings" and one["method"] == "POST"]
    assert book["body"]["start"] == "a time such as 08:30"
    assert book["body"]["weekdays"] == "a list: a number, optional"
    assert book["body"]["supervisor_id"] == "a number | null"
    code, said = ask(url, "/bookings", BOOKING | {"by": 1})
    assert (code, town.rows("select count(*) from staffing.time_log where booking_id = %s", said["id"])) == (
        200,
        [(5,)],
    )
    assert ask(url, "/bookings?after=1")[1][0]["id"] == said["id"]
    assert ask(url, "/clock")[1]["America/New_York"] == "2026-06-03T10:00:00-04:00"
    assert town.audit("booking_confirmed") == [("1", "booking", said["id"], None, None)]


def test_the_token_is_asked_for_before_anything_else(url: str) -> None:
    for path, body in (("", None), ("/bookings/1", None), ("/companies", "nonsense"), ("/users", b"x" * 100)):
        for said in ("Bearer", "Bearer x", f"Basic {TOKEN}", f"Bearer {TOKEN[:-1]}"):
            assert ask(url, path, body, Authorization=said)[0] == 401
    assert ask(url, "", Authorization=f"Bearer {TOKEN}")[0] == 200
    assert ask(url, "/companies", {}, Authorization=f"Bearer {TOKEN}")[1]["error"]["field"] == "kind"


@pytest.mark.parametrize("token", ["", "fifteen letters"])
def test_a_token_of_a_program_that_can_be_guessed_stops_the_start(
    town: Town, mainspring_app: ms.App, token: str
) -> None:
    with pytest.raises(ConfigurationError, match=r"^STAFFING_TOKEN: must have at least 16 characters"):
        Server(mainspring_app, port=0, secret=SECRET, tokens={"STAFFING_TOKEN": token})


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_a_body_that_a_form_can_send_changes_no_account(url: str, town: Town, kind: str) -> None:
    said = {"Authorization": f"Bearer {TOKEN}", "Content-Type": kind}
    code, answer = ask(url, "/companies/2/account", {"account": "acct_evil"}, **said)

    assert (code, answer["code"]) == (415, "UNSUPPORTED_MEDIA_TYPE")
    assert "acct_evil" not in str(town.rows("select * from staffing.companies"))


def test_a_database_that_is_away_is_said_so(url: str, town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(town.desk.app, "_dsn", "postgresql://127.0.0.1:1/nowhere")
    monkeypatch.setattr("mainspring_apps.frame.desk.REQUEST_WAIT_S", 0.2)
    town.desk.close()
    assert ask(url, "/bookings") == (
        503,
        {"error": {"code": "UNAVAILABLE", "field": None, "message": "the database is away; nothing was written"}},
    )
