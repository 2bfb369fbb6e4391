"""Requests to the marketplace over HTTP, as anybody may send them."""

from __future__ import annotations

import json
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

TOKEN = "a token of the tests"
TOKENS = {"STAFFING_TOKEN": TOKEN}


def ask(url: str, path: str, body: Any = None, *, method: str | None = None, **headers: str) -> tuple[int, Any]:
    """Status and JSON of an answer, with the token unless headers are given; a body is said to be JSON."""
    headers = headers or {"Authorization": f"Bearer {TOKEN}"}
    data = body.encode() if isinstance(body, str) else body
    if data is not None and not isinstance(data, bytes):
        data = json.dumps(data).encode()
    headers = {"Content-Type": "application/json"} | headers
    request = Request(f"{url}/staffing{path}", data, headers, method=method)
    try:
        with urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        return error.code, json.load(error)
