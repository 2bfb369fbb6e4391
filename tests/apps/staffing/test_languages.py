"""Two people read of one fact in two languages, with dates, money and times as each language writes them."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta

import pytest
from tests.apps.staffing.test_insurance import run
from tests.apps.staffing.town import T00, W10, Town

from mainspring_apps.staffing import bookings, insurance
from mainspring_apps.staffing.languages import SPOKEN, moment
from mainspring_apps.staffing.settings import Settings
from mainspring_apps.staffing.states import Refused
from mainspring_apps.staffing.texts import templates, texts

NBSP = "\N{NO-BREAK SPACE}"
LEAP_DAY = date(2028, 2, 29)


@pytest.mark.rule("STAFF-20.23")
@pytest.mark.parametrize("language", SPOKEN.known[1:])
def test_every_text_is_in_every_language_with_the_same_placeholders(language: str) -> None:
    assert {"en", "de"} <= {*SPOKEN.known}
    assert SPOKEN.missing(language, texts()) == [], "run `make texts`, and translate what is empty"
    for one in templates(Settings()):
        said = one.languages[language]
        assert said.text != one.text
        for english, other in ((one.title, said.title), (one.text, said.text)):
            held = [sorted(re.findall(r"\[.+?\]|{{.+?}}|{%.+?%}", text)) for text in (english, other)]
            assert held[0] == held[1]
            assert not re.search(r"(?<!{){\w", english + other)  # all numbers of the settings are in it


@pytest.mark.rule("STAFF-20.23")
@pytest.mark.parametrize(
    ("name", "value", "english", "german"),
    [
        ("Date", "2028-02-29", "2028-02-29", "29. Februar 2028"),
        ("Amount", "1234.50 EUR", "€1,234.50", f"1.234,50{NBSP}€"),
        ("Amount", "1234 JPY", "¥1,234", f"1.234{NBSP}¥"),
        ("Amount", "1.250 KWD", "KWD1.250", f"1,250{NBSP}KWD"),
        ("Cutoff", moment(T00, "America/New_York"), "2026-06-04 00:00 (America/New_York)",
         "4. Juni 2026, 00:00 (America/New_York)"),
        ("Cutoff", moment(T00, "Asia/Kathmandu"), "2026-06-04 09:45 (Asia/Kathmandu)",
         "4. Juni 2026, 09:45 (Asia/Kathmandu)"),
        ("Search", "2028-02-29", "2028-02-29", "2028-02-29"),  # a name that somebody has given
        ("Amount", "much", "much", "much"),
    ],
)  # fmt: skip
def test_money_and_times_are_written_as_a_language_writes_them(
    name: str, value: str, english: str, german: str
) -> None:
    assert [SPOKEN.say({name: value}, language)[name] for language in ("", "de")] == [english, german]


@pytest.mark.rule("STAFF-20.23", "STAFF-14.10")
def test_two_people_read_of_the_same_instant_in_two_languages(town: Town) -> None:
    booking = town.booking(shifts=1, card="pm_card_chargeDeclinedInsufficientFunds")
    ada, dora = booking.borrowing_admin, town.user(booking.borrower, "Admin")
    with town.conn.transaction():
        bookings.choose_language(town.desk, town.conn, dora, language="de", by=dora)

    town.mainspring.clock.set(W10 - timedelta(seconds=1))
    town.mainspring.drain()
    town.mainspring.advance(to=W10 + timedelta(minutes=1))

    log = town.rows(
        "select recipient_id, channel, title, message, bucket, due_at from staffing.notification_log"
        " where kind = 'action_required'"
    )
    said = {who: (title, text) for who, _, title, text, *_ in log}
    assert {(who, channel) for who, channel, *_ in log} == {(who, by) for who in (ada, dora) for by in ("sms", "email")}
    assert len({row[4:] for row in log}) == 1  # one event
    assert said[ada] == (
        "Action Required",
        f"Action Required: the weekly payment of $240.00 for booking {booking.id} failed. Please pay manually before"
        " 2026-06-04 00:00 (America/New_York), with another payment method if necessary.",
    )
    assert said[dora] == (
        "Aktion erforderlich",
        f"Aktion erforderlich: Die wöchentliche Zahlung von 240,00{NBSP}$ für Buchung {booking.id} ist fehlgeschlagen."
        " Bitte zahlen Sie bis zum 4. Juni 2026, 00:00 (America/New_York) selbst, bei Bedarf mit einem anderen"
        " Zahlungsmittel.",
    )
    mails = [entry.body["subject"] for entry in town.sandbox.ledger.find("mail")]
    assert sorted(mails) == ["Action Required", "Aktion erforderlich"]

    town.mainspring.advance(to=T00 + timedelta(minutes=1))
    assert {text for text in town.texts("worker_released") if text} == {  # an SMS waits for the morning
        f"Booking {booking.id} ended due to non-payment. Worker released effective 2026-06-07.",
        f"Buchung {booking.id} ist beendet, weil nicht gezahlt wurde. Die Arbeitskraft wird mit Wirkung zum"
        " 7. Juni 2026 freigegeben.",
    }


@pytest.mark.rule("STAFF-20.23")
def test_a_language_is_one_that_we_speak_and_ones_own(town: Town) -> None:
    company = town.company("Borrower")
    admin, other = town.user(company, "Admin"), town.user(company, "Admin")
    assert town.row("users", admin)["language"] == "en"
    about = {"company_id": company, "role": "Manager", "name": "Dora", "by": admin}
    added = bookings.add_user(town.desk, town.conn, **about, language="de")  # type: ignore[arg-type]  # of any type
    assert town.row("users", added)["language"] == "de"

    with pytest.raises(Refused, match=r"^language: fr is not one of en, de$"):
        bookings.add_user(town.desk, town.conn, **about, language="fr")  # type: ignore[arg-type]  # of any type
    with pytest.raises(Refused, match=r"^language: DE is not one of en, de$"):
        bookings.choose_language(town.desk, town.conn, admin, language="DE", by=admin)
    with pytest.raises(Refused, match=f"^user_id: there is no user {admin}$"):
        bookings.choose_language(town.desk, town.conn, admin, language="de", by=other)
    assert town.row("users", admin)["language"] == "en"


@pytest.mark.rule("STAFF-20.24", "STAFF-20.23")
def test_the_insurance_texts_name_the_last_day_on_which_work_is_allowed(town: Town) -> None:
    town.mainspring.clock.set(datetime(2028, 2, 14, tzinfo=UTC))
    booking = town.booking(insured=False, shifts=[LEAP_DAY, LEAP_DAY + timedelta(days=1)], zone="UTC",
                           start_date=date(2028, 2, 1), end_date=date(2028, 12, 31), end=time(17))  # fmt: skip
    town.policy(booking.borrower, date(2029, 1, 1))
    policy = town.policy(booking.lender, LEAP_DAY)
    town.conn.execute("update staffing.users set language = 'de' where id = %s", [booking.lending_admin])

    for night in (date(2028, 2, 15), date(2028, 2, 22), date(2028, 3, 1)):
        run(town, night)

    kind, company = (town.row("insurance_policies", policy)["policy_type"],
                     town.row("companies", booking.lender)["name"])  # fmt: skip
    stop = "2028-03-01 00:00 (UTC)"  # when it comes, also where it is still the last day
    for name, title, until in (
        (
            "insurance_14",
            "Insurance expires in 14 days",
            f"It covers work until 2028-02-29, by the clocks of each project, but not beyond {stop}.",
        ),
        (
            "insurance_7",
            "Insurance expires in 7 days",
            f"work is allowed until 2028-02-29, by the clocks of each project, and must stop at {stop} at the latest.",
        ),
        ("insurance_expired", "Insurance expired", f"work was allowed until 2028-02-29, but not beyond {stop}."),
    ):
        said = town.rows("select title, message from staffing.notification_log where kind = %s", name)
        assert {one[0] for one in said if until in one[1]} == {title}
        assert all(f"The {kind} insurance of {company} " in one[1] for one in said if until in one[1])
        german = [one[1] for one in said if "29. Februar 2028" in one[1]]
        assert german
        assert len(german) + len([one for one in said if until in one[1]]) == len(said)
    assert [insurance.uncovered(town.conn, booking.id, LEAP_DAY + timedelta(days=n)) is None for n in (0, 1)] == [
        False, False,
    ]  # it is deactivated by now  # fmt: skip
