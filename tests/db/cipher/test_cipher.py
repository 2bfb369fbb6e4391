"""The envelope by itself: what was changed or moved is refused, whatever was changed."""

from __future__ import annotations

import base64
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mainspring.cipher import SEALED, Cipher, OrgKeys, SealedPlace, key_of, seal_job
from mainspring.errors import ConfigurationError, Erased, Unreadable
from mainspring.job import NewJob
from mainspring.uuid7 import uuid7

KEY = b"k" * 32
PLACE = SealedPlace("acme", "greet", "7", "7")


def keys(org: str = "acme", *secrets: bytes) -> OrgKeys:
    found = {f"key-{n}": secret for n, secret in enumerate(secrets or (KEY,))}
    return OrgKeys(org, found, list(found)[-1])


def opened(ring: OrgKeys, text: str, place: SealedPlace = PLACE, what: str = "payload") -> str | None:
    try:
        return ring.open(place, what, text)
    except Unreadable:
        return None


def test_what_is_sealed_opens_again_and_is_never_the_same_twice() -> None:
    ring = keys()
    first, second = (ring.seal(PLACE, "payload", '{"name":"Ada"}') for _ in range(2))

    assert first != second
    assert "Ada" not in first
    assert [ring.open(PLACE, "payload", text) for text in (first, second)] == ['{"name":"Ada"}'] * 2


def test_no_ciphertext_is_accepted_with_any_byte_flipped() -> None:
    """Every byte of nonce, ciphertext and tag of 1,000 envelopes, each with a bit flipped: none may open."""
    ring, chance = keys(), random.Random(7)
    tried = accepted = 0
    for n in range(1000):
        text = ring.seal(PLACE, "payload", f'{{"n":{n}}}')
        envelope = msgspec.json.decode(text)["$mainspring"]
        for field in ("nonce", "data"):
            raw = base64.b64decode(envelope[field])
            for place in range(len(raw)):
                flipped = bytearray(raw)
                flipped[place] ^= 1 << chance.randrange(8)
                changed = envelope | {field: base64.b64encode(bytes(flipped)).decode()}
                tried += 1
                accepted += opened(ring, msgspec.json.encode({"$mainspring": changed}).decode()) is not None

    assert tried > 30_000
    assert accepted == 0


def test_no_envelope_is_accepted_with_a_letter_changed() -> None:
    """Every letter of the text, each changed to several others: nothing but the very text opens."""
    ring, chance = keys(), random.Random(7)
    text = ring.seal(PLACE, "payload", '{"n":1}', bound="key", fingerprint="ab" * 32)
    letters = [chr(code) for code in range(33, 127)]
    accepted = [
        (place, letter, other)
        for place, letter in enumerate(text)
        for other in chance.sample(letters, 12)
        if other != letter and opened(ring, text[:place] + other + text[place + 1 :]) is not None
    ]

    assert accepted == []
    assert opened(ring, text) == '{"n":1}'


@pytest.mark.parametrize(
    ("place", "what"),
    [
        (PLACE._replace(org="other"), "payload"),
        (PLACE._replace(task="other"), "payload"),
        (PLACE._replace(id="8"), "payload"),
        (PLACE, "result"),
    ],
    ids=["organisation", "task", "job", "what"],
)
def test_a_ciphertext_that_was_moved_is_refused(place: SealedPlace, what: str) -> None:
    text = keys().seal(PLACE, "payload", "{}")

    with pytest.raises(Unreadable, match="was changed, or belongs to another job or organisation"):
        keys(place.org).open(place, what, text)


def test_another_organisation_s_key_does_not_open_it() -> None:
    text = keys("acme", b"a" * 32).seal(PLACE, "payload", "{}")

    assert opened(keys("acme", b"b" * 32), text) is None


def test_a_key_that_is_gone_is_said_to_be_erased() -> None:
    text = keys().seal(PLACE, "payload", "{}")

    with pytest.raises(Erased, match="organisation acme was erased"):
        OrgKeys("acme", {}, None).open(PLACE, "payload", text)


