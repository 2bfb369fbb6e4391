"""Visitors of the HTTP API: people of every role, known by tokens that only the tests know."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import httpx2
from starlette.requests import HTTPConnection
from tests.web.api.contract import check_answer
from tests.web.visit import visiting

import mainspring as ms
from mainspring.declare.principal import ACCESS_ROLES, Principal
from mainspring.web import create
from mainspring.web.api.http_api import API_PREFIX
from mainspring.web.api.operation import Operation
from mainspring.web.guarded_route import bearer

#: `ana` is an operator of all organisations; a name with a dot belongs to that organisation only.
PEOPLE: Mapping[str, Principal] = {
    "root": Principal("root", "admin", reveals=True),
    "ana": Principal("ana", "operator"),
    "vic": Principal("vic", "viewer"),
    "member": Principal("member", "member"),
    **{f"{role}.acme": Principal(f"{role}.acme", role, org="acme") for role in ACCESS_ROLES},
    "operator.globex": Principal("operator.globex", "operator", org="globex"),
}
SOME_ID = "0199a8c3-1f00-7a52-9c11-5d2f3b6a7e01"


class TokenTable:
    """Who has which token."""

    def __init__(self, people: Mapping[str, Principal] = PEOPLE) -> None:
        self._people = people

    async def principal(self, request: HTTPConnection) -> Principal | None:
        return self._people.get(bearer(request.headers) or "")


class ApiVisitor:
    """Asks in the name of somebody."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self.http = http

    async def ask(self, who: str | None, method: str, path: str, **how: Any) -> httpx2.Response:
        headers = {"authorization": f"Bearer {who}"} if who else {}
        headers |= how.pop("headers", {})
        answer = await self.http.request(method, API_PREFIX + path, headers=headers, **how)
        check_answer(method, answer)
        return answer

    async def get(self, who: str | None, path: str, **how: Any) -> httpx2.Response:
        return await self.ask(who, "GET", path, **how)

    async def post(self, who: str | None, path: str, body: Any = None, **how: Any) -> httpx2.Response:
        return await self.ask(who, "POST", path, **({} if body is None else {"json": body}) | how)


@asynccontextmanager
async def visiting_api(app: ms.App) -> AsyncIterator[ApiVisitor]:
    async with visiting(create(app, access=TokenTable())) as http:
        yield ApiVisitor(http)


def address_of(operation: Operation) -> str:
    """An address of an operation that names nothing."""
    values = {name: SOME_ID if "UUID" in str(kind) else "nothing" for name, kind in _path_types(operation).items()}
    return operation.path.format(**values)


def _path_types(operation: Operation) -> dict[str, Any]:
    kind = operation.inputs.path
    return {name: kind.__annotations__[name] for name in kind.__struct_fields__}


def problem(answer: httpx2.Response) -> tuple[int, str]:
    """The status and the code of what was refused; a refusal has one form."""
    said = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert said["status"] == answer.status_code
    assert set(said) <= {"type", "title", "status", "code", "detail", "field"}
    return answer.status_code, said["code"]


async def greeted(client: ms.AsyncClient, org: str = "acme", **payload: Any) -> UUID:
    """A job that waits."""
    task = ms.Registry("shop").task(name="greet")(_greet)
    return (await client.enqueue(task.job(**({"name": "Ada"} | payload)).for_org(org))).id


async def _greet(*, name: str) -> None: ...
