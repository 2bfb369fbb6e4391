"""The certificate is checked for the name, although the line goes to an address."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from tests.contrib.webhooks.raw import Lines, Names, raw

from mainspring.contrib.webhooks.policy import Policy
from mainspring.contrib.webhooks.transport import Transport
from mainspring.errors import ConfigurationError
from mainspring.outcome import Failure

pytestmark = pytest.mark.anyio
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
NAME = "hooks.example.com"


class Issuer(NamedTuple):
    """Whoever signs certificates."""

    name: x509.Name
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate


def named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def issue(
    name: str, issuer: Issuer | None, *, days: tuple[int, int] = (-1, 1)
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    """A certificate; without an issuer it signs itself, as an authority does."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    try:
        alternative: x509.GeneralName = x509.IPAddress(ip_address(name))
    except ValueError:
        alternative = x509.DNSName(name)
    builder = (
        x509.CertificateBuilder()
        .subject_name(named(name))
        .issuer_name(issuer.name if issuer else named(name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + datetime.timedelta(days=days[0]))
        .not_valid_after(now + datetime.timedelta(days=days[1]))
        .add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if issuer:
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.key.public_key())
        builder = builder.add_extension(identifier, critical=False)
    return key, builder.sign(issuer.key if issuer else key, hashes.SHA256())


@pytest.fixture(scope="module")
def authority() -> Issuer:
    key, certificate = issue("An authority", None)
    return Issuer(named("An authority"), key, certificate)


def serving(key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate, folder: Path) -> ssl.SSLContext:
    file = folder / "server.pem"
    file.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + certificate.public_bytes(Encoding.PEM)
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(file)
    return context


def trusting(authority: Issuer) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority.certificate.public_bytes(Encoding.PEM).decode())


async def test_a_good_certificate_is_taken_and_the_name_is_sent_along(authority: Issuer, tmp_path: Path) -> None:
    context = serving(*issue(NAME, authority), tmp_path)
    asked: list[str | None] = []
    context.sni_callback = lambda _, name, __: asked.append(name)
    lines = Lines()
    async with raw(OK, context=context) as receiver:
        transport = Transport(
            Policy.local(), resolver=Names(["127.0.0.1"]), connector=lines, ssl_context=trusting(authority)
        )
        answer = await transport.post(receiver.url(NAME, "https"), {}, b"{}")

        assert (answer.status, answer.body) == (200, b"ok")
        assert asked == [NAME]
        assert lines.asked == [("127.0.0.1", receiver.port)]
        assert f"host: {NAME}:{receiver.port}".encode() in receiver.requests[0].lower()


async def test_an_address_needs_a_certificate_of_its_own(authority: Issuer, tmp_path: Path) -> None:
    async with raw(OK, context=serving(*issue("127.0.0.1", authority), tmp_path)) as receiver:
        transport = Transport(Policy.local(), ssl_context=trusting(authority))

        assert (await transport.post(receiver.url(scheme="https"), {}, b"{}")).status == 200


@pytest.mark.parametrize(
    ("name", "days", "signed", "problem"),
    [
        ("other.example.com", (-1, 1), True, "Hostname mismatch"),
        ("127.0.0.1", (-1, 1), True, "Hostname mismatch"),
        (NAME, (-3, -2), True, "certificate has expired"),
        (NAME, (1, 2), True, "certificate is not yet valid"),
        (NAME, (-1, 1), False, "self-signed certificate"),
    ],
    ids=["wrong name", "of an address", "expired", "not yet valid", "self-signed"],
)
async def test_a_bad_certificate_is_refused_before_a_byte_of_the_request_is_sent(
    authority: Issuer, tmp_path: Path, name: str, days: tuple[int, int], signed: bool, problem: str
) -> None:
    context = serving(*issue(name, authority if signed else None, days=days), tmp_path)
    async with raw(OK, context=context) as receiver:
        transport = Transport(Policy.local(), resolver=Names(["127.0.0.1"]), ssl_context=trusting(authority))
        with pytest.raises(Failure, match=f"the certificate is refused: {problem}") as failed:
            await transport.post(receiver.url(NAME, "https"), {}, b"{}")

        assert (failed.value.code, failed.value.error_class) == ("HttpException", "retryable")
        assert receiver.requests == []


async def test_an_authority_nobody_knows_is_refused(authority: Issuer, tmp_path: Path) -> None:
    async with raw(OK, context=serving(*issue(NAME, authority), tmp_path)) as receiver:
        with pytest.raises(Failure, match="the certificate is refused"):
            await Transport(Policy.local(), resolver=Names(["127.0.0.1"])).post(receiver.url(NAME, "https"), {}, b"{}")


async def test_a_receiver_without_tls_is_a_failure() -> None:
    async with raw(b"HTTP/1.1 400 Bad Request\r\n\r\n", reads=False) as receiver:
        with pytest.raises(Failure, match="no TLS with the receiver") as failed:
            await Transport(Policy.local()).post(receiver.url(scheme="https"), {}, b"{}")
    assert failed.value.code == "HttpException"


@pytest.mark.parametrize("hangs", [True, False])
async def test_a_handshake_that_does_not_come_is_a_failure(hangs: bool) -> None:
    async def play(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(5 if hangs else 0)

    async with raw(play, reads=False) as receiver:
        with pytest.raises(Failure) as failed:
            await Transport(Policy.local()).post(receiver.url(scheme="https"), {}, b"{}", timeout=0.3)
    assert failed.value.code == ("WebhookTimeout" if hangs else "HttpException")


async def test_a_context_that_checks_nothing_is_refused() -> None:
    careless = ssl.create_default_context()
    careless.check_hostname = False

    with pytest.raises(ConfigurationError, match="does not check certificates"):
        Transport(ssl_context=careless)
