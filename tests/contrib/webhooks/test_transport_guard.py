"""No webhook reaches what it may not: every case is refused before a line is asked for."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Sequence
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from tests.contrib.webhooks.raw import Lines, Names, no_lines, no_names, raw
from tests.contrib.webhooks.table_targets import PUBLIC, REFUSED, RESOLVED

from mainspring import App
from mainspring.contrib.webhooks import Webhooks
from mainspring.contrib.webhooks.addresses import Address
from mainspring.contrib.webhooks.policy import Policy
from mainspring.contrib.webhooks.target import TargetRefused
from mainspring.contrib.webhooks.transport import SystemResolver, Transport, connect
from mainspring.errors import ConfigurationError, ValidationError
from mainspring.outcome import Failure

pytestmark = pytest.mark.anyio
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.rule("ENG-24.07", "PASS-7.12")
async def test_every_bad_target_is_refused_before_a_name_is_looked_up_or_a_line_made() -> None:
    transport = Transport(resolver=no_names, connector=no_lines)

    for url in REFUSED:
        with pytest.raises(TargetRefused):
            await transport.check(url)
        with pytest.raises(TargetRefused):
            await transport.post(url, {}, b"{}")


@pytest.mark.rule("ENG-24.07", "PASS-7.12")
@pytest.mark.parametrize("answers", RESOLVED.values(), ids=RESOLVED)
async def test_a_name_with_one_bad_address_is_refused_before_a_line_is_made(answers: Sequence[str]) -> None:
    transport = Transport(resolver=Names(answers), connector=no_lines)

    with pytest.raises(TargetRefused, match="the host has an address"):
        await transport.check("https://hooks.example.com/")
    with pytest.raises(TargetRefused, match="the host has an address"):
        await transport.post("https://hooks.example.com/", {}, b"{}")


async def test_no_public_address_is_refused() -> None:
    for address in PUBLIC:
        names, lines = Names([address]), Lines()
        transport = Transport(resolver=names, connector=lines)

        assert (await transport.check("https://hooks.example.com/")).host == "hooks.example.com"
        with pytest.raises(Failure, match="no line to the receiver"):
            await transport.post("https://hooks.example.com/", {}, b"{}")
        assert lines.asked == [(address, 443)]


@pytest.mark.rule("ENG-24.07")
async def test_a_name_that_was_public_when_saved_is_refused_when_it_is_private_at_delivery() -> None:
    names = Names(["93.184.215.14"], ["192.168.0.10"])
    transport = Transport(resolver=names, connector=no_lines)

    await transport.check("https://hooks.example.com/")
    with pytest.raises(TargetRefused, match="private"):
        await transport.post("https://hooks.example.com/", {}, b"{}")


async def test_a_name_that_changes_between_check_and_line_leads_nowhere_else() -> None:
    names, lines = Names(["93.184.215.14", "93.184.215.15"], ["127.0.0.1"]), Lines()
    transport = Transport(resolver=names, connector=lines)

    with pytest.raises(Failure):
        await transport.post("https://hooks.example.com/", {}, b"{}")
    assert names.asked == ["hooks.example.com"]  # once: there is no second answer to believe
    assert lines.asked == [("93.184.215.14", 443), ("93.184.215.15", 443)]


async def test_a_line_that_leads_elsewhere_is_cut_before_a_byte_is_sent() -> None:
    async with raw(OK) as receiver:

        async def elsewhere(address: Address, port: int) -> socket.socket:
            return await connect(IPv4Address("127.0.0.1"), receiver.port)

        transport = Transport(Policy(https=False, ports=(80,)), resolver=Names(["93.184.215.14"]), connector=elsewhere)
        with pytest.raises(TargetRefused, match="another address"):
            await transport.post("http://hooks.example.com/", {}, b"{}")
        await asyncio.sleep(0)
        assert receiver.requests == []


@pytest.mark.rule("ENG-24.06", "PASS-7.12")
@pytest.mark.parametrize("status", [300, 301, 302, 303, 305, 307, 308])
async def test_a_redirect_is_an_answer_and_not_followed(status: int) -> None:
    places = [
        *("http://127.0.0.1:{port}/again", "http://169.254.169.254/latest", "file:///etc/passwd", "//[::1]/", "/loop"),
        "https://10.0.0.1/",
    ]
    for place in places:
        head = f"HTTP/1.1 {status} Moved\r\nLocation: {place}\r\nRefresh: 0; url={place}\r\nContent-Length: 0\r\n\r\n"
        lines = Lines()
        async with raw(head.encode()) as receiver:
            answer = await Transport(Policy.local(), connector=lines).post(receiver.url(), {}, b"{}")

            assert (answer.status, answer.headers["location"]) == (status, place)
            assert len(lines.asked) == len(receiver.requests) == 1


async def test_proxies_and_passwords_of_the_environment_are_ignored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".netrc").write_text("default login me password secret-of-netrc\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    async with raw(OK) as receiver, raw(OK) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://user:pw@127.0.0.1:{proxy.port}")
        monkeypatch.delenv("NO_PROXY", raising=False)

        answer = await Transport(Policy.local()).post(receiver.url(), {}, b"{}")

        assert answer.status == 200
        assert proxy.lines == 0
        assert b"authorization" not in receiver.requests[0].lower()


async def test_hosts_of_our_own_are_refused_by_name_and_by_address() -> None:
    async def names(host: str, port: int) -> Sequence[str]:
        return {"api.ours.example": ["93.184.215.14"], "other.example": ["93.184.215.15"]}.get(host, ["93.184.215.14"])

    own = ["api.ours.example", "8.8.8.8", "[2606:4700::1111]:443", "9.9.9.9:5432"]
    transport = Transport(resolver=names, connector=Lines(), own=own)

    for host in ("api.ours.example", "alias.example", "8.8.8.8", "[2606:4700::1111]"):
        with pytest.raises(TargetRefused, match="one of ours"):
            await transport.check(f"https://{host}/")
    for host in ("other.example", "9.9.9.9"):  # the port of the last is another
        await transport.check(f"https://{host}/")


async def test_our_own_port_is_refused_on_a_machine_that_is_allowed() -> None:
    transport = Transport(Policy.local(), connector=no_lines, own=["127.0.0.1:5432"])

    with pytest.raises(TargetRefused, match="one of ours"):
        await transport.post("http://127.0.0.1:5432/", {}, b"{}")
    assert (await transport.check("http://127.0.0.1:5433/")).port == 5433


@pytest.mark.parametrize("own", ["db:port", ":5432", "db.example.com:"])
async def test_a_host_of_our_own_that_is_none_is_a_wrong_setting(own: str) -> None:
    with pytest.raises(ConfigurationError, match="own"):
        Transport(own=[own])


@pytest.mark.parametrize("answer", [socket.gaierror(socket.EAI_NONAME, "no"), UnicodeError("label"), []], ids=str)
async def test_a_name_without_address_cannot_be_saved_and_is_tried_again_at_delivery(
    answer: Sequence[str] | Exception,
) -> None:
    transport = Transport(resolver=Names(answer), connector=no_lines)

    with pytest.raises(TargetRefused, match="no address now"):
        await transport.check("https://gone.example.com/")
    with pytest.raises(Failure) as failed:
        await transport.post("https://gone.example.com/", {}, b"{}")
    assert (failed.value.code, failed.value.error_class) == ("HttpException", "retryable")


async def test_the_next_checked_address_is_tried_when_one_does_not_answer() -> None:
    async with raw(OK) as receiver:
        lines = Lines()
        names = Names(["127.0.0.2", "127.0.0.1"])  # on the first nobody listens
        answer = await Transport(Policy.local(), resolver=names, connector=lines).post(
            receiver.url("hooks.example.com"), {}, b"{}"
        )

        assert answer.status == 200
        assert lines.asked == [("127.0.0.2", receiver.port), ("127.0.0.1", receiver.port)]
        assert f"host: hooks.example.com:{receiver.port}".encode() in receiver.requests[0].lower()


async def test_the_system_is_asked_for_every_address_in_a_thread_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def getaddrinfo(host: object, port: int, **_: object) -> list[object]:
        asked.append(host)
        return [(socket.AF_INET, 1, 6, "", ("1.1.1.1", port)), (socket.AF_INET6, 1, 6, "", ("2606::1", port, 0, 0))] * 2

    monkeypatch.setattr("mainspring.contrib.webhooks.transport.socket.getaddrinfo", getaddrinfo)

    assert await SystemResolver()("hooks.example.com", 443) == ["1.1.1.1", "2606::1"]
    assert asked == [b"hooks.example.com"]


async def test_the_system_knows_this_machine() -> None:
    assert "127.0.0.1" in await SystemResolver()("localhost", 80)


@pytest.mark.parametrize(
    "headers",
    [
        *({"X-A": "a\r\nX-B: b"}, {"X-A": "a\nb"}, {"X-A": "a\x00"}, {"X-A\r\nX-B": "b"}, {"X A": "b"}, {"": "b"}),
        *({"X-A:": "b"}, {"X-A": "\u00e9"}, {"X-A": " b"}, {"X-A": "b "}, {"X-A": 7}, {7: "b"}, {"X-\u00e9": "b"}),
        *({"Host": "x"}, {"content-LENGTH": "0"}, {"Transfer-Encoding": "chunked"}, {"Connection": "x"}),
        *({"Expect": "100-continue"}, {"Upgrade": "h2c"}, {"TE": "gzip"}, {"Accept-Encoding": "gzip"}),
        *({f"X-{n}": "v" for n in range(100)}, {"X-A": "a" * 65536}, {"X-A": "1", "x-a": "2"}),
    ],
)
async def test_a_header_that_could_change_the_request_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="headers: ") as refused:
        await Transport(Policy.local(), connector=no_lines).post("http://127.0.0.1:9/", headers, b"{}")
    assert len(str(refused.value)) < 120


async def test_the_cause_of_a_failed_line_is_said_without_its_address() -> None:
    async def refuse(address: Address, port: int) -> socket.socket:
        raise OSError(errno.ENETUNREACH, f"Connect call failed ({address}, {port})")

    with pytest.raises(Failure, match=r"no line to the receiver: Network is unreachable$"):
        await Transport(resolver=Names(["93.184.215.14"]), connector=refuse).post("https://e.example/", {}, b"")


@pytest.mark.parametrize(
    ("dsn", "env", "own"),
    [
        ("host=db.example.com port=6432", {}, ["db.example.com:6432"]),
        ("host=db.example.com hostaddr=203.0.113.7", {}, ["db.example.com:5432", "203.0.113.7:5432"]),
        ("hostaddr=::1", {}, ["[::1]:5432"]),
        ("host=a,b port=1,2", {}, ["a:1", "b:2"]),
        ("host=/run/postgresql", {}, []),
        ("dbname=shop", {"PGHOST": "db", "PGPORT": "7"}, ["db:7"]),
    ],
)
def test_the_database_is_known_however_it_is_named(
    dsn: str, env: dict[str, str], own: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PGHOST", "PGHOSTADDR", "PGPORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    hooks = Webhooks()
    App(dsn=dsn, blocks=[hooks], maintenance=False)
    assert hooks._own() == own


async def test_a_line_that_is_gone_before_it_is_looked_at_is_a_failure_that_is_tried_again() -> None:
    async def reset(address: Address, port: int) -> socket.socket:
        return socket.socket()  # nobody is at its other end

    with pytest.raises(Failure, match="no line to the receiver") as failed:
        await Transport(Policy.local(), connector=reset).post("http://127.0.0.1:9/", {}, b"{}")
    assert failed.value.code == "HttpException"
