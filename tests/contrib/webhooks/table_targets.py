"""Where webhooks may not go, and where they may."""

from __future__ import annotations

from typing import Final

#: URLs that are refused when they are read, before any name is looked up.
REFUSED: Final = [
    # loopback and this host, in every form that a resolver understands
    *("https://127.0.0.1/", "https://127.1/", "https://127.0.1/", "https://0177.0.0.1/", "https://2130706433/"),
    *("https://0x7f000001/", "https://0x7f.1/", "https://0X7F.0.0.1/", "https://017700000001/", "https://127.0.0.1./"),
    *("https://127.255.255.254/", "https://0/", "https://0.0.0.0/", "https://00000000/", "https://127.0.0.0x1/"),
    *(
        "https://localhost/",
        "https://LOCALHOST./",
        "https://LocalHost/",
        "https://app.localhost/",
        "https://127.0.0.1.:443/",
    ),
    *("https://[::1]/", "https://[::]/", "https://[0:0:0:0:0:0:0:1]/", "https://[::ffff:127.0.0.1]/"),
    *(
        "https://[::ffff:7f00:1]/",
        "https://[::127.0.0.1]/",
        "https://[64:ff9b::7f00:1]/",
        "https://[64:ff9b::127.0.0.1]/",
    ),
    *("https://[64:ff9b:1::7f00:1]/", "https://[2002:7f00:1::]/", "https://[2001:0:7f00:1::]/"),
    *("https://[2001::1]/", "https://[fe80::1%25eth0]/", "https://[fe80::1%eth0]/", "https://[fe80::1]/"),
    # private, shared, link-local, metadata
    *("https://10.0.0.1/", "https://10.255.255.255/", "https://172.16.0.1/", "https://172.31.255.255/"),
    *("https://192.168.0.1/", "https://100.64.0.1/", "https://100.127.255.255/", "https://169.254.169.254/"),
    *("https://169.254.170.2/", "https://192.0.0.192/", "https://168.63.129.16/", "https://100.100.100.200/"),
    *("https://[fd00:ec2::254]/", "https://[fd20:ce::254]/", "https://[::ffff:169.254.169.254]/"),
    *("https://[64:ff9b::a9fe:a9fe]/", "https://metadata.google.internal/", "https://METADATA.google.internal/"),
    *(
        "https://metadata/",
        "https://metadata.goog/",
        "https://db.internal/",
        "https://printer.local/",
        "https://intranet/",
    ),
    *("https://redis/", "https://db-1/"),
    # for documentation, benchmarks, multicast, reserved
    *(
        "https://192.0.0.1/",
        "https://192.0.2.1/",
        "https://192.88.99.1/",
        "https://198.18.0.1/",
        "https://198.19.255.255/",
    ),
    *("https://198.51.100.1/", "https://203.0.113.1/", "https://224.0.0.1/", "https://239.255.255.255/"),
    *("https://240.0.0.1/", "https://255.255.255.255/", "https://[fc00::1]/", "https://[fd12:3456::1]/"),
    *("https://[fec0::1]/", "https://[ff02::1]/", "https://[100::1]/", "https://[2001:db8::1]/", "https://[3fff::1]/"),
    *("https://[4000::1]/", "https://[5f00::1]/", "https://[::8.8.8.8]/", "https://[::ffff:8.8.8.8]/"),
    *("https://[2002:808:808::]/",),
    # schemes
    *("http://example.com/", "file:///etc/passwd", "ftp://example.com/", "gopher://example.com/", "data:text/plain,x"),
    *(
        "unix:///var/run/docker.sock",
        "http+unix://%2Fvar%2Frun%2Fdocker.sock/",
        "javascript:alert(1)",
        "//example.com/",
    ),
    *("https:example.com", "https:/example.com", "https:///example.com", "example.com", "https://", "https"),
    # user names, and what one parser takes for the host and another does not
    *("https://good.example@bad.example/", "https://good:pw@bad.example/", "https://@example.com/"),
    *("https://good.example#@bad.example/", "https://example.com#x", "https://example.com/#x"),
    *("https://good.example\\@bad.example", "https://good.example\\.bad.example/", "https:\\\\example.com\\"),
    *("https://exa\tmple.com/", "https://exa\nmple.com/", "https://example.com/\r\nX: y", "https://example.com/\x00"),
    *(
        " https://example.com/",
        "https://example.com/ ",
        "https://example.com/a b",
        "https://exam ple.com/",
        "\x7fhttps://e.com",
    ),
    *(
        "https://example.com\x0b/",
        "https://example.com\u2028/",
        "https://example.com\u00a0/",
        "\ufeffhttps://example.com/",
    ),
    # names that look like another, or like an address
    *("https://127\uff0e0\uff0e0\uff0e1/", "https://127\u30020\u30020\u30021/", "https://example\uff0ecom/"),
    *(
        "https://\u2460\u2461\u2466.0.0.1/",
        "https://\u24d4xample.com/",
        "https://ex\u0430mple.com/",
        "https://m\u00fcnchen.example/",
    ),
    *("https://localhos\u017f/", "https://\u0661\u0662\u0667.0.0.1/", "https://%6c%6f%63%61%6c%68%6f%73%74/"),
    *(
        "https://127%2e0.0.1/",
        "https://exa_mple.com/",
        "https://-example.com/",
        "https://example-.com/",
        "https://a..com/",
    ),
    *(
        "https://.example.com/",
        "https://example.com./",
        "https://exa*mple.com/",
        "https://[example.com]/",
        "https://[]/",
    ),
    *("https://[::1/", "https://::1/", "https://2001:4860:4860::8888/", "https://[8.8.8.8]/", "https://[::1]x/"),
    *("https://1.2.3/", "https://256.1.1.1/", "https://8.8.8.8.8/", "https://08.8.8.8/", "https://4294967296/"),
    # ports
    *("https://example.com:0/", "https://example.com:22/", "https://example.com:25/", "https://example.com:5432/"),
    *("https://example.com:6379/", "https://example.com:65536/", "https://example.com:/", "https://example.com:80/"),
    *(
        "https://example.com:0443/",
        "https://example.com:+443/",
        "https://example.com:443:443/",
        "https://example.com:4a3/",
    ),
    *("https://example.com:\u0664\u0664\u0663/", "https://example.com:99999999999999999999/"),
    # paths and lengths
    *('https://example.com/"', "https://example.com/<x>", "https://example.com/%", "https://example.com/%zz"),
    *("https://example.com/{id}", "https://example.com/|", "https://example.com/^", "https://example.com/`"),
    *("https://" + "a" * 64 + ".com/", "https://" + "a." * 127 + "com/", "https://example.com/" + "a" * 2048, ""),
]

