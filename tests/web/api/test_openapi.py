"""The OpenAPI document says what the API does, and the page of the API is printed from it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from tests.docs.pages import ROOT
from tests.web.api.contract import contract, resolved
from tests.web.api.visit import ApiVisitor
from tools.api_page import page

from mainspring.web.api.resources import OPERATIONS, RESOURCES

pytestmark = pytest.mark.anyio

METHODS = {"get", "post", "put", "patch", "delete"}


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in contract()["paths"].items():
        for method, said in methods.items():
            yield method, path, said


def nodes(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
        for inner in node.values():
            yield from nodes(inner)
    elif isinstance(node, list):
        for inner in node:
            yield from nodes(inner)


async def test_it_is_served_to_who_is_known(api: ApiVisitor) -> None:
    assert (await api.get("vic", "/openapi.json")).json() == contract()
    assert (await api.get(None, "/openapi.json")).status_code == 401


def test_it_is_a_document_of_openapi_3_1() -> None:
    whole = contract()
    assert whole["openapi"] == "3.1.0"
    assert {"title", "version"} <= set(whole["info"])
    assert json.loads(json.dumps(whole)) == whole
    names = [said["operationId"] for _, _, said in operations()]
    assert len(names) == len(set(names)) == len(OPERATIONS)
    tags = {tag["name"] for tag in whole["tags"]}
    for need in whole["security"]:
        assert need.keys() <= whole["components"]["securitySchemes"].keys()
    for method, path, said in operations():
        assert method in METHODS
        assert said["summary"].endswith((".", ":"))
        assert set(said["tags"]) <= tags
        parameters = [(one["in"], one["name"]) for one in said["parameters"]]
        assert len(parameters) == len(set(parameters))
        assert {name for place, name in parameters if place == "path"} == set(re.findall(r"{(\w+)}", path))
        assert all(one["required"] for one in said["parameters"] if one["in"] == "path")
        for status, answer in said["responses"].items():
            assert re.fullmatch(r"[2-5]\d\d", status)
            assert resolved(answer)["description"]


def test_every_schema_in_it_is_one_and_every_reference_leads_somewhere() -> None:
    for node in nodes(contract()):
        if "$ref" in node:
            assert resolved(node)
        if isinstance(node.get("schema"), dict):
            Draft202012Validator.check_schema(node["schema"])
    for schema in contract()["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


def test_examples_are_what_their_schemas_admit() -> None:
    for node in nodes(contract()["components"]["schemas"]):
        for example in node.get("examples", ()) if isinstance(node.get("examples"), list) else ():
            Draft202012Validator(node | {"components": contract()["components"]}).validate(example)


def test_every_operation_says_who_may_and_every_resource_has_some() -> None:
    for one in OPERATIONS:
        assert contract()["paths"][f"/api/v1{one.path}"][one.method.lower()]["x-role"] == one.role
        assert one.method == "GET" or one.role != "viewer" or one.name == "reveal_job", one.name
    assert all(resource.operations and resource.about.endswith(".") for resource in RESOURCES)


def test_the_page_of_the_api_is_printed_from_it() -> None:
    assert (ROOT / "docs" / "api.md").read_text() == page(), "run `python -m tools.api_page > docs/api.md`"
