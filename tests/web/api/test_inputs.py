"""What is wrong with a request is said in one sentence that names it, and is never a 500."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, get_type_hints
from urllib.parse import quote
from uuid import UUID

import msgspec
import pytest
from starlette.datastructures import QueryParams
from tests.web.api.visit import SOME_ID, ApiVisitor, problem
from tests.worker.stage import Stage

from mainspring.errors import DeclarationError, ValidationError
from mainspring.states import State
from mainspring.web.api.asking import Asking
from mainspring.web.api.inputs import Inputs
from mainspring.web.api.operation import Resource

pytestmark = pytest.mark.anyio

WRONG = [
    ("/queues?limti=3", "limti: is not a parameter (did you mean 'limit'?)"),
    ("/queues?limit=0", "limit: expected int >= 1"),
    ("/queues?limit=201", "limit: expected int <= 200"),
    ("/queues?limit=1000000000", "limit: expected int <= 200"),
    ("/queues?limit=ten", "limit: expected int, got str"),
    ("/queues?limit=1&limit=2", "limit: is given twice"),
    ("/queues?limit=", "limit: is empty"),
    ("/queues?org=a%00b", "org: has a control character"),
    ("/jobs?created_from=0001-01-01T00:00:00%2B05:00", "created_from: is before the year 1 or after the year 9999"),
    ("/queues?cursor=x", "cursor: is not one of this list with these filters"),
    ("/queues/" + "x" * 64, "name: expected str of length <= 63"),
    ("/queues/a%1bb", None),  # the guard's: no path has a control character
    ("/jobs/7", "id: invalid UUID"),
    (f"/jobs/{SOME_ID}?%1b[2J=1", "�[2J: is not a parameter"),
]
BODIES: list[tuple[bytes, str]] = [
    (b"{", "body: input data was truncated"),
    (b"[]", "body: expected object, got array"),
    (b"null", "body: expected object, got null"),
    (b'{"reson": "x"}', "reson: is not a field (did you mean 'reason'?)"),
    (b'{"reason": 7}', "reason: expected str | null, got int"),
    (b'{"reason": "\\u0000"}', "body: has a NUL character, which cannot be stored"),
    (b'{"reason": "\xff"}', "body: is not valid UTF-8"),
    (b'{"reason": "\\ud800"}', "body: "),
    (b"[" * 100_000, "body: "),
    (b'{"reason": NaN}', "body: JSON is malformed"),
    (json.dumps({"reason": "x" * 1001}).encode(), "reason: expected str of length <= 1000"),
    (json.dumps({"reason": "a\u202eb"}).encode(), "reason: "),
]


@pytest.mark.cases(99)  # without a job or a queue it costs nothing
@pytest.mark.parametrize(("path", "said"), WRONG, ids=lambda one: str(one)[:30])
async def test_a_wrong_parameter_is_named(api: ApiVisitor, path: str, said: str | None) -> None:
    answer = await api.get("vic", path)

    if said is None:
        assert problem(answer) == (404, "NOT_FOUND")
    else:
        assert problem(answer) == (400, "VALIDATION_ERROR")
        assert answer.json()["detail"] == said
        assert answer.json()["field"] == said.partition(":")[0]


async def test_an_instant_may_have_an_offset_that_no_zone_has(api: ApiVisitor, stage: Stage) -> None:
    """PostgreSQL takes none beyond 15 hours: wherever one may stand, it is the instant that counts."""
    odd, plain = "2026-11-19T10:00:00+23:26", "2026-11-18T10:34:00Z"
    for path in ("/fires?until=", "/jobs?created_to=", "/dead-letters?since=", "/audit?until="):
        assert (await api.get("vic", path + quote(odd))).status_code == 200
    order = {"task": "greet", "payload": {"name": "Ada"}, "at": "2100-01-01T10:00:00-20:00"}
    made = (await api.post("ana", "/jobs", order)).json()["id"]
    assert (await api.get("ana", f"/jobs/{made}")).json()["due_at"] == "2100-01-02T06:00:00Z"
    for name in ("one", "two"):
        assert (await api.post("root", "/tokens", {"name": name})).status_code == 201
    whole = (await api.get("root", "/tokens?limit=1")).json()["next"]
    moved, count = re.subn(rb"Z\b", b"+23:26", base64.urlsafe_b64decode(whole + "=="))
    assert count == 1
    cursor = base64.urlsafe_b64encode(moved).decode().rstrip("=")
    assert (await api.get("root", f"/tokens?limit=1&cursor={cursor}")).status_code == 200
    page = (await api.get("vic", f"/fires?until={quote(plain)}")).json()
    assert page == (await api.get("vic", f"/fires?until={quote(odd)}")).json()


async def test_a_wrong_body_is_named(api: ApiVisitor, stage: Stage) -> None:
    for raw, said in BODIES:
        headers = {"content-type": "application/json"}
        answer = await api.ask("ana", "POST", f"/jobs/{SOME_ID}/cancel", content=raw, headers=headers)
        if said != "reason: ":  # a text that the engine refuses, once it has found a job
            assert problem(answer) == (400, "VALIDATION_ERROR"), raw[:40]
            assert answer.json()["detail"].startswith(said), raw[:40]
        else:
            assert problem(answer)[0] == 404


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
async def test_a_body_of_another_kind_is_refused(api: ApiVisitor, kind: str) -> None:
    answer = await api.ask("ana", "POST", "/queues/x/pause", content=b"{}", headers={"content-type": kind})

    assert problem(answer) == (415, "UNSUPPORTED_MEDIA_TYPE")


async def test_a_body_where_none_is_taken_and_another_method_are_refused(api: ApiVisitor) -> None:
    assert problem(await api.post("root", f"/jobs/{SOME_ID}/reveal", {"all": True})) == (400, "VALIDATION_ERROR")
    assert problem(await api.ask("root", "PUT", "/queues")) == (405, "METHOD_NOT_ALLOWED")
    assert problem(await api.get("root", "/queues/")) == (404, "NOT_FOUND")


async def test_a_slash_in_a_name_is_a_letter_of_it(api: ApiVisitor, stage: Stage) -> None:
    """`%2F` is of the name, also where the rest of it looks like an act."""
    for name in ("a/b", "a/pause", "/", "a//b", "%2F"):
        await stage.client.pause(name)
        at = "/queues/" + quote(name, safe="")
        assert (await api.get("vic", at)).json()["name"] == name
        assert (await api.get("vic", f"{at}/fair")).json()["queue"] == name
        answer = await api.post("ana", f"{at}/resume", {}, headers={"if-match": "*"})
        assert (answer.json()["name"], answer.json()["paused_at"]) == (name, None)
    assert problem(await api.get("vic", "/queues/a/b")) == (404, "NOT_FOUND")
    assert problem(await api.get("vic", "/queues/a%1fb"))[0] == 404  # what holds a slash back is in no address
    assert problem(await api.get("vic", "/queues/a%2F..%2Fb"))[0] == 404


def forged(whole: str, place: Callable[[Any], Any] = lambda place: place) -> list[str]:
    """Cursors like this one, which nobody was given."""
    digest, at = json.loads(base64.urlsafe_b64decode(whole + "=="))
    others: list[Any] = [[digest, 7], [digest], [digest, None], ["0" * 16, at], [digest, at, at], {"a": 1}, None]
    return [base64.urlsafe_b64encode(json.dumps(one).encode()).decode() for one in others] + [
        whole[:-4], whole[::-1], "%%%", "é", "=", "A" * 900, base64.urlsafe_b64encode(b"[" * 600).decode()
    ]  # fmt: skip


async def test_pages_show_all_once_in_order_and_a_forged_cursor_is_refused(api: ApiVisitor, stage: Stage) -> None:
    for number in range(5):
        await stage.client.pause(f"lane:{number}")
    names = sorted(queue.name for queue in await stage.client.queues())
    seen, cursor = [], ""
    while True:
        page = (await api.get("viewer.acme", f"/queues?limit=2{cursor}")).json()
        assert len(page["items"]) <= 2
        seen += [queue["name"] for queue in page["items"]]
        if page["next"] is None:
            break
        whole, cursor = page["next"], f"&cursor={page['next']}"
    assert seen == names
    for cursor in forged(whole):
        answer = await api.get("viewer.acme", "/queues", params={"limit": 2, "cursor": cursor})
        assert problem(answer) == (400, "VALIDATION_ERROR"), cursor
        assert answer.json()["field"] == "cursor"
    assert problem(await api.get("vic", f"/queues?limit=2&cursor={whole}"))[0] == 400  # it was made for acme
    assert problem(await api.get("vic", f"/queues?limit=2&cursor={whole}&org=globex"))[0] == 400
    assert (await api.get("vic", f"/queues?limit=2&cursor={whole}&org=acme")).status_code == 200


def test_a_mistake_in_a_declaration_appears_at_import() -> None:
    lanes = Resource("lanes", "")

    class Loose(msgspec.Struct):
        reason: str

    async def no_answer(asking: Asking, name: str):  # type: ignore[no-untyped-def]  # what is wrong here
        """Answer what?"""

    async def other_path(asking: Asking, id: str) -> Loose:
        """See one."""
        raise NotImplementedError

    async def loose(asking: Asking, name: str, body: Loose) -> Loose:
        """Do something."""
        raise NotImplementedError

    for handler in (no_answer, other_path, loose):
        handler.__annotations__ = {**handler.__annotations__, **({"body": Loose} if handler is loose else {})}
        if handler is not no_answer:
            handler.__annotations__["return"] = Loose
        with pytest.raises(DeclarationError):
            lanes.post("/lanes/{name}", role="operator")(handler)
    assert lanes.operations == []


def test_parameters_are_read_by_their_types() -> None:
    async def search(
        asking: Asking, id: UUID, state: tuple[State, ...] = (), since: datetime | None = None, deep: bool = False
    ) -> None:
        """Find some."""

    inputs = Inputs(search, "/things/{id}", get_type_hints(search, include_extras=True))
    found = inputs.of_query(QueryParams("state=ready&state=dead&since=2026-11-18T20:00:00Z&deep=true"))
    assert found == {
        "org": None, "state": (State.READY, State.DEAD), "since": datetime(2026, 11, 18, 20, tzinfo=UTC), "deep": True
    }  # fmt: skip
    assert inputs.of_query(QueryParams("")) == {"org": None, "state": (), "since": None, "deep": False}
    assert inputs.of_path({"id": SOME_ID}) == {"id": UUID(SOME_ID)}
    for wrong in ("since=2026-11-18T20:00:00", "since=now", "state=asleep", "deep=perhaps", "state=ready&state="):
        with pytest.raises(ValidationError, match=f"^{wrong.partition('=')[0]}"):
            inputs.of_query(QueryParams(wrong))