#: Names that pass the parser, and what a name server says: each is refused then.
RESOLVED: Final = {
    "loopback": ["127.0.0.1"],
    "loopback over IPv6": ["::1"],
    "unspecified": ["0.0.0.0"],
    "unspecified over IPv6": ["::"],
    "private": ["10.1.2.3"],
    "private, second": ["172.20.0.1"],
    "private, third": ["192.168.1.1"],
    "carrier": ["100.64.0.1"],
    "link-local": ["169.254.0.1"],
    "metadata": ["169.254.169.254"],
    "metadata of Oracle": ["192.0.0.192"],
    "metadata of Azure": ["168.63.129.16"],
    "metadata over IPv6": ["fd00:ec2::254"],
    "mapped": ["::ffff:127.0.0.1"],
    "compatible": ["::127.0.0.1"],
    "NAT64": ["64:ff9b::7f00:1"],
    "NAT64 of a private one": ["64:ff9b::a01:203"],
    "6to4": ["2002:7f00:1::"],
    "Teredo": ["2001:0:4136:e378:8000:63bf:80ff:fffe"],
    "unique local": ["fd12::1"],
    "link-local over IPv6": ["fe80::1"],
    "with a zone": ["fe80::1%eth0"],
    "public, but with a zone": ["2606:4700::1%eth0"],
    "site-local": ["fec0::1"],
    "multicast": ["224.0.0.1"],
    "multicast over IPv6": ["ff02::1"],
    "broadcast": ["255.255.255.255"],
    "documentation": ["192.0.2.1"],
    "one public and one private answer": ["93.184.215.14", "10.0.0.5"],
    "private last of many": ["93.184.215.14", "93.184.215.15", "2606:4700::1111", "::1"],
    "private over IPv6 beside a public one": ["93.184.215.14", "fd00::1"],
    "no address at all": ["example.com"],
    "an odd form": ["0x7f.1"],
}

#: Literals of public networks: refused by nobody.
PUBLIC: Final = [
    *(
        "1.1.1.1",
        "8.8.8.8",
        "9.9.9.9",
        "93.184.215.14",
        "140.82.121.4",
        "151.101.1.140",
        "172.15.255.255",
        "172.32.0.1",
    ),
    *("100.63.255.255", "100.128.0.1", "192.0.1.1", "198.17.255.255", "198.20.0.1", "203.0.114.1", "223.255.255.254"),
    *("2606:4700:4700::1111", "2001:4860:4860::8888", "2a00:1450:4001:81b::200e", "2620:fe::fe", "2400:cb00:2048::1"),
    *("64:ff9b::808:808", "11.0.0.1", "126.255.255.255", "128.0.0.1", "169.253.255.255", "2001:200::1"),
]
