"""One parser reads where a webhook goes, and refuses what could be read in two ways."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contrib.webhooks.table_targets import PUBLIC, REFUSED

from mainspring.codes import CODES
from mainspring.contrib.webhooks.policy import Policy
from mainspring.contrib.webhooks.target import MAX_URL, TargetRefused, check
from mainspring.errors import ConfigurationError

LOOSE = Policy(https=False, ports=range(1, 65536))


def bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def test_the_table_is_as_long_as_promised() -> None:
    assert len(set(REFUSED)) >= 150
    assert len(set(PUBLIC)) >= 20


@pytest.mark.rule("ENG-24.07", "PASS-7.12")
@pytest.mark.parametrize("url", REFUSED, ids=range(len(REFUSED)))
def test_a_bad_target_is_refused_and_its_value_not_repeated(url: str) -> None:
    with pytest.raises(TargetRefused) as refused:
        check(url, Policy())

    assert refused.value.field == "url"
    assert CODES[refused.value.code].error_class == "permanent"
    assert len(str(refused.value)) < 160
    if len(url) > 14:  # shorter ones are a part of the example that the text gives
        assert url not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("https://good:pw@bad.example/", "has a user name or password"),
        ("https://good.example#@bad.example/", "has a fragment"),
        ("https://good.example\\@bad.example", "has a backslash"),
        ("https://example.com./", "the host ends with a dot"),
        ("https://ex\u0430mple.com/", "letters outside ASCII; a name can be written in its xn-- form"),
        ("http://example.com/", "must begin with https://"),
        ("https://example.com:22/", "port 22 is not open to webhooks"),
        ("https://0x7f.1/", "the host is a number, and no plain IPv4 address"),
        ("https://10.0.0.1/", "the address may not be reached: private"),
        ("https://redis/", "the host is a name of a local network"),
    ],
)
def test_a_refusal_says_what_is_wrong(url: str, reason: str) -> None:
    with pytest.raises(TargetRefused, match=reason):
        check(url, Policy())


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_taken(address: str) -> None:
    target = check(f"https://{bracketed(address)}/in", Policy())

    assert target.address is not None
    assert target.authority == bracketed(str(target.address))


@pytest.mark.parametrize(
    ("url", "host", "port", "path", "authority"),
    [
        ("https://example.com", "example.com", 443, "/", "example.com"),
        ("HTTPS://EXAMPLE.com:443/In", "example.com", 443, "/In", "example.com"),
        (
            "https://example.com:8443/a/../b;c=1?x=%20&y=[]".replace("[]", "1"),
            "example.com",
            8443,
            None,
            "example.com:8443",
        ),
        ("https://example.com?x=1", "example.com", 443, "/?x=1", "example.com"),
        ("https://xn--mnchen-3ya.example.com/@me?to=a@b", "xn--mnchen-3ya.example.com", 443, "/@me?to=a@b", None),
        ("https://3com.com/", "3com.com", 443, "/", "3com.com"),
        ("https://127.0.0.1.nip.io/", "127.0.0.1.nip.io", 443, "/", None),  # its address decides
        ("http://example.com/", "example.com", 80, "/", "example.com"),
        ("http://example.com:443/", "example.com", 443, "/", "example.com:443"),
        ("https://[2606:4700:0:0::1111]:8443/", "2606:4700::1111", 8443, "/", "[2606:4700::1111]:8443"),
    ],
)
def test_a_good_target_is_read_in_parts(
    url: str, host: str, port: int, path: str | None, authority: str | None
) -> None:
    target = check(url, LOOSE)

    assert (target.host, target.port) == (host, port)
    assert path is None or target.path == path
    assert authority is None or target.authority == authority
    assert check(target.url, LOOSE) == target


@pytest.mark.parametrize("value", [None, 7, b"https://example.com/", ["https://example.com/"]])
def test_what_is_no_text_is_refused(value: object) -> None:
    with pytest.raises(TargetRefused, match="is missing"):
        check(value, Policy())  # type: ignore[arg-type] # that is the point


def test_the_longest_url_is_taken() -> None:
    url = "https://example.com/".ljust(MAX_URL, "a")

    assert check(url, Policy()).url == url


@pytest.mark.parametrize(
    "url", ["http://localhost:8080/x", "http://127.0.0.1:9/", "https://[::1]:4433/", "http://my-service/"]
)
def test_names_and_addresses_of_this_machine_pass_where_the_server_allows_them(url: str) -> None:
    assert check(url, Policy.local()).url == url


@pytest.mark.parametrize(
    "url",
    [
        *("http://10.0.0.1/", "http://169.254.169.254/", "http://[::ffff:127.0.0.1]/", "http://[64:ff9b::7f00:1]/"),
        *("http://metadata.google.internal/", "http://metadata/", "http://2130706433/", "http://127.1/"),
    ],
)
def test_what_is_allowed_opens_nothing_else(url: str) -> None:
    with pytest.raises(TargetRefused):
        check(url, Policy.local())


@pytest.mark.parametrize("address", ["169.254.169.254", "100.100.100.200", "192.0.0.192", "[fd00:ec2::254]"])
def test_metadata_is_refused_although_its_network_is_allowed(address: str) -> None:
    policy = Policy(allow=("169.254.0.0/16", "100.64.0.0/10", "192.0.0.0/24", "fc00::/7"))

    with pytest.raises(TargetRefused, match="metadata"):
        check(f"https://{address}/", policy)
    assert check("https://100.64.0.1/", policy).host == "100.64.0.1"


def test_what_is_denied_is_refused_although_it_is_public_or_allowed() -> None:
    policy = Policy(allow=("10.0.0.0/8",), deny=("8.8.8.0/24", "10.9.0.0/16"))

    for address in ("8.8.8.8", "10.9.1.1", "[64:ff9b::808:808]"):
        with pytest.raises(TargetRefused, match="closed by configuration"):
            check(f"https://{address}/", policy)
    assert check("https://10.8.1.1/", policy).host == "10.8.1.1"


@settings(max_examples=400, deadline=None)
@given(
    st.one_of(
        st.text(max_size=40),
        st.builds(
            "https://{}/".format,
            st.text(alphabet=st.sampled_from("0123456789abcdefx.:[]%@#\\/?-_ \t\n\u3002"), max_size=30),
        ),
        st.builds("{}{}".format, st.sampled_from(["https://", "http://", "https://a.com"]), st.text(max_size=30)),
    )
)
def test_whatever_is_taken_reads_the_same_by_another_parser(url: str) -> None:
    try:
        target = check(url, LOOSE)
    except TargetRefused:
        return
    other = urlsplit(url)

    assert (other.scheme, other.hostname, other.username, other.fragment) == (target.scheme, other.hostname, None, "")
    assert other.hostname == (target.host if ":" not in target.host else other.hostname)
    assert (other.port or {"https": 443, "http": 80}[target.scheme]) == target.port
    assert re.fullmatch(r"[\x21-\x7e]+", target.path)


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, Policy()),
        ({"MAINSPRING_WEBHOOK_HTTPS": "off"}, Policy(https=False, ports=(443, 80))),
        ({"MAINSPRING_WEBHOOK_PORTS": "443, 8443"}, Policy(ports=(443, 8443))),
        ({"MAINSPRING_WEBHOOK_ALLOW": "10.20.0.0/16, fd12::/16,"}, Policy(allow=("10.20.0.0/16", "fd12::/16"))),
        ({"MAINSPRING_WEBHOOK_DENY": "8.8.8.0/24"}, Policy(deny=("8.8.8.0/24",))),
    ],
)
def test_the_environment_says_what_may_be_reached(env: dict[str, str], expected: Policy) -> None:
    assert Policy.from_env(env) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            ("HTTPS", "maybe"),
            ("PORTS", "http"),
            ("PORTS", "443,,444"),
            ("PORTS", "0"),
            ("PORTS", "65536"),
            ("PORTS", "-1"),
        ),
        *(("ALLOW", "10.0.0.1/8"), ("ALLOW", "everything"), ("ALLOW", "0.0.0.0/0"), ("ALLOW", "::/0"), ("DENY", "x")),
    ],
)
def test_a_wrong_setting_is_named_and_its_value_not_repeated(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^MAINSPRING_WEBHOOK_{name}: ") as refused:
        Policy.from_env({f"MAINSPRING_WEBHOOK_{name}": value})
    assert value not in str(refused.value).partition(":")[2]
