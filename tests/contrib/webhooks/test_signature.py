"""What we sign others accept, and what others sign we accept; nothing that is changed passes."""

from __future__ import annotations

import base64
import hashlib
import hmac
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError
from tests.contrib.webhooks.table_signatures import ACCEPTED, BODY, NOW, OTHER, REFUSED, SECRET, VECTORS, Case

from mainspring.contrib.standard_webhooks import new_id, new_secret, plain, standard, verify, verify_plain
from mainspring.errors import ConfigurationError, SignatureRefused


@pytest.mark.parametrize(("secret", "id", "seconds", "body", "signature"), VECTORS)
def test_the_published_vectors_are_signed_and_accepted(
    secret: str, id: str, seconds: int, body: bytes, signature: str
) -> None:
    at = datetime.fromtimestamp(seconds, UTC)
    expected = {"webhook-id": id, "webhook-timestamp": str(seconds), "webhook-signature": signature}

    assert standard([secret], id, at, body) == expected
    assert verify(expected, body, [secret], now=at).id == id


@pytest.mark.parametrize("case", ACCEPTED.values(), ids=ACCEPTED)
def test_a_good_message_is_accepted(case: Case) -> None:
    sent_at = datetime.fromtimestamp(case.seconds, UTC)
    headers = case.change(standard([SECRET], "msg_1", sent_at, BODY))

    message = verify(headers, case.body, [case.secret], now=NOW)

    assert (message.id, message.sent_at, message.body) == ("msg_1", sent_at, BODY)


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_a_changed_message_is_refused(case: Case) -> None:
    headers = case.change(standard([SECRET], "msg_1", datetime.fromtimestamp(case.seconds, UTC), BODY))

    with pytest.raises(SignatureRefused) as refused:
        verify(headers, case.body, [case.secret], now=NOW)
    assert len(str(refused.value)) < 100
    assert SECRET[6:] not in str(refused.value)


def test_url_safe_base64_is_refused() -> None:
    """Tried until a signature has a sign that is written differently there."""
    for n in range(100):
        headers = standard([SECRET], f"msg_{n}", NOW, BODY)
        if {"+", "/"} & set(headers["webhook-signature"]):
            headers["webhook-signature"] = headers["webhook-signature"].replace("+", "-").replace("/", "_")
            with pytest.raises(SignatureRefused):
                verify(headers, BODY, [SECRET], now=NOW)


def test_a_message_cannot_be_read_as_another_by_moving_its_dots() -> None:
    seconds = int(NOW.timestamp())
    headers = standard([SECRET], "msg_1", NOW, f"{seconds}.{{}}".encode())
    headers["webhook-id"] = f"msg_1.{seconds}"  # the same bytes are signed, of a message with the body {}

    with pytest.raises(SignatureRefused):
        verify(headers, b"{}", [SECRET], now=NOW)


def test_age_counts_fractions_of_a_second() -> None:
    headers = standard([SECRET], "msg_1", NOW, BODY)

    verify(headers, BODY, [SECRET], now=NOW + timedelta(seconds=300))
    with pytest.raises(SignatureRefused, match="too old"):
        verify(headers, BODY, [SECRET], now=NOW + timedelta(seconds=300, microseconds=1))
    with pytest.raises(SignatureRefused, match="future"):
        verify(headers, BODY, [SECRET], now=NOW - timedelta(seconds=300, microseconds=1))


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_library_that_knows_our_scheme_agrees_that_each_header_is_needed(name: str) -> None:
    headers = standard([SECRET], "msg_1", datetime.now(UTC), BODY)
    del headers[name]

    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(BODY, headers, json_parse=False)


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(codec="utf-8")), st.integers(0, 2))
def test_the_standard_library_of_the_scheme_accepts_what_we_sign_while_a_secret_rotates(text: str, spare: int) -> None:
    new, old = new_secret(), new_secret()
    secrets = [new, old, *(new_secret() for _ in range(spare))]
    body, now = text.encode(), datetime.now(UTC)
    headers = standard(secrets, new_id(), now, body)

    for secret in secrets:
        Webhook(secret).verify(body, headers, json_parse=False)
        assert verify(headers, body, [secret], now=now).body == body
    with pytest.raises(WebhookVerificationError):
        Webhook(new_secret()).verify(body, headers, json_parse=False)


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(codec="utf-8")))
def test_we_accept_what_the_standard_library_of_the_scheme_signs_while_a_secret_rotates(text: str) -> None:
    new, old = new_secret(), new_secret()
    signatures = [Webhook(secret).sign("msg_1", NOW, text) for secret in (old, new)]
    headers = {
        "Webhook-Id": "msg_1",
        "Webhook-Timestamp": str(int(NOW.timestamp())),
        "Webhook-Signature": " ".join(signatures),
    }

    for secrets in ([new], [old], [new, old], [new_secret(), old]):
        assert verify(headers, text.encode(), secrets, now=NOW).id == "msg_1"
    with pytest.raises(SignatureRefused):
        verify({**headers, "Webhook-Signature": signatures[0]}, text.encode(), [new], now=NOW)


