"""Who may do what: every role over every operation, and nobody sees that another organisation exists."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from starlette.requests import HTTPConnection
from tests.databases import Database
from tests.web.api.visit import PEOPLE, ApiVisitor, TokenTable, address_of, greeted, problem, visiting_api
from tests.web.visit import visiting
from tests.worker.stage import Stage

import mainspring as ms
from mainspring.db import access
from mainspring.db.jobs import Who
from mainspring.db.wire.run import psycopg_door, run
from mainspring.db.wire.sql import Sql
from mainspring.declare.principal import Principal
from mainspring.web import create
from mainspring.web.api import http_api
from mainspring.web.api.asking import Asking
from mainspring.web.api.http_api import API_PREFIX
from mainspring.web.api.queues import QueueAct, QueueView, show_queue
from mainspring.web.api.resources import OPERATIONS

pytestmark = pytest.mark.anyio


async def test_every_forbidden_cell_of_the_matrix_is_refused_and_every_other_is_not(api: ApiVisitor) -> None:
    cells = 0
    for operation in OPERATIONS:
        for who in (None, "forged", *PEOPLE):
            answer = await api.ask(who, operation.method, address_of(operation), headers={"if-match": "*"})
            cells += 1
            if who is None or who not in PEOPLE:
                wanted = 401
            elif not PEOPLE[who].may(operation.role) or (operation.shared and PEOPLE[who].org is not None):
                wanted = 403
            else:
                assert answer.status_code not in (401, 403, 500), (operation.name, who, answer.text)
                continue
            assert problem(answer)[0] == wanted, (operation.name, who)
    assert cells == len(OPERATIONS) * (len(PEOPLE) + 2)


async def test_without_a_principal_every_address_is_the_same_401(api: ApiVisitor) -> None:
    answers = {
        (await api.ask(None, method, path)).text
        for method in ("GET", "POST", "DELETE")
        for path in ("/queues", "/queues/x/pause", "/openapi.json", "/nowhere", "/")
    }
    assert len(answers) == 1
    assert "UNAUTHORIZED" in answers.pop()


@pytest.mark.rule("ENG-1.08")
async def test_to_a_member_every_address_of_operators_is_the_same_403_the_consoles_too(api: ApiVisitor) -> None:
    places = ("/console", "/console/jobs/7", API_PREFIX, f"{API_PREFIX}/openapi.json", f"{API_PREFIX}/nowhere")
    answers = set()
    for place in places:
        for method in ("GET", "POST"):
            seen = {
                who: await api.http.request(method, place, headers={"authorization": f"Bearer {who}"})
                for who in ("member", "member.acme", "viewer.acme", "forged")
            }
            answers |= {(seen[who].status_code, seen[who].text) for who in ("member", "member.acme")}
            assert seen["forged"].status_code == 401
            assert seen["viewer.acme"].status_code in (200, 404, 405)
    assert len(answers) == 1
    assert problem(seen["member"]) == (403, "FORBIDDEN")


async def test_nobody_is_asked_for_a_body_before_they_are_known(api: ApiVisitor) -> None:
    async def never() -> AsyncIterator[bytes]:
        yield b"{"
        raise AssertionError("the body was read")

    for who in (None, "vic"):
        answer = await api.http.post(
            f"{API_PREFIX}/queues/x/pause",
            content=never(),
            headers={"content-type": "application/json"} | ({"authorization": f"Bearer {who}"} if who else {}),
        )
        assert answer.status_code == (403 if who else 401)


async def test_without_anything_said_the_users_and_tokens_of_the_database_may_ask(
    app: ms.App, database: Database
) -> None:
    with database.connect() as conn:
        who = Who(actor_type="user", actor_id="olga")
        create_one = access.create_token(Sql(), "deploys", access.Grant(role="viewer"), None, who)
        token = run(psycopg_door(conn), create_one)
    async with visiting(create(app)) as visitor:
        for headers, status in (({}, 401), ({"authorization": f"Bearer {token.text}"}, 200)):
            for path in ("/queues", "/openapi.json"):
                assert (await visitor.get(API_PREFIX + path, headers=headers)).status_code == status


async def test_on_a_secured_schema_there_is_no_api_without_its_logins(app: ms.App) -> None:
    app.secured = True
    async with visiting(create(app)) as visitor:
        for path in ("/queues", "/openapi.json"):
            assert (await visitor.get(API_PREFIX + path)).status_code == 404


async def test_a_job_of_another_organisation_is_answered_as_a_missing_one(api: ApiVisitor, stage: Stage) -> None:
    theirs = await greeted(stage.client, "globex")
    missing = "0199a8c3-1f00-7a52-9c11-5d2f3b6a7e01"
    for method, path in (("GET", "/jobs/{}"), ("POST", "/jobs/{}/cancel"), ("POST", "/jobs/{}/reveal")):
        seen = [await api.ask("operator.acme", method, path.format(id)) for id in (theirs, missing)]
        assert {(answer.status_code, answer.text) for answer in seen} == {(404, seen[0].text)}
        named = [
            await api.ask("operator.acme", method, path.format(theirs) + f"?org={org}") for org in ("globex", "nil")
        ]
        assert {answer.text for answer in named} == {seen[0].text}
    assert (await api.get("operator.globex", f"/jobs/{theirs}")).json()["state"] == "ready"
    assert (await api.get("ana", f"/jobs/{theirs}")).json()["org_id"] == "globex"
    assert (await api.get("ana", f"/jobs/{theirs}?org=acme")).text == seen[0].text


async def test_a_list_of_another_organisation_is_empty(api: ApiVisitor, stage: Stage) -> None:
    await greeted(stage.client, "globex")

    assert (await api.get("viewer.acme", "/queues?org=acme")).json()["items"]
    assert (await api.get("viewer.acme", "/queues?org=globex")).json() == {"items": [], "next": None}


async def test_what_access_refuses_is_the_answer_and_a_database_that_is_away_is_a_503(database: Database) -> None:
    class Away(TokenTable):
        async def principal(self, request: HTTPConnection) -> Principal | None:
            raise ms.ValidationError("csrf: is missing", field="csrf")

    app = ms.App(ms.Registry("shop"), dsn="postgresql://127.0.0.1:1/shop", maintenance=False)
    async with visiting(create(app, access=Away())) as visitor:
        assert problem(await visitor.get(f"{API_PREFIX}/queues")) == (400, "VALIDATION_ERROR")
    async with visiting_api(app) as api:
        answer = await api.get("vic", "/queues")
    assert problem(answer) == (503, "DB_UNAVAILABLE")
    assert answer.headers["retry-after"]


async def test_lost_connections_cost_one_answer_and_the_next_is_well(api: ApiVisitor, stage: Stage) -> None:
    await asyncio.gather(*(api.get("vic", "/queues") for _ in range(4)))
    lost = stage.conn.execute(
        "select count(*) from pg_stat_activity cross join lateral pg_terminate_backend(pid)"
        " where application_name = 'mainspring api' and datname = current_database()"
    ).fetchone()
    assert lost is not None
    assert lost[0] > 1

    assert problem(await api.get("vic", "/queues")) == (503, "DB_UNAVAILABLE")
    assert (await api.get("vic", "/queues")).status_code == 200


async def test_an_operation_that_takes_if_match_and_compares_nothing_changes_nothing(
    app: ms.App, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def careless(asking: Asking, name: str, body: QueueAct) -> QueueView:
        await asking.client.pause(name, conn=asking.conn)
        return await show_queue(asking, name)

    pausing = next(one for one in OPERATIONS if one.name == "pause_queue")
    monkeypatch.setattr(http_api, "OPERATIONS", [replace(pausing, handler=careless)])
    async with visiting_api(app) as api:
        headers = {"authorization": "Bearer ana", "if-match": "*"}
        answer = await api.http.post(f"{API_PREFIX}/queues/q:default/pause", headers=headers)
    assert problem(answer) == (500, "INTERNAL_ERROR")
    assert all(queue.paused_at is None for queue in await stage.client.queues())


async def test_the_log_names_the_operation_and_never_what_it_was_asked(
    api: ApiVisitor, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "mainspring.web"):
        await api.get("vic", "/queues/secret-name?org=secret-org")
    (line,) = [record for record in caplog.records if record.name == "mainspring.web"]
    assert line.getMessage() == "GET /api/v1/queues/{name} 404"
