"""Sign-in by the header of a reverse proxy that is named."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from tests.web.access.conftest import SQL, House

from mainspring.db import access
from mainspring.errors import ConfigurationError
from mainspring.web import create
from mainspring.web.access.vouched import RoleMap, Vouching

pytestmark = pytest.mark.anyio

PROXIED: dict[str, Any] = {"client": "10.0.0.2", "proxies": ["10.0.0.0/8"], "hosts": ["jobs.example"]}
BROUGHT = {"host": "jobs.example", "x-forwarded-proto": "https", "x-forwarded-for": "203.0.113.9"}
OLGA = BROUGHT | {"x-user": "olga", "x-groups": "ops, all"}


@pytest.fixture(autouse=True)
def configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSPRING_PROXY_USER_HEADER", "X-User")
    monkeypatch.setenv("MAINSPRING_PROXY_GROUPS_HEADER", "X-Groups")
    monkeypatch.setenv("MAINSPRING_SIGN_IN_ROLES", "group:ops=operator@acme, ben=viewer")


async def enter(visitor: httpx2.AsyncClient, headers: dict[str, str]) -> int:
    return (await visitor.post("/api/v1/sign-in/proxy", headers=headers)).status_code


async def who(visitor: httpx2.AsyncClient, headers: dict[str, str]) -> Any:
    answer = await visitor.get("/api/v1/me", headers=headers)
    return answer.json()["name"] if answer.status_code == 200 else answer.status_code


async def test_a_named_proxy_says_who_comes_and_a_group_what_they_may(house: House) -> None:
    async with house.visited("https://jobs.example", **PROXIED) as visitor:
        assert await who(visitor, OLGA) == 401  # the header alone opens nothing: no page could change anything by it
        assert "proxy" in (await visitor.get("/api/v1/sign-in", headers=OLGA)).json()["ways"]
        assert await enter(visitor, OLGA) == 200
        assert await who(visitor, OLGA) == "olga"
        assert await who(visitor, OLGA | {"x-user": "ben"}) == 401  # somebody else at the same browser
        assert await who(visitor, BROUGHT) == 401  # or nobody any more
        assert await enter(visitor, OLGA | {"x-user": "ben", "x-groups": ""}) == 200
        assert await who(visitor, OLGA | {"x-user": "ben"}) == "ben"
        for nobody in ("eve", "ana", "..", "", "group:ops", "*", "\x1b[2J", "a" * 201, "SYSTEM"):
            assert await enter(visitor, BROUGHT | {"x-user": nobody}) == 401, nobody
        assert await enter(visitor, BROUGHT | {"x-user": "ana", "x-groups": "ops"}) == 401  # a local user's name
        assert (await visitor.post("/api/v1/sign-out", headers=OLGA | {"x-user": "ben"})).status_code == 403
    rows = {row.name: (row.role, row.org, row.signs_in_by) for row in house.do(access.users(SQL))}
    assert rows["olga"] == ("operator", "acme", "proxy")
    assert rows["ben"] == ("viewer", None, "proxy")
    assert rows["ana"] == ("operator", "acme", "password")
    assert len(rows) == 3


@pytest.mark.parametrize(
    "how",
    [
        {"client": "203.0.113.9", "proxies": ["10.0.0.0/8"], "hosts": ["jobs.example"]},
        {"client": "10.0.0.2", "hosts": ["jobs.example"]},
        {"client": "127.0.0.1", "hosts": ["jobs.example"]},
    ],
)
async def test_a_strangers_header_is_nobodys_word(house: House, how: dict[str, Any]) -> None:
    async with house.visited("https://jobs.example", **how) as visitor:
        assert await enter(visitor, OLGA) == 401
        assert "proxy" not in (await visitor.get("/api/v1/sign-in", headers=OLGA)).json()["ways"]


async def test_two_headers_are_none(house: House) -> None:
    async with house.visited("https://jobs.example", **PROXIED) as visitor:
        both = [*OLGA.items(), ("x-user", "ben")]
        assert (await visitor.post("/api/v1/sign-in/proxy", headers=both)).status_code == 401


def test_the_first_line_that_fits_decides() -> None:
    roles = RoleMap.parse("a@b.c=admin, group:x=viewer@acme,*=operator@a@b")
    assert [(g.role, g.org) for g in (roles.grant("a@b.c", ["x"]), roles.grant("z", ["x"]), roles.grant("z")) if g] == [
        ("admin", None), ("viewer", "acme"), ("operator", "a@b"),
    ]  # fmt: skip
    assert RoleMap.parse("").grant("z") is None
    for wrong in ("a", "=admin", "a=", "a=root", "a=admin@", "a=admin@SYSTEM", "a=admin@x\ny"):
        with pytest.raises(ConfigurationError):
            RoleMap.parse(wrong)


def test_what_is_wrong_with_the_settings_stops_the_start(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    for env in ({"MAINSPRING_PROXY_USER_HEADER": "X User"}, {"MAINSPRING_PROXY_GROUPS_HEADER": "X-Groups"}):
        with pytest.raises(ConfigurationError, match="MAINSPRING_PROXY_USER_HEADER"):
            Vouching.configured(env)
    monkeypatch.delenv("MAINSPRING_SIGN_IN_ROLES")
    with pytest.raises(ConfigurationError, match="MAINSPRING_SIGN_IN_ROLES"):
        create(house.app)