def test_an_old_secret_no_longer_passes_once_it_is_not_signed_with_or_not_trusted() -> None:
    new, old = new_secret(), new_secret()

    with pytest.raises(SignatureRefused):  # the sender's overlap is over
        verify(standard([new], "msg_1", NOW, BODY), BODY, [old], now=NOW)
    with pytest.raises(SignatureRefused):  # the receiver's is
        verify(standard([old], "msg_1", NOW, BODY), BODY, [new], now=NOW)


def test_no_secret_at_all_accepts_nothing() -> None:
    with pytest.raises(SignatureRefused):
        verify(standard([SECRET], "msg_1", NOW, BODY), BODY, [], now=NOW)
    with pytest.raises(SignatureRefused):
        verify_plain(plain(SECRET, BODY), BODY, [])


@pytest.mark.rule("PASS-7.02")
def test_the_plain_signature_is_checked_in_the_manner_of_the_ledger() -> None:
    header = plain(SECRET, BODY)

    digest = hmac.new(SECRET.encode("utf-8"), BODY, hashlib.sha256).hexdigest()
    assert header == f"sha256={digest}"
    assert header == header.lower()
    verify_plain(header, BODY, [OTHER, SECRET])
    with pytest.raises(SignatureRefused):
        verify_plain(header, BODY + b" ", [SECRET])


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "sha256=",
        plain(OTHER, BODY),
        plain(SECRET, BODY)[7:],
        plain(SECRET, BODY)[:-1],
        plain(SECRET, BODY).upper(),
        plain(SECRET, BODY) + " ",
        "sha1=" + plain(SECRET, BODY)[7:],
        "sha256=\u00e9",
        "sha256=\ud800",
    ],
)
def test_a_wrong_plain_signature_is_refused(header: str | None) -> None:
    with pytest.raises(SignatureRefused):
        verify_plain(header, BODY, [SECRET])


def test_a_fresh_secret_is_32_random_bytes_and_a_fresh_id_has_no_dot() -> None:
    secrets, ids = {new_secret() for _ in range(100)}, {new_id() for _ in range(100)}

    assert len(secrets) == len(ids) == 100
    assert all(len(base64.b64decode(secret.removeprefix("whsec_"), validate=True)) == 32 for secret in secrets)
    for id in ids:
        standard([SECRET], id, NOW, BODY)


@pytest.mark.parametrize("id", ["a.b", "", "a b", "a\n", "\u00e9", "a" * 129, "."])
def test_an_id_with_a_dot_or_another_odd_sign_is_not_minted(id: str) -> None:
    with pytest.raises(ValueError, match=r"^id: "):
        standard([SECRET], id, NOW, BODY)


def test_an_instant_without_zone_and_no_secrets_are_not_signed_with() -> None:
    with pytest.raises(ValueError, match=r"^timestamp: "):
        standard([SECRET], "msg_1", NOW.replace(tzinfo=None), BODY)
    with pytest.raises(ValueError, match=r"^secrets: "):
        standard([], "msg_1", NOW, BODY)
    with pytest.raises(ValueError, match=r"^secrets: "):
        standard([SECRET] * 11, "msg_1", NOW, BODY)


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "whsec_",
        "whsec_short",
        "secret of mine",
        "whsec_" + "A" * 28,
        "whsec_" + base64.b64encode(bytes(65)).decode(),
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS!",
        "whsk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whsec_\u00e9" + "A" * 31,
    ],
)
def test_a_secret_of_another_form_is_named_and_not_repeated(secret: str) -> None:
    for call in (
        lambda: standard([secret], "msg_1", NOW, BODY),
        lambda: verify(standard([SECRET], "msg_1", NOW, BODY), BODY, [secret], now=NOW),
    ):
        with pytest.raises(ConfigurationError, match=r"^secret: ") as refused:
            call()
        assert len(secret) < 8 or secret not in str(refused.value)
