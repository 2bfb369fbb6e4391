"""One request to one operation: role, address and body are looked at, then it is done in one transaction."""

from __future__ import annotations

import re
from dataclasses import replace
from hashlib import sha256
from typing import Any, Final, get_origin

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from mainspring.db.requests import KeptAnswer, begin, end
from mainspring.db.wire.run import async_psycopg_door, run_async
from mainspring.declare.caller import calling, current
from mainspring.declare.principal import Principal, who_asks
from mainspring.errors import MainspringError, ValidationError
from mainspring.job import DEFAULT_ORG, SYSTEM
from mainspring.web.api.asking import Asking
from mainspring.web.api.connections import Connections
from mainspring.web.api.operation import IDEMPOTENCY_KEY, Operation
from mainspring.web.api.paging import PageOf, Paging
from mainspring.web.api.refused import ApiRefused, not_found, refused_answer
from mainspring.web.api.version import Versioned, read_if_match
from mainspring.web.guarded_route import takes

ACCEPTED: Final = ("application/json",)
_KEY: Final = re.compile(IDEMPOTENCY_KEY)


class Performer:
    """Answers the requests to one operation."""

    def __init__(self, operation: Operation, connections: Connections) -> None:
        self._operation, self._connections = operation, connections

    async def answer(self, request: Request) -> Response:
        """Answer, or say what is wrong."""
        try:
            return await self._answer(request, who_asks(request))
        except MainspringError as error:
            refused = refused_answer(error)
            if refused is None:
                raise
            return refused

    async def _answer(self, request: Request, principal: Principal) -> Response:
        operation, inputs = self._operation, self._operation.inputs
        if not principal.may(operation.role):
            raise ApiRefused(403, "FORBIDDEN", f"This needs the role {operation.role}.")
        if operation.shared and principal.org is not None:
            raise ApiRefused(403, "FORBIDDEN", "This touches what belongs to all organisations.")
        if operation.writes and not takes(request.headers, ACCEPTED):
            raise ApiRefused(415, "UNSUPPORTED_MEDIA_TYPE", "The body must be application/json.")
        key = self._key(request)
        if_match = read_if_match(request.headers.get("if-match")) if operation.if_match else None
        if operation.if_match == "required" and if_match is None:
            raise ApiRefused(428, "PRECONDITION_REQUIRED", "If-Match: is missing: it says what you have seen.")
        query = inputs.of_query(request.query_params)
        named = query.pop("org")
        org = self._connections.org(principal.org or named or (SYSTEM if operation.about_access else None))
        given = inputs.of_path(request.path_params) | query
        if inputs.place is not None:
            filters = sorted((name, value) for name, value in given.items() if name not in ("limit", "cursor"))
            given["page"] = Paging(given.pop("limit"), given.pop("cursor"), inputs.place, operation.path, org, filters)
        given = inputs.arguments(given)
        raw = await request.body() if operation.writes else b""
        body = inputs.of_body(raw)
        if body is not None:
            given["body"] = body
        if principal.org is not None and named not in (None, principal.org):
            return self._elsewhere()
        return await self._do(principal, org, given, if_match, key, _fingerprint(request, raw))

    async def _do(
        self,
        principal: Principal,
        org: str | None,
        given: dict[str, Any],
        if_match: frozenset[str] | None,
        key: str | None,
        fingerprint: str,
    ) -> Response:
        operation, connections = self._operation, self._connections
        client, reader = (connections.client(operation.connects, reads_encrypted=reads) for reads in (False, True))
        caller = replace(current(), org_id=org, actor_type=principal.actor_type, actor_id=principal.name)
        kept_for, kept = (org or DEFAULT_ORG, _asker(principal), key or ""), None
        with calling(caller):
            async with connections.transaction(operation.connects, org, writes=operation.writes) as conn:
                asking = Asking(
                    principal, org, client, conn, reader=reader, registry=connections.registry, if_match=if_match
                )
                if key is not None:
                    kept = await asking.ask(begin(asking.sql, *kept_for, fingerprint))
                if kept is None:
                    made = self._made(await operation.handler(asking, **given))
                    assert asking.compared or not operation.if_match, f"{operation.name} compares no version"
                    if key is not None:
                        await asking.ask(end(asking.sql, *kept_for, made))
                elif kept.fingerprint != fingerprint:
                    raise ApiRefused(422, "IDEMPOTENCY_KEY_REUSED", "Idempotency-Key: was another request's.")
                else:
                    made = kept
            for dialogue in asking.rest:
                async with connections.transaction(operation.connects, org, writes=True) as conn:
                    await run_async(async_psycopg_door(conn), dialogue)
            client.seam.tell(None, *asking.events)
        return _response(made, again=kept is not None)

    def _made(self, answer: Any) -> KeptAnswer:
        body = "" if answer is None else msgspec.json.encode(answer).decode()
        etag = answer.etag if isinstance(answer, Versioned) else None
        return KeptAnswer("", self._operation.status, etag, body)

    def _elsewhere(self) -> Response:
        """What another organisation's are to who belongs to one: none."""
        if get_origin(self._operation.answer) is PageOf and not self._operation.writes:
            return _response(self._made(PageOf(items=[])))
        raise not_found()

    def _key(self, request: Request) -> str | None:
        key = request.headers.get("idempotency-key")
        if key is None or not self._operation.writes:
            return None
        if not self._operation.keeps:
            raise ValidationError("Idempotency-Key: is not taken here", field="Idempotency-Key")
        if not _KEY.fullmatch(key):
            text = "Idempotency-Key: is not 1 to 200 characters of printable ASCII without spaces"
            raise ValidationError(text, field="Idempotency-Key")
        return key


def _asker(principal: Principal) -> str:
    """Whose keys these are, whatever others are called."""
    return sha256(msgspec.json.encode(principal.key)).hexdigest()


def _fingerprint(request: Request, raw: bytes) -> str:
    """What tells two requests apart."""
    about = [request.method, request.url.path, request.url.query, request.headers.get("if-match") or ""]
    return sha256("\n".join(about).encode("utf-8", "replace") + b"\n" + raw).hexdigest()


def _response(made: KeptAnswer, *, again: bool = False) -> Response:
    headers = {"idempotent-replayed": "true"} if again else {}
    if made.etag is not None:
        headers["etag"] = made.etag
    if not made.body:
        return Response(status_code=made.status, headers=headers)
    return Response(made.body, status_code=made.status, headers=headers, media_type="application/json")
