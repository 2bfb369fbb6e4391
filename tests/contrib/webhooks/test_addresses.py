"""Our own list of addresses that are not public is stricter than the standard library's."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.contrib.webhooks.table_targets import PUBLIC

from mainspring.contrib.webhooks.addresses import carried, parse, refusal

NAT64 = IPv6Network("64:ff9b::/96")


@pytest.mark.rule("ENG-24.07")
@pytest.mark.parametrize(
    ("address", "reason"),
    [
        # Those that `is_global` calls global.
        ("64:ff9b::7f00:1", "loopback"),
        ("2002:7f00:1::", "loopback"),
        ("::127.0.0.1", "loopback"),
        ("fec0::1", "site-local"),
        ("224.0.0.1", "multicast"),
        ("192.0.0.192", "cloud metadata"),
        # The borders of networks.
        ("0.255.255.255", "unspecified"),
        ("10.255.255.255", "private"),
        ("100.127.255.255", "shared by a carrier"),
        ("127.255.255.255", "loopback"),
        ("169.254.255.255", "link-local"),
        ("172.31.255.255", "private"),
        ("192.168.255.255", "private"),
        ("198.19.255.255", "for benchmarks"),
        ("239.255.255.255", "multicast"),
        ("240.0.0.0", "reserved"),
        ("255.255.255.255", "reserved"),
        ("::", "unspecified"),
        ("::1", "loopback"),
        ("::2", "unspecified"),
        ("::ffff:10.0.0.1", "private"),
        ("::ffff:8.8.8.8", "an IPv4 address inside"),
        ("2002:808:808::1", "an IPv4 address inside"),
        ("2001::f7f7:f7f7", "an IPv4 address inside"),  # Teredo of 8.8.8.8
        ("2001:0:808:808:0:ffff:f5ff:fffe", "private"),  # Teredo of 10.0.0.1
        ("64:ff9b::a9fe:a9fe", "cloud metadata"),
        ("64:ff9b:1::808:808", "an IPv4 address inside"),
        ("64:ff9b:0:1::1", "reserved"),
        ("2001:1ff:ffff::", "reserved"),
        ("fdff::1", "private"),
        ("febf::1", "link-local"),
        ("feff::1", "site-local"),
        ("1fff::", "reserved"),
        ("4000::", "reserved"),
        ("100::1", "discarded"),
        ("2606:4700::1%eth0", "of one network card"),
        ("fd00:ec2::254%eth0", "cloud metadata"),
    ],
)
def test_an_address_that_is_not_public_is_refused_for_its_reason(address: str, reason: str) -> None:
    assert refusal(ip_address(address)) == reason


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_not_refused(address: str) -> None:
    assert refusal(ip_address(address)) is None


def not_public(address: IPv4Address | IPv6Address) -> bool:
    """What the standard library knows about it."""
    return (
        not address.is_global
        or address.is_private
        or address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_reserved
        or address.is_unspecified
        or (isinstance(address, IPv6Address) and address.is_site_local)
    )


@settings(max_examples=1000, deadline=None)
@given(
    st.one_of(
        st.ip_addresses(), st.builds(IPv6Address, st.integers(0, 2**64)), st.ip_addresses(v=6, network="64:ff9b::/64")
    )
)
@example(IPv6Address("64:ff9b::7f00:1"))
def test_no_address_passes_that_the_standard_library_knows_as_not_public(address: IPv4Address | IPv6Address) -> None:
    judged = carried(address) if address in NAT64 else address
    assert judged is not None

    if not_public(judged):
        assert refusal(address) is not None


@settings(max_examples=300, deadline=None)
@given(st.ip_addresses(v=4))
def test_what_carries_an_address_is_never_freer_than_the_address(inner: IPv4Address) -> None:
    low = int(inner)
    forms = [
        *(low, 0xFFFF << 32 | low, 0x64FF9B << 96 | low, 0x2002 << 112 | low << 80),
        0x2001 << 112 | 0x08080808 << 64 | low ^ 0xFFFF_FFFF,
    ]
    for form in forms:
        address = IPv6Address(form)
        assert carried(address) == inner or low <= 1
        assert refusal(address) is not None or (refusal(inner) is None and address in NAT64)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=20))
def test_only_one_form_of_an_address_is_read(text: str) -> None:
    address = parse(text)

    assert address is None or (str(address) == text if "." in text else ":" in text)


@pytest.mark.parametrize(
    "text", ["127.1", "0177.0.0.1", "2130706433", "0x7f.1", "127.0.0.1 ", "1.2.3.4\n", "", "::1%", "[::1]"]
)
def test_an_odd_form_is_no_address(text: str) -> None:
    assert parse(text) is None
