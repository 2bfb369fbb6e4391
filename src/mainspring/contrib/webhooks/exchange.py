"""One request and its answer on an open line, in HTTP/1.1.

The receiver may be hostile: what is read is bounded in bytes and in parts, nothing is unpacked, no redirect is
followed. Whoever calls this sets the deadline, and closes the connection: it is never used again.
"""

from __future__ import annotations

from asyncio import StreamReader, StreamWriter
from collections.abc import Mapping
from typing import Final

import h11

from mainspring.contrib.webhooks.response import MOST_RESPONSE_BODY, Response, kept
from mainspring.contrib.webhooks.target import WebhookTarget
from mainspring.outcome import Failure

_LONGEST: Final = 32 * 1024  # a head, or a line between chunks; more is no answer
_READ: Final = 16 * 1024
_WIRE: Final = 256 * 1024  # bytes that are read at most, whatever surrounds the body
_PARTS: Final = 2000  # pieces of a body: thousands of tiny ones cost more time than they bring
_INTERIM: Final = 10  # answers before the answer, such as 100 and 103


class _Wire:
    """Bytes in, events out; at its end when the receiver has sent more than anyone needs."""

    def __init__(self, reader: StreamReader) -> None:
        self.http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_LONGEST)
        self._reader, self._left = reader, _WIRE

    async def event(self) -> h11.Event | None:
        """The next event; None when no more is read."""
        while True:
            try:
                event = self.http.next_event()
            except h11.RemoteProtocolError as error:
                raise Failure(self._problem(error), code="HttpException") from None
            if isinstance(event, h11.Event):
                return event
            if self._left <= 0:
                return None
            data = await self._reader.read(_READ)
            self._left -= len(data)
            self.http.receive_data(data)

    def _problem(self, error: h11.RemoteProtocolError) -> str:
        """What is wrong, in our words: the library's repeat what came."""
        if error.error_status_hint == 431:
            return "the answer has a line or headers that are too long"
        return (
            "the connection was closed before the answer ended"
            if self._reader.at_eof()
            else "the answer is no valid HTTP"
        )


async def exchange(
    reader: StreamReader, writer: StreamWriter, target: WebhookTarget, headers: Mapping[str, str], body: bytes
) -> Response:
    """Send a request and read its answer."""
    wire = _Wire(reader)
    request = {
        "host": target.authority,
        "user-agent": "Mainspring-Webhooks",
        "accept": "*/*",
        **{name.lower(): value for name, value in headers.items()},
        "accept-encoding": "identity",
        "connection": "close",
        "content-length": str(len(body)),
    }
    head = h11.Request(method="POST", target=target.path, headers=list(request.items()))
    # Not waited for: a receiver may answer before it has read everything, and its answer counts.
    writer.write(b"".join(wire.http.send(event) or b"" for event in (head, h11.Data(data=body), h11.EndOfMessage())))

    response = await wire.event()
    for _ in range(_INTERIM):
        if not isinstance(response, h11.InformationalResponse):
            break
        response = await wire.event()
    if not isinstance(response, h11.Response):
        raise Failure("the receiver announces an answer and does not give it", code="HttpException")
    headers_kept, cut = kept(response.headers)
    data = bytearray()
    for _ in range(_PARTS):
        event = await wire.event()
        if isinstance(event, h11.EndOfMessage):
            return Response(response.status_code, headers_kept, bytes(data), cut)
        if not isinstance(event, h11.Data):
            break
        data += event.data
        if len(data) > MOST_RESPONSE_BODY:
            break
    return Response(response.status_code, headers_kept, bytes(data[:MOST_RESPONSE_BODY]), truncated=True)
