"""The token of `mainspring up`: for every route that asks for one, in a file for curl that nobody else reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import mainspring as ms
from mainspring.cli.banner import banner
from mainspring.cli.demo_token import DemoToken
from mainspring.declare.route import by_role, by_token, public
from mainspring.embedded import Cluster


def shop(*doors: Any) -> ms.App:
    return ms.App(ms.Registry("shop"), routes=doors)


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ONE_TOKEN", "TWO_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def test_one_token_is_made_for_all_routes_and_taken_back(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        demo = DemoToken(tmp_path)
        tokens = demo.give(shop(public("/"), by_token("/a", "ONE_TOKEN"), by_token("/b", "TWO_TOKEN")))
    finally:
        os.umask(old)
    file = tmp_path / "curl"

    assert set(tokens) == {"ONE_TOKEN", "TWO_TOKEN"}
    assert len(set(tokens.values())) == 1
    assert len(tokens["ONE_TOKEN"]) >= 16
    assert file.read_text() == f'header = "Authorization: Bearer {tokens["ONE_TOKEN"]}"\n'
    assert file.stat().st_mode & 0o777 == 0o600
    assert demo.curl == f"curl -K {os.path.relpath(file)}"
    assert DemoToken(tmp_path).give(shop(by_token("/a", "ONE_TOKEN"))) != tokens  # another at each start
    demo.take_back()
    assert not file.exists()


def test_a_token_of_yours_stays_and_an_application_without_doors_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONE_TOKEN", "mine, and long enough")
    demo = DemoToken(tmp_path)

    assert demo.give(shop(public("/"))) == {}
    assert (demo.curl, (tmp_path / "curl").exists()) == ("curl", False)
    assert demo.give(shop(by_token("/a", "ONE_TOKEN"))) == {"ONE_TOKEN": "mine, and long enough"}
    assert "mine, and long enough" in (tmp_path / "curl").read_text()


def test_a_route_that_has_other_ways_in_needs_no_token_of_a_program(tmp_path: Path) -> None:
    assert DemoToken(tmp_path).give(shop(by_role("/a", "viewer", token="ONE_TOKEN"))) == {}


def test_the_banner_says_how_to_use_it_and_not_what_it_is(tmp_path: Path) -> None:
    curls = {name: f"curl -K .data/{name}" for name in ("curl", "curl.viewer", "curl.ana")}
    text = banner(
        cluster=Cluster(tmp_path / "postgres"), log=tmp_path / "log", pid=1, url="http://127.0.0.1:8080", sandbox="",
        about="{curl} {url}/staffing\n{curl.ana}", time="",
        link="http://127.0.0.1:8080/sign-in#once", curls=curls,
    )  # fmt: skip

    assert "  sign in         http://127.0.0.1:8080/sign-in#once    once, within 15 minutes" in text
    assert "  and as somebody curl -K .data/curl.viewer http://127.0.0.1:8080/api/v1/me" in text
    assert "\ncurl -K .data/curl http://127.0.0.1:8080/staffing\ncurl -K .data/curl.ana\n" in text