def test_a_rotated_key_still_opens_and_gives_the_same_fingerprint() -> None:
    old, new = keys("acme", KEY), keys("acme", KEY, b"n" * 32)
    text = old.seal(PLACE, "payload", "{}")

    assert new.open(PLACE, "payload", text) == "{}"
    assert key_of(new.seal(PLACE, "payload", "{}")) == "key-1"
    assert old.fingerprint("greet", b'{"a":1,"b":2}') == new.fingerprint("greet", b'{"b":2,"a":1}')
    assert new.fingerprint("greet", b"{}") != new.fingerprint("other", b"{}")


@pytest.mark.parametrize("text", ['{"$mainspring": 7}', '{"$mainspring":{"v":2}}', '{"$mainspring":', SEALED + "{}}"])
def test_what_is_no_envelope_is_refused(text: str) -> None:
    with pytest.raises(Unreadable, match="is no envelope"):
        keys().open(PLACE, "payload", text)


def test_a_payload_that_may_be_handed_to_an_older_job_of_its_key_is_bound_to_the_key() -> None:
    ring = keys()
    job = NewJob(task="greet", payload=msgspec.Raw(b"{}"), id=uuid7(), org_id="acme", key="k", mode="reset_failed")
    text = bytes(seal_job(job, ring).payload).decode()

    assert opened(ring, text, SealedPlace("acme", "greet", "an older job", "k")) == "{}"
    assert opened(ring, text, SealedPlace("acme", "greet", str(job.id), "another key")) is None


# -- the master key ---------------------------------------------------------------------------------------------------


def test_a_key_is_wrapped_for_its_organisation_and_no_other() -> None:
    cipher = Cipher(Cipher.new_master_key())
    wrapped = cipher.new_key("acme", "1")

    assert len(cipher.unwrap("acme", "1", wrapped)) == 32
    for org, key_id in (("other", "1"), ("acme", "2")):
        with pytest.raises(ConfigurationError, match="does not open the keys"):
            cipher.unwrap(org, key_id, wrapped)


def test_an_older_master_key_still_unwraps() -> None:
    old, new = Cipher.new_master_key(), Cipher.new_master_key()
    wrapped = Cipher(old).new_key("acme", "1")

    assert Cipher(new, old).unwrap("acme", "1", wrapped) == Cipher(old).unwrap("acme", "1", wrapped)
    with pytest.raises(ConfigurationError):
        Cipher(new).unwrap("acme", "1", wrapped)


def test_a_key_service_wraps_in_place_of_a_master_key() -> None:
    class Service:
        def wrap(self, key: bytes, about: bytes) -> bytes:
            return about + key

        def unwrap(self, wrapped: bytes, about: bytes) -> bytes:
            return wrapped.removeprefix(about)

    cipher = Cipher(Service())

    assert len(cipher.unwrap("acme", "1", cipher.new_key("acme", "1"))) == 32


def test_the_master_key_comes_from_the_environment_or_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    key = Cipher.new_master_key()
    wrapped = Cipher(key).new_key("acme", "1")
    monkeypatch.setenv("MAINSPRING_MASTER_KEY", key)
    assert Cipher().unwrap("acme", "1", wrapped)
    monkeypatch.delenv("MAINSPRING_MASTER_KEY")
    (tmp_path / "key").write_text(f"{key}\n")
    monkeypatch.setenv("MAINSPRING_MASTER_KEY_FILE", str(tmp_path / "key"))
    assert Cipher().unwrap("acme", "1", wrapped)


@pytest.mark.parametrize("key", ["", "hunter2hunter2", b"short", "A" * 43 + "!!", base64.b64encode(b"x" * 33).decode()])
def test_a_master_key_that_is_none_is_refused_without_being_shown(key: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Cipher(key)

    assert "master key: is not 32 bytes in base64" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_without_a_master_key_it_says_where_to_put_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="MAINSPRING_MASTER_KEY"):
        Cipher()
    monkeypatch.setenv("MAINSPRING_MASTER_KEY_FILE", "/nowhere")
    with pytest.raises(ConfigurationError, match="MAINSPRING_MASTER_KEY_FILE: No such file"):
        Cipher()


def test_a_cipher_does_not_show_its_key() -> None:
    key = Cipher.new_master_key()

    assert key not in repr(Cipher(key)) + str(vars(Cipher(key))) + repr(vars(Cipher(key).master))
