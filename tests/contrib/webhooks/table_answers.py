"""Answers that are none."""

from __future__ import annotations

from typing import Final

_OK: Final = b"HTTP/1.1 200 OK\r\n"
_CHUNKED: Final = _OK + b"Transfer-Encoding: chunked\r\n\r\n"
_INTERIM: Final = b"HTTP/1.1 100 Continue\r\n\r\n"

#: What a receiver sends before it hangs up → what the failure says.
BROKEN: Final = {
    "nothing": (b"", "closed before the answer ended"),
    "HTTP/0.9": (b"<html>hello</html>\r\n\r\n", "no valid HTTP"),
    "HTTP/0.9 in one line": (b"hello", "closed before the answer ended"),
    "a greeting of SSH": (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "no valid HTTP"),
    "TLS where none was asked for": (b"\x15\x03\x01\x00\x02\x02\x28\r\n\r\n", "no valid HTTP"),
    "no status": (b"HTTP/1.1 OK\r\n\r\n", "no valid HTTP"),
    "a status of two digits": (b"HTTP/1.1 20 OK\r\n\r\n", "no valid HTTP"),
    "status 000": (b"HTTP/1.1 000 OK\r\n\r\n", "no valid HTTP"),
    "HTTP/2": (b"HTTP/2 200\r\n\r\n", "no valid HTTP"),
    "the preface of HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "no valid HTTP"),
    "an upgrade nobody asked for": (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", "no valid HTTP"),
    "a header without colon": (_OK + b"Broken header\r\n\r\n", "no valid HTTP"),
    "a blank before the colon": (_OK + b"Content-Length : 0\r\n\r\n", "no valid HTTP"),
    "NUL in a header": (_OK + b"X: a\x00b\r\n\r\n", "no valid HTTP"),
    "two lengths": (_OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", "no valid HTTP"),
    "a length that is no number": (_OK + b"Content-Length: -1\r\n\r\n", "no valid HTTP"),
    "an unknown coding": (_OK + b"Transfer-Encoding: gzip\r\n\r\n", "no valid HTTP"),
    "an end within the headers": (_OK + b"Content-Le", "closed before the answer ended"),
    "an end within the body": (_OK + b"Content-Length: 10\r\n\r\nabc", "closed before the answer ended"),
    "an end within a chunk": (_CHUNKED + b"a\r\nabc", "closed before the answer ended"),
    "an end before the last chunk": (_CHUNKED + b"3\r\nabc\r\n", "closed before the answer ended"),
    "a chunk's size that is no number": (_CHUNKED + b"xyz\r\nabc\r\n", "no valid HTTP"),
    "a negative chunk": (_CHUNKED + b"-1\r\nabc\r\n", "no valid HTTP"),
    "a chunk that is longer than it says": (_CHUNKED + b"2\r\nabcdef\r\n0\r\n\r\n", "no valid HTTP"),
    "a huge chunk size": (_CHUNKED + b"f" * 40 + b"\r\nabc\r\n", "no valid HTTP"),
    "an endless line between chunks": (_CHUNKED + b"1;" + b"x" * 100_000, "too long"),
    "an endless line": (b"H" * 100_000, "too long"),
    "an endless header": (_OK + b"X: " + b"x" * 100_000, "too long"),
    "endless headers": (_OK + b"X: x\r\n" * 30_000, "too long"),
    "endless trailers": (_CHUNKED + b"0\r\n" + b"X: x\r\n" * 30_000, "too long"),
    "only interim answers": (_INTERIM * 5, "closed before the answer ended"),
    "a flood of interim answers": (_INTERIM * 10_000, "announces an answer and does not give it"),
}
