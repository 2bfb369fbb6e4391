"""Addresses: what is taken, and what is refused before any provider hears of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.contrib.notify.address import mail_address, one_line, phone_number, sender_address
from mainspring.contrib.notify.mail import mail
from mainspring.contrib.notify.sender import Outgoing, Undeliverable
from mainspring.errors import ConfigurationError
from mainspring.outcome import Permanent


@pytest.mark.parametrize(
    ("given", "wire"),
    [
        ("jo@example.com", "jo@example.com"),
        ("Jo.Doe+shop_7@Example.COM", "Jo.Doe+shop_7@example.com"),
        ("o'neill@example.co.uk", "o'neill@example.co.uk"),
        ("a@b.pt", "a@b.pt"),
        ("x!#$%&'*/=?^`{|}~-@example.com", "x!#$%&'*/=?^`{|}~-@example.com"),
        ("josé@example.com", "josé@example.com"),
        ("用户@例子.公司", "用户@xn--fsqu00a.xn--55qx5d"),
        ("jo@bücher.example", "jo@xn--bcher-kva.example"),
        ("jo@xn--bcher-kva.example", "jo@xn--bcher-kva.example"),
        ("1@1.example", "1@1.example"),
        (f"{'a' * 64}@example.com", f"{'a' * 64}@example.com"),
    ],
)
def test_mail_addresses_that_people_have_are_taken(given: str, wire: str) -> None:
    assert mail_address(given) == wire


@pytest.mark.rule("RENT-5.06")
@pytest.mark.parametrize(
    "given",
    [
        "", "a", "a@", "@example.com", "a@b", "a@localhost", "a b@example.com", "a@exa mple.com", " a@example.com",
        "a@example.com ", ".a@example.com", "a.@example.com", "a..b@example.com", "a@.example.com", "a@example..com",
        "a@example.com.", "a@-example.com", "a@example-.com", "a@example.123", "a@127.0.0.1", "a@[127.0.0.1]",
        "a@b@example.com", "Jo <a@example.com>", "<a@example.com>", '"a b"@example.com', "a@example.com,b@example.com",
        "a@example.com\n", "a\n@example.com", "a\r\nBcc: b@example.com", "a\0@example.com", "a\t@example.com",
        "a@exam\u200bple.com", "a\u202e@example.com", "a@\ud800.com", "\ud800@example.com",
        "jose\u0301@example.com", f"{'a' * 65}@example.com", f"a@{'b' * 64}.com", f"a@{'b.' * 130}com",
        f"{'ü' * 33}@example.com", "a@example,com", "a@ex_ample.com", "mailto:a@example.com ", "a@example.com;",
    ],
)  # fmt: skip
def test_mail_addresses_that_nobody_has_are_refused_without_being_repeated(given: str) -> None:
    with pytest.raises(Undeliverable) as refused:
        mail_address(given)

    assert (refused.value.code, refused.value.error_class) == ("EMAIL_ADDRESS_INVALID", "permanent")
    assert str(refused.value).startswith("to: is no mail address")
    assert len(given) < 3 or given not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "number"),
    [("+4930901820", "+4930901820"), ("+49 (30) 90-18/20", "+4930901820"), ("+351 912 345 678", "+351912345678")],
)
def test_telephone_numbers_are_taken_in_the_international_form(given: str, number: str) -> None:
    assert phone_number(given) == number


@pytest.mark.parametrize(
    "given",
    ["", "030901820", "0049301234567", "+0301234567", "+49", "+12345", "+1234567890123456", "+49x30901820",
     "+49301234567\n", "tel:+49301234567", "+4\uff1930901820", "+49301234567,+49301234568", "++49301234567"],
)  # fmt: skip
def test_telephone_numbers_that_are_none_are_refused(given: str) -> None:
    with pytest.raises(Undeliverable) as refused:
        phone_number(given)

    assert refused.value.code == "PHONE_NUMBER_INVALID"
    assert len(given) < 4 or given not in str(refused.value)


@pytest.mark.parametrize("text", ["a\rb", "a\nb", "a\0b", "a\x1bb", "a\u2028b", "a\x85b", "a\ud800b"])
def test_lines_of_a_header_have_no_breaks(text: str) -> None:
    with pytest.raises(Permanent, match=r"^title: "):
        one_line("title", text)


@pytest.mark.parametrize("text", ["", "Shop", "shop@", "Shop <shop>", "Shop\nX: 1 <a@b.de>", "a@b.de, c@d.de"])
def test_sender_that_is_none_is_a_mistake_of_the_settings(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^sender: "):
        sender_address(text)


@given(st.text(max_size=60), st.text(max_size=60))
def test_no_text_whatever_adds_a_header(to: str, title: str) -> None:
    message = Outgoing(channel="email", to=to, title=title, text="x", key="k")
    try:
        written = mail(message, "Shop", "shop@example.com")
    except Permanent:
        return

    names = [
        line.split(b":")[0] for line in written.content.split(b"\r\n\r\n")[0].split(b"\r\n") if line[:1] not in b" \t"
    ]
    assert sorted(names) == sorted(
        [b"From", b"To", b"Subject", b"Date", b"Message-ID", b"Auto-Submitted", b"Content-Type",
         b"Content-Transfer-Encoding", b"MIME-Version"]
    )  # fmt: skip
