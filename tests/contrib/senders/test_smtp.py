"""Mail over SMTP."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd import smtp
from tests.contrib.senders.kit import SMTP, fault

from mainspring.contrib.notify.sender import Undeliverable
from mainspring.contrib.notify.smtp import Smtp
from mainspring.errors import ConfigurationError
from mainspring.outcome import Failure, Permanent
from mainspring_sandbox import Sandbox

pytestmark = pytest.mark.anyio


async def test_mail_has_text_and_html_and_says_who_when_and_which(sandbox: Sandbox) -> None:
    await SMTP.make(sandbox).send(SMTP.message(title="Grüße 🚜", text="Olá\n.\n.dot\n", html="<p>Olá &amp; bem</p>"))

    (entry,) = sandbox.ledger.find("mail")
    mail = entry.body
    assert (mail["subject"], mail["from"], mail["to"]) == (
        "Grüße 🚜", "Shöp & Söhne <shop@example.com>", ["jo@example.com"],
    )  # fmt: skip
    assert (mail["text"], mail["html"]) == ("Olá\n.\n.dot\n", "<p>Olá &amp; bem</p>\n")
    assert re.fullmatch(r"<[0-9a-f]{40}@example\.com>", mail["message_id"])
    assert {"date", "to", "mime-version", "auto-submitted"} <= mail["headers"].keys()


async def test_mail_without_html_is_plain(sandbox: Sandbox) -> None:
    await SMTP.make(sandbox).send(SMTP.message(html=None))

    (entry,) = sandbox.ledger.find("mail")
    assert entry.body["html"] is None
    assert entry.body["headers"]["content-type"].startswith("text/plain")


async def test_repeat_after_a_line_that_broke_has_the_same_message_id(sandbox: Sandbox) -> None:
    sender = SMTP.make(sandbox)
    fault(sandbox, "smtp", "drop", times=1)

    with pytest.raises(Failure) as lost:
        await sender.send(SMTP.message())
    await sender.send(SMTP.message())
    await sender.send(SMTP.message("another"))

    assert (lost.value.code, lost.value.error_class) == ("HttpException", "retryable")
    ids = [entry.body["message_id"] for entry in reversed(sandbox.ledger.find("mail"))]
    assert ids[0] == ids[1] != ids[2]


@pytest.mark.parametrize(
    ("provider", "status", "error", "code"),
    [
        ("smtp", 451, Failure, "HttpException"),
        ("smtp", 450, Failure, "HttpException"),
        ("smtp", 500, Failure, "HttpException"),  # HTTP's: trouble that passes
        ("smtp", 550, Undeliverable, "EMAIL_ADDRESS_INVALID"),
        ("smtp", 553, Undeliverable, "EMAIL_ADDRESS_INVALID"),
        ("smtp", 530, Permanent, "PROVIDER_CONFIGURATION"),
        ("smtp.data", 451, Failure, "HttpException"),
        ("smtp.data", 552, Permanent, "MESSAGE_REFUSED"),
        ("smtp.data", 554, Permanent, "MESSAGE_REFUSED"),
        ("smtp.connect", 421, Failure, "HttpException"),
    ],
)
@pytest.mark.rule("PLAN-3.13")
async def test_answers_of_the_server_and_what_they_mean(
    sandbox: Sandbox, provider: str, status: int, error: type[Failure], code: str
) -> None:
    sender = SMTP.make(sandbox)
    fault(sandbox, provider, "error", status=status, times=1)

    with pytest.raises(error) as failed:
        await sender.send(SMTP.message())
    await sender.send(SMTP.message())

    assert (failed.value.code, type(failed.value)) == (code, error)
    assert sandbox.ledger.count("mail") == 1


@pytest.mark.parametrize(("kind", "code"), [("timeout", "TIMEOUT"), ("drop", "HttpException")])
async def test_server_that_does_not_greet_is_tried_again(sandbox: Sandbox, kind: str, code: str) -> None:
    fault(sandbox, "smtp.connect", kind, times=1)
    sender = SMTP.make(sandbox, timeout=0.4)

    with pytest.raises(Failure) as failed:
        await sender.send(SMTP.message())
    await sender.send(SMTP.message())

    assert (failed.value.code, failed.value.error_class) == (code, "retryable")
    assert sandbox.ledger.count("mail") == 1


async def test_recipient_who_bounces_is_undeliverable_and_others_are_not(sandbox: Sandbox) -> None:
    sender = SMTP.make(sandbox)

    with pytest.raises(Undeliverable) as refused:
        await sender.send(SMTP.message(to="bounce@example.com"))
    await sender.send(SMTP.message())

    assert refused.value.counts is None  # the server is well
    assert "bounce" not in str(refused.value)
    assert sandbox.ledger.count("mail") == 1


async def test_connection_that_the_server_closed_meanwhile_costs_nothing(sandbox: Sandbox) -> None:
    sender: Any = SMTP.make(sandbox)
    await sender.send(SMTP.message("one"))
    ((_, line),) = (await sender._pool.get())._idle

    line.transport.abort()
    await asyncio.sleep(0)
    await sender.send(SMTP.message("two"))

    assert sandbox.ledger.count("mail") == 2


async def test_connection_that_was_idle_for_long_is_not_asked(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender: Any = SMTP.make(sandbox)
    await sender.send(SMTP.message("one"))
    ((_, first),) = (await sender._pool.get())._idle

    monkeypatch.setattr("mainspring.contrib.notify.smtp.SMTP_IDLE_S", -1.0)
    await sender.send(SMTP.message("two"))

    ((_, second),) = (await sender._pool.get())._idle
    assert first is not second
    assert not first.is_connected


class Sleeper:
    """Takes one mail on each line, and says nothing after it."""

    def __init__(self) -> None:
        self.taken = 0

    async def handle_MAIL(  # noqa: N802 (aiosmtpd's name)
        self, server: Any, session: Any, envelope: Any, address: str, options: list[str]
    ) -> str:
        if hasattr(session, "asleep"):
            await asyncio.sleep(60)
        envelope.mail_from = address
        return "250 OK"

    async def handle_RSET(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802 (as above)
        await asyncio.sleep(60)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802 (as above)
        session.asleep = True
        self.taken += 1
        return "250 OK"


async def test_connection_that_fell_asleep_meanwhile_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainspring.contrib.notify.smtp.SMTP_AWAKE_S", 0.1)
    sleeper, loop = Sleeper(), asyncio.get_running_loop()
    server = await loop.create_server(lambda: smtp.SMTP(sleeper, hostname="x", loop=loop), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        sender = Smtp("127.0.0.1", port, tls="none", sender="shop@example.com", timeout=5)
        for key in ("one", "two"):
            await sender.send(SMTP.message(key))
        await sender.close()

    assert sleeper.taken == 2


async def test_connection_is_used_again(sandbox: Sandbox) -> None:
    sender: Any = SMTP.make(sandbox)

    for number in range(3):
        await sender.send(SMTP.message(str(number)))

    assert len((await sender._pool.get())._idle) == 1


async def test_international_addresses_travel_as_they_are(sandbox: Sandbox) -> None:
    await SMTP.make(sandbox).send(SMTP.message(to="josé@bücher.example", title="Olá"))

    (entry,) = sandbox.ledger.find("mail")
    assert (entry.body["to"], entry.body["subject"]) == (["josé@xn--bcher-kva.example"], "Olá")


async def test_login_is_given(sandbox: Sandbox) -> None:
    await SMTP.make(sandbox, username="shop", password="right").send(SMTP.message())

    assert sandbox.ledger.count("mail") == 1


async def test_server_without_starttls_gets_nothing(sandbox: Sandbox) -> None:
    with pytest.raises(Permanent) as refused:
        await SMTP.make(sandbox, tls="starttls").send(SMTP.message())

    assert (refused.value.code, refused.value.counts) == ("PROVIDER_CONFIGURATION", True)
    assert sandbox.ledger.count("mail") == 0


class Taker:
    """Takes mail."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802 (aiosmtpd's name)
        assert session.ssl is not None
        self.taken.append(envelope.content)
        return "250 OK"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of this machine that its own authority has signed: itself."""
    from datetime import UTC, datetime, timedelta
    from ipaddress import ip_address

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))])
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(7).not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    made = made.add_extension(names, critical=False)
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file = tmp_path_factory.mktemp("tls") / "cert.pem"
    file.write_bytes(secret + made.sign(key, hashes.SHA256()).public_bytes(pem))
    return file


@pytest.fixture
async def encrypted(certificate: Path) -> AsyncIterator[tuple[Taker, int, ssl.SSLContext]]:
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(certificate)
    taker = Taker()
    loop = asyncio.get_running_loop()
    options: dict[str, Any] = {"hostname": "sandbox", "tls_context": theirs, "require_starttls": True, "loop": loop}
    server = await loop.create_server(lambda: smtp.SMTP(taker, **options), "127.0.0.1", 0)
    async with server:
        yield taker, server.sockets[0].getsockname()[1], ssl.create_default_context(cafile=str(certificate))


async def test_mail_travels_encrypted_to_who_has_the_right_certificate(
    encrypted: tuple[Taker, int, ssl.SSLContext],
) -> None:
    taker, port, ours = encrypted
    known = Smtp("127.0.0.1", port, sender="shop@example.com", context=ours)
    unknown = Smtp("127.0.0.1", port, sender="shop@example.com")

    await known.send(SMTP.message())
    with pytest.raises(Failure) as refused:
        await unknown.send(SMTP.message())
    await known.close()

    assert (refused.value.code, len(taker.taken)) == ("HttpException", 1)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("smtp://u:p%40ss@mail.example.com", "mail.example.com:587 starttls u p@ss"),
        ("smtp://mail.example.com:2525", "mail.example.com:2525 starttls None None"),
        ("smtps://u:p@mail.example.com", "mail.example.com:465 implicit u p"),
        ("smtp://127.0.0.1:1025?tls=none", "127.0.0.1:1025 none None None"),
    ],
)
def test_url_says_everything(url: str, shown: str) -> None:
    sender = Smtp.from_url(url, sender="shop@example.com")

    password = sender._password.reveal() if sender._password else None
    assert f"{sender._host}:{sender._port} {sender._tls} {sender._username} {password}" == shown
    assert "p@ss" not in repr(vars(sender))


@pytest.mark.parametrize(
    ("url", "field"),
    [
        ("mail.example.com", "url"),
        ("http://hunter2:hunter2@mail.example.com", "url"),
        ("smtp://", "url"),
        ("smtp://mail.example.com:hunter2", "url"),
        ("smtp://mail.example.com?tlss=none", "url"),
        ("smtp://mail.example.com?tls=maybe", "tls"),
        ("smtp://hunter2:hunter2@mail.example.com?tls=none", "tls"),
        ("smtp://hunter2@mail.example.com", "password"),
    ],
)
def test_url_that_says_nonsense_is_refused_without_being_repeated(url: str, field: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{field}: ") as refused:
        Smtp.from_url(url, sender="shop@example.com")

    assert "hunter2" not in str(refused.value)
