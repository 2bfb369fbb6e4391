"""The OpenAPI 3.1 document, made from the operations."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Final

import msgspec

import mainspring
from mainspring.web.api.operation import IDEMPOTENCY_KEY, Operation
from mainspring.web.api.resources import OPERATIONS, RESOURCES

_REF: Final = "#/components/schemas/{name}"
_PROBLEM: Final = "application/problem+json"
_IF_MATCH: Final = r'^(\*|"[!#-~]+")$'
_SESSION_COOKIE: Final = "__Host-mainspring"
#: What may be answered to any request at all: by the checks before it, the limits, and a database that is away.
EVERYWHERE: Final = (400, 401, 403, 404, 405, 408, 413, 414, 429, 431, 503)

#: What is an instant besides `…_at`.
_INSTANTS: Final = frozenset({"at", "scheduled_for", "oldest", "newest"})

_ETAG: Final = {"description": "The version, for If-Match.", "schema": {"type": "string"}}
_REPLAYED: Final = {"description": "`true` where the key was answered before.", "schema": {"type": "string"}}

_RETRY_AFTER: Final = {"description": "So many seconds.", "schema": {"type": "integer"}}


class ProblemView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is wrong (RFC 9457): `code` for programs, `detail` for people, `field` where it is about one."""

    type: str = "about:blank"
    title: str
    status: int
    code: Annotated[str, msgspec.Meta(examples=["VALIDATION_ERROR"])]
    detail: Annotated[str, msgspec.Meta(examples=["limit: expected int <= 200"])]
    field: str | None = None


def document(prefix: str) -> dict[str, Any]:
    """The whole document."""
    kinds = [ProblemView, *(kind for one in OPERATIONS for kind in _kinds(one))]
    found, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    _say_instants(components)
    schemas = iter(found[1:])
    paths: dict[str, Any] = {}
    for one in OPERATIONS:
        mine = [next(schemas) for _ in _kinds(one)]
        paths.setdefault(prefix + one.path, {})[one.method.lower()] = _operation(one, mine)
    problem = {"content": {_PROBLEM: {"schema": {"$ref": _REF.format(name="ProblemView")}}}}
    whole = {
        "openapi": "3.1.0",
        "info": {
            "title": "Mainspring",
            "version": mainspring.__version__,
            "description": "Jobs, queues and what people do to them. Times are UTC; errors are problem+json.",
        },
        "tags": [{"name": resource.name, "description": resource.about} for resource in RESOURCES],
        "security": [{"token": []}, {"session": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": {
                "Problem": {"description": "What is wrong."} | problem,
                "Later": {"description": "What is wrong now.", "headers": {"Retry-After": _RETRY_AFTER}} | problem,
            },
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": _SESSION_COOKIE},
            },
        },
    }
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(whole))  # defaults may be tuples
    return plain


def _say_instants(components: dict[str, Any]) -> None:
    """Say what is an instant by its name, also where rows of the database are shown as they are."""
    for schema in components.values():
        for name, said in schema.get("properties", {}).items():
            if name in _INSTANTS or name.endswith("_at"):
                for kind in said.get("anyOf", [said]):
                    kind |= {"format": "date-time"} if kind.get("type") == "string" else {}


def statuses(one: Operation) -> list[int]:
    """The problems that an operation may answer."""
    own = {*EVERYWHERE, *one.refuses}
    if one.writes:
        own |= {409, 415}  # another write was quicker, and the body is of another kind
    if one.writes and one.keeps:
        own.add(422)
    if one.if_match:
        own.add(412)
    if one.if_match == "required":
        own.add(428)
    return sorted(own)


def _kinds(one: Operation) -> list[Any]:
    """Every type that stands in the description of an operation, in the order in which it is used."""
    inputs = one.inputs
    kinds = [field.type for kind in (inputs.path, inputs.query) for field in msgspec.structs.fields(kind)]
    return [*kinds, *([] if inputs.body is None else [inputs.body]), one.answer]


def _operation(one: Operation, schemas: list[Any]) -> dict[str, Any]:
    inputs, rest = one.inputs, iter(schemas)
    parameters = [
        _parameter(field, next(rest), place)
        for place, kind in (("path", inputs.path), ("query", inputs.query))
        for field in msgspec.structs.fields(kind)
    ]
    if one.if_match:
        about = "The ETag of what was seen, or `*`."
        parameters.append(_header("If-Match", about, _IF_MATCH, required=one.if_match == "required"))
    if one.writes and one.keeps:
        about = "Sent again within a day, it is answered the same."
        parameters.append(_header("Idempotency-Key", about, IDEMPOTENCY_KEY))
    about, _, more = one.about.partition("\n")
    said: dict[str, Any] = {
        "operationId": one.name,
        "tags": [one.resource],
        "summary": about,
        "description": " ".join([*more.split(), f"Needs the role {one.role}{_whose(one)}."]),
        "parameters": parameters,
        "x-role": one.role,
    }
    if inputs.body is not None:
        required = any(field.required for field in msgspec.structs.fields(inputs.body))
        said["requestBody"] = {"required": required, "content": {"application/json": {"schema": next(rest)}}}
    return said | {"responses": _responses(one, next(rest))}


def _whose(one: Operation) -> str:
    return " for all organisations" if one.shared else ""


def _responses(one: Operation, schema: Any) -> dict[str, Any]:
    done: dict[str, Any] = {"description": HTTPStatus(one.status).phrase}
    headers = ({"ETag": _ETAG} if one.versioned else {}) | (
        {"Idempotent-Replayed": _REPLAYED} if one.writes and one.keeps else {}
    )
    if one.answer is not type(None):
        done["content"] = {"application/json": {"schema": schema}}
    problems = {str(status): {"$ref": f"#/components/responses/{_form(status)}"} for status in statuses(one)}
    return {str(one.status): done | ({"headers": headers} if headers else {})} | problems


def _form(status: int) -> str:
    return "Later" if status in (429, 503) else "Problem"


def _parameter(field: Any, schema: dict[str, Any], place: str) -> dict[str, Any]:
    said = {"name": field.name, "in": place, "required": place == "path" or field.required}
    description = schema.pop("description", "")
    if not field.required and place == "query" and field.default is not None:
        schema = schema | {"default": msgspec.json.decode(msgspec.json.encode(field.default))}
    return said | ({"description": description} if description else {}) | {"schema": schema}


def _header(name: str, description: str, pattern: str, *, required: bool = False) -> dict[str, Any]:
    return {
        "name": name,
        "in": "header",
        "required": required,
        "description": description,
        "schema": {"type": "string", "pattern": pattern},
    }
