"""The marketplace over HTTP, for tests: a server in a thread, and requests as anybody may send them."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import mainspring as ms
from mainspring.web import Server


@contextmanager
def served(app: ms.App) -> Iterator[str]:
    """Serve an application while the block runs; answers its address."""
    server = Server(app, port=0)
    url = server.listen()
    thread = threading.Thread(target=lambda: asyncio.run(server.run(signals=False)))
    thread.start()
    try:
        yield url
    finally:
        server.stop()
        thread.join(20)


def ask(url: str, path: str, body: Any = None, *, method: str | None = None, **headers: str) -> tuple[int, Any]:
    """Status and JSON of an answer; a body that is no text or bytes is sent as JSON."""
    data = body.encode() if isinstance(body, str) else body
    if data is not None and not isinstance(data, bytes):
        data = json.dumps(data).encode()
    request = Request(f"{url}/staffing{path}", data, headers, method=method)
    try:
        with urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        return error.code, json.load(error)
