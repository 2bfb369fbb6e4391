"""Prints docs/api.md from the operations of the API: `python -m tools.api_page > docs/api.md`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from mainspring.web.api.http_api import API_DOCUMENT, API_PREFIX
from mainspring.web.api.openapi import document
from mainspring.web.api.resources import OPERATIONS, RESOURCES

INTRO = f"""\
# HTTP API

Printed from the operations by `python -m tools.api_page`; a test compares. The same, for programs, is the OpenAPI 3.1
document that the server shows at `{API_PREFIX}{API_DOCUMENT}`. [The guide](guides/api.md) says how to ask.
"""


def page() -> str:
    """The whole page."""
    whole = document(API_PREFIX)
    parts = [INTRO]
    for resource in RESOURCES:
        parts += [f"## {resource.name.capitalize()}", resource.about]
        for one in resource.operations:
            parts += _operation(one.method, API_PREFIX + one.path, whole)
    parts += ["## Types", *_schemas(whole)]
    assert len(whole["paths"]) <= len(OPERATIONS)
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _operation(method: str, path: str, whole: dict[str, Any]) -> Iterator[str]:
    said = whole["paths"][path][method.lower()]
    yield f"### {said['operationId'].replace('_', ' ')}"
    yield f"```text\n{method} {path}\n```"
    yield f"{said['summary']} {said['description']}"
    rows = [(one["name"], one["in"], _need(one["required"]), _about(one)) for one in said["parameters"]]
    for body in said.get("requestBody", {}).get("content", {}).values():
        schema = whole["components"]["schemas"][_name(body["schema"])]
        for name, field in schema["properties"].items():
            rows.append((name, "body", _need(name in schema.get("required", ())), _about({"schema": field} | field)))
    if rows:
        yield _table(("name", "in", "", "meaning"), rows)
    answers = [
        f"{status} {_kind(answer['content']['application/json']['schema']) if 'content' in answer else ''}".strip()
        for status, answer in said["responses"].items()
        if status < "300"
    ]
    problems = ", ".join(status for status in said["responses"] if status >= "300")
    yield f"Answers {', '.join(answers)}; or problem+json with {problems}."


def _schemas(whole: dict[str, Any]) -> Iterator[str]:
    for name, schema in sorted(whole["components"]["schemas"].items()):
        if "properties" in schema:
            yield f"### {_title(name)}"
            if "description" in schema:
                yield schema["description"]
            rows = [
                (field, _kind(said), _about({"schema": said} | said)) for field, said in schema["properties"].items()
            ]
            yield _table(("field", "type", "meaning"), rows)


def _need(required: bool) -> str:
    return "required" if required else ""


def _about(said: dict[str, Any]) -> str:
    schema = said["schema"]
    parts = [said.get("description", "")]
    inner = schema.get("anyOf", [schema])[0]
    bounds = [f"{word} {inner[key]}" for key, word in (("minimum", "at least"), ("maximum", "at most")) if key in inner]
    if "maxLength" in inner:
        bounds.append(f"at most {inner['maxLength']} characters")
    if schema.get("default") is not None:
        bounds.append(f"default {schema['default']}")
    return " ".join([*filter(None, parts), *([f"({', '.join(bounds)})"] if bounds else [])])


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = _name(schema)
        title = _title(name)
        return f"[{title}](#{title.lower().replace(' ', '-')})"
    if "anyOf" in schema:
        return " or ".join(_kind(one) for one in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"])
    return str(schema.get("format") or schema.get("type") or "any")


def _name(schema: dict[str, Any]) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


def _title(name: str) -> str:
    """The name of a type; that of a generic one without its brackets, which an anchor could not have."""
    return re.sub("_(.*)_", r" of \1", name)


def _table(head: tuple[str, ...], rows: list[Any]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


if __name__ == "__main__":
    print(page(), end="")
