"""Rules of rental that need no database: documents, days, tax numbers, tokens, settings and who may do what."""

from __future__ import annotations

import random
from base64 import urlsafe_b64encode
from datetime import UTC, date, datetime, timedelta
from typing import Any, get_args

import pytest
from tests.docs.pages import ROOT
from tools import app_events, app_settings

from mainspring.contrib.vendus import vat_of
from mainspring.errors import ConfigurationError
from mainspring_apps.frame.refusal import Refused
from mainspring_apps.frame.settings import from_env
from mainspring_apps.rental import states
from mainspring_apps.rental.desk import LinkSecrets
from mainspring_apps.rental.events import EVENTS
from mainspring_apps.rental.languages import SPOKEN
from mainspring_apps.rental.rules import customers, days, links
from mainspring_apps.rental.rules.parts import MAY, Part
from mainspring_apps.rental.settings import Settings
from mainspring_apps.rental.texts import texts
from mainspring_apps.rental.web import ENDPOINTS

AT = datetime(2026, 6, 1, 12, tzinfo=UTC)
LIFE = timedelta(hours=72)


@pytest.mark.rule("RENT-4.07", "RENT-4.05", "RENT-20.18")
def test_net_and_vat_make_the_price_again_to_the_cent() -> None:
    assert vat_of(12_300, 2300) == (10_000, 2_300)
    for gross in range(1, 100_001):
        net, vat = vat_of(gross, 2300)
        assert net + vat == gross
        assert abs(net * 123 - gross * 100) * 2 <= 123  # half up to the cent


@pytest.mark.rule("RENT-20.05")
def test_days_are_those_of_lisbon_whatever_the_clock_does() -> None:
    assert days.day_of(datetime(2026, 7, 31, 23, 30, tzinfo=UTC), "Europe/Lisbon") == date(2026, 8, 1)
    assert days.length(date(2026, 10, 25), date(2026, 10, 26)) == 1  # it has 25 hours
    assert days.starts(date(2026, 10, 26), "Europe/Lisbon") - days.starts(date(2026, 10, 25), "Europe/Lisbon") == (
        timedelta(days=1)
    )  # by the clocks of one zone


@pytest.mark.rule("RENT-20.19")
def test_a_portuguese_tax_number_has_its_check_digit_and_another_is_as_it_is() -> None:
    assert [customers.nif_holds(one) for one in ("123456789", "123456788", "12345678", "500000000", "501442600")] == [
        True, False, False, True, True,
    ]  # fmt: skip
    customers.check_tax_number("ES", "B-12345678")
    with pytest.raises(Refused, match=r"^tax_number: is not a NIF"):
        customers.check_tax_number("PT", "123456788")
    for total, number, name, address, why in (
        (100_000, None, "Jo", None, "billing_address"), (100_000, None, " ", "Rua 1", "customer_name"),
    ):  # fmt: skip
        with pytest.raises(Refused, match=rf"^{why}: is needed"):
            customers.check_named(total, 100_000, number, name, address)
    customers.check_named(99_999, 100_000, None, "", None)
    customers.check_named(100_000, 100_000, "123456789", "", None)


@pytest.mark.rule("RENT-7.05", "RENT-7.07")
def test_a_token_opens_one_document_for_72_hours() -> None:
    token = links.token("s", 42, AT, LIFE)

    assert links.wrong(["s"], token, 42, AT + timedelta(hours=71, minutes=59)) is None
    assert links.wrong(["s"], token, 42, AT + timedelta(hours=72, minutes=1)) == "expired"
    assert links.wrong(["s"], token, 43, AT) == "another"
    assert links.wrong(["s"], links.token("s", 42, AT, LIFE, purpose="login"), 42, AT) == "another"
    assert links.wrong(["new", "s"], token, 42, AT) is None  # the secret is being replaced
    assert links.wrong(["new"], token, 42, AT) == "forged"


@pytest.mark.rule("RENT-7.07")
@pytest.mark.parametrize("head", [b'{"alg":"none","typ":"JWT"}', b'{"alg":"HS512"}', b'{"alg":"RS256"}', b"{}", b"x"])
def test_another_algorithm_is_refused_even_where_the_signature_fits(head: bytes) -> None:
    body = links.token("s", 42, AT, LIFE).split(".")[1]
    said = f"{urlsafe_b64encode(head).decode().rstrip('=')}.{body}"
    signed = f"{said}.{links._signature('s', said)}"

    for token in (signed, f"{said}.", said, "", "a.b.c", "ä.ö.ü"):
        assert links.wrong(["s"], token, 42, AT) == "forged"


