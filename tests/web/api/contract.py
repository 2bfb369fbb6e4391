"""The OpenAPI document as a contract: every answer that a test gets is held to it."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import httpx2
from jsonschema import Draft202012Validator

from mainspring.web.api.http_api import API_PREFIX
from mainspring.web.api.openapi import document


@cache
def contract() -> dict[str, Any]:
    return document(API_PREFIX)


def check_answer(method: str, answer: httpx2.Response) -> None:
    """Assert that an answer is one that the document announces."""
    declared = described(method, answer.url.raw_path.decode().partition("?")[0])
    assert answer.status_code < 500 or answer.status_code == 503, answer.text
    if declared is None:
        return
    responses = declared["responses"]
    assert str(answer.status_code) in responses, f"{method} {answer.url.path}: {answer.status_code} is not documented"
    said = resolved(responses[str(answer.status_code)])
    if "content" not in said:
        assert answer.content == b""
        return
    kind = answer.headers["content-type"]
    assert kind in said["content"], f"{method} {answer.url.path}: {kind} is not documented"
    validator(said["content"][kind]["schema"]).validate(answer.json())
    etag = "ETag" in said.get("headers", {})
    assert etag == ("etag" in answer.headers)


def described(method: str, path: str) -> dict[str, Any] | None:
    for template, methods in contract()["paths"].items():
        if re.fullmatch(re.sub(r"{\w+}", "[^/]+", template), path):
            found: dict[str, Any] | None = methods.get(method.lower())
            return found
    return None


def resolved(node: dict[str, Any]) -> dict[str, Any]:
    """What a reference leads to."""
    while "$ref" in node:
        parts = node["$ref"].removeprefix("#/").split("/")
        node = contract()
        for part in parts:
            node = node[part]
    return node


def validator(schema: dict[str, Any]) -> Draft202012Validator:
    return Draft202012Validator(schema | {"components": contract()["components"]})
