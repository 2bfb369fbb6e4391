"""On a secured schema the server knows people by the login of the application, which lets nobody in on a word alone."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from tests.secured import Secured
from tests.web.access.conftest import ME, PASSWORD, SQL
from tests.web.visit import visiting

import mainspring as ms
from mainspring.db import access
from mainspring.db.access import Grant
from mainspring.db.wire.run import psycopg_door, run
from mainspring.web import create

pytestmark = pytest.mark.anyio

BROUGHT = {"x-forwarded-proto": "https", "x-forwarded-for": "203.0.113.9", "x-user": "ben"}


async def test_the_server_knows_people_and_vouching_needs_the_operator(
    secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAINSPRING_PROXY_USER_HEADER", "X-User")
    monkeypatch.setenv("MAINSPRING_SIGN_IN_ROLES", "ben=operator@globex")
    with secured.connect("operator", "acme") as conn:
        grant = Grant(role="operator", org="acme")
        run(psycopg_door(conn), access.create_user(SQL, "ana", grant, PASSWORD, ME))
    app = ms.App(ms.Registry("shop"), dsn=secured.dsn("api"), secured=True, maintenance=False)

    async def enter(**known: str) -> list[int]:
        for setting, dsn in known.items():
            monkeypatch.setenv(setting, dsn)
        web = create(app, proxies=["10.0.0.0/8"])
        async with visiting(web, client=("10.0.0.2", 5000)) as visitor:
            visitor.base_url = httpx2.URL("https://localhost")
            typed = {"name": "ana", "password": PASSWORD}
            answers: list[Any] = [await visitor.post("/api/v1/sign-in", json=typed, headers=BROUGHT)]
            answers.append(await visitor.get("/api/v1/me", headers=BROUGHT))
            answers.append(await visitor.post("/api/v1/sign-in/proxy", headers=BROUGHT))
            return [answer.status_code for answer in answers]

    assert await enter() == [200, 200, 403]
    assert await enter(MAINSPRING_OPERATOR_DSN=secured.dsn("operator")) == [200, 200, 200]
    trail = "select org_id, actor_id, event from mainspring.audit where event <> 'access.user_created' order by id"
    assert secured.do(trail) == [
        ("acme", "ana", "access.signed_in"),
        ("acme", "ana", "access.signed_in"),
        ("globex", "ben", "access.signed_in"),
    ]