@pytest.mark.rule("RENT-7.07")
def test_no_changed_letter_of_a_token_is_taken() -> None:
    token = links.token("s", 42, AT, LIFE)
    place = random.randrange(len(token) - 1)  # the last letter holds bits that mean nothing
    letter = "A" if token[place] != "A" else "B"
    assert links.wrong(["s"], token[:place] + letter + token[place + 1 :], 42, AT) is not None


@pytest.mark.rule("RENT-8.01")
@pytest.mark.parametrize(
    ("text", "sent"), [("true", True), ("TRUE", False), (" true", False), ("1", False), ("on", False), ("", False)]
)
def test_mails_are_sent_only_where_the_setting_is_exactly_true(text: str, sent: bool) -> None:
    assert from_env(Settings(), {"SEND_EMAILS": text}).send_emails is sent


@pytest.mark.rule("RENT-6.01", "RENT-20.06")
def test_settings_are_read_by_their_names_and_what_makes_no_sense_is_refused() -> None:
    env = {"EMAIL_ADMIN_TO": "a@x.pt, b@x.pt,", "INVOICING_ENABLED": "off", "RENTAL_VAT_BPS": "600"}
    found = from_env(Settings(), env)
    assert (found.email_admin_to, found.invoicing_enabled, found.vat_bps) == (("a@x.pt", "b@x.pt"), False, 600)
    for name, value in (
        ("RENTAL_ZONE", "Lisbon"), ("RENTAL_HOLD_MINUTES", "29"), ("RENTAL_HOLD_MINUTES", "1441"),
        ("RENTAL_CURRENCY", "USD"), ("RENTAL_LOCALE", "xx"), ("RENTAL_HOLDMINUTES", "60"), ("RENTAL_VAT_BPS", "2200"),
    ):  # fmt: skip
        with pytest.raises(ConfigurationError, match=name):
            from_env(Settings(), {name: value})
    with pytest.raises(ConfigurationError, match=r"RENTAL_LINK_SECRET: is not set"):
        LinkSecrets.from_env({})
    with pytest.raises(ConfigurationError, match="RENTAL_LINK_SECRET_PREVIOUS: is shorter"):
        LinkSecrets.from_env({"RENTAL_LINK_SECRET": "x" * 32, "RENTAL_LINK_SECRET_PREVIOUS": "x"})


def test_every_text_is_in_every_language_and_an_unknown_one_is_portuguese() -> None:
    assert SPOKEN.known == ("en", "pt-PT")
    assert SPOKEN.missing("pt-PT", texts()) == [], "run `make texts`, and translate what is empty"
    said = [SPOKEN.say({"Total": "1234.50 EUR"}, language)["Total"] for language in ("pt-PT", "en")]
    assert said == ["1234,50\N{NO-BREAK SPACE}€", "€1,234.50"]


@pytest.mark.rule("RENT-20.03", "RENT-20.04")
def test_every_event_has_a_line_a_viewer_causes_none_and_every_act_of_people_has_a_reason() -> None:
    assert set(EVENTS.declared) == set(MAY)
    assert all("viewer" not in parts for parts in MAY.values())
    assert {part for parts in MAY.values() for part in parts} <= set(get_args(Part))
    served: dict[Any, Any] = {endpoint.event: endpoint for endpoint in ENDPOINTS}
    assert served.keys() == {act for name, act in EVENTS.declared.items() if name != "ask_for_link"}
    for endpoint in served.values():
        assert endpoint.role in ("operator", "admin")
        fields = endpoint.fields("somebody").__struct_fields__
        assert "by" not in fields
        assert ("reason" in fields) == (endpoint.event.__name__ not in ("add_machine", "book"))


@pytest.mark.rule("RENT-1.03")
def test_a_confirmed_booking_can_only_be_cancelled_and_an_ended_one_stays() -> None:
    assert {before: set(afters) for before, afters in states.TRANSITIONS["bookings"].items()} == {
        "PENDING": {"CONFIRMED", "CANCELLED", "EXPIRED"}, "CONFIRMED": {"CANCELLED"},
        "CANCELLED": set(), "EXPIRED": set(),
    }  # fmt: skip


@pytest.mark.rule("RENT-20.03")
def test_the_pages_are_those_of_the_code() -> None:
    for kind, page in (("events", app_events.page), ("settings", app_settings.page)):
        wanted = (ROOT / "docs" / "apps" / f"rental-{kind}.md").read_text()
        assert wanted == page("rental"), f"run `python -m tools.app_{kind} rental > docs/apps/rental-{kind}.md`"
