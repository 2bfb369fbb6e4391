"""People say what they want to be told of their saved searches, by a link or by themselves; business comes anyhow."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from tests.apps.staffing.seekers import Seekers
from tests.apps.staffing.serving import ask
from tests.apps.staffing.test_who_asks import shown
from tests.apps.staffing.town import Town
from tests.web.visit import served

from mainspring.errors import ConfigurationError
from mainspring_apps.staffing import wishes
from mainspring_apps.staffing.market import Market
from mainspring_apps.staffing.rules.wishes import LINKED
from mainspring_apps.staffing.states import Refused
from mainspring_sandbox import Sandbox

SECRET = "what links are signed with"
SLOT = datetime(2026, 6, 3, 9, tzinfo=UTC)  # Wednesday 05:00 in New York
DAY = timedelta(days=1)
NOBODY = "No new workers match your saved search criteria"
BOTH = LINKED


@pytest.fixture(scope="module")
def mainspring_app(mainspring_sandbox_server: Sandbox) -> Iterator[Market]:
    """The marketplace with links in its messages."""
    with mainspring_sandbox_server.standing_in():
        yield Market({**os.environ, wishes.SECRET: SECRET}, maintenance=False, watches=())


@pytest.fixture
def seekers(town: Town) -> Seekers:
    town.only("saved-search-digest")
    return Seekers(town)


def visit(url: str, *, post: bool = False) -> tuple[int, str]:
    """Follow a link as somebody does who is not signed in, or do what its page does; as mail programs do it."""
    body = b"List-Unsubscribe=One-Click" if post else None
    with_form = {"Content-Type": "application/x-www-form-urlencoded"} if post else {}
    try:
        with urlopen(Request(url, body, with_form), timeout=30) as answer:
            assert answer.headers["referrer-policy"] == "same-origin"  # or a browser would post without its origin
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def links(seekers: Seekers, user: int, served_at: str) -> dict[str, str]:
    """The link of each kind of message that a user got, on this server."""
    return {
        kind: served_at + link
        for kind in BOTH
        for who, _, text in seekers.told(kind)
        for link in re.findall(r"https://app\.example\.com(/staffing/opt-out/\S+)", text)
        if who == user
    }


@pytest.mark.rule("STAFF-20.20")
def test_a_signed_link_ends_its_own_kind_for_its_own_user_once_somebody_says_so(
    town: Town, seekers: Seekers, mainspring_app: Market
) -> None:
    ann, ben = seekers.user(), seekers.user()
    for user in (ann, ben):
        seekers.search(user)
    seekers.newcomer()
    town.mainspring.advance(to=SLOT)
    written = "select (select count(*) from mainspring.audit), (select jsonb_agg(to_jsonb(u)) from staffing.users u)"
    before = town.rows(written)
    with served(mainspring_app) as url:
        hers, his = links(seekers, ann, url), links(seekers, ben, url)
        assert set(hers) == set(his) == set(BOTH)
        signature = hers["digest"].rpartition("/")[2]
        for wrong in (
            hers["digest"].replace(f"/{ann}/", f"/{ben}/"), hers["digest"].replace("/digest/", "/instant_alert/"),
            hers["digest"].replace("/digest/", "/insurance_stop/"), hers["digest"][:-1], f"{hers['digest']}%C3%A9",
            hers["digest"].replace(signature, "0" * len(signature)), hers["digest"].replace(f"/{signature}", "/"),
            hers["digest"].replace(f"/{ann}/", f"/0{ann}/"), hers["digest"].replace("/digest/", "/digest%2F"),
        ):  # fmt: skip
            assert [visit(wrong, post=post)[0] for post in (False, True)] == [404, 404], wrong
        code, page = visit(hers["digest"])
        assert (code, '<form method="post">' in page) == (200, True)
        assert town.rows(written) == before  # a scanner that follows links ends nothing

        assert [visit(hers["digest"], post=True)[0] for _ in range(2)] == [200, 200]
        assert visit(his["instant_alert"], post=True)[0] == 200

    assert town.audit("opt_out") == [
        (str(ann), "user", ann, "digest", None), (str(ben), "user", ben, "instant_alert", None),
    ]  # fmt: skip
    town.mainspring.advance(minutes=1)
    later = town.now
    seekers.newcomer()
    town.mainspring.advance(to=SLOT + DAY)
    told = town.rows("select distinct kind, recipient_id from staffing.notification_log where created_at >= %s", later)
    assert set(told) == {("instant_alert", ann), ("digest", ben)}


@pytest.mark.rule("STAFF-20.20")
def test_who_opted_out_gets_nothing_that_was_on_its_way_and_everything_of_business(
    town: Town, seekers: Seekers, mainspring_app: Market
) -> None:
    town.only()
    user = seekers.user()
    search = seekers.search(user)
    seekers.newcomer()
    kinds = {one.name: one for one in mainspring_app.desk.notify._setup.templates.values()}
    with town.conn.transaction():
        for kind, template in kinds.items():
            about = dict.fromkeys(re.findall(r"\[([^]]+)\]", template.text), "x")
            more = {"parts": [], "Search": "x", "Link": "x"}
            town.desk.tell(town.conn, kind, [user], about | more, occurrence=town.now)
        for wish in BOTH:
            assert wishes.opt_out(town.desk, town.conn, user, kind=wish, by=user)
            assert not wishes.opt_out(town.desk, town.conn, user, kind=wish, by=user)
    with pytest.raises(Refused, match="kind"), town.conn.transaction():
        wishes.opt_out(town.desk, town.conn, user, kind="insurance_stop", by=user)  # type: ignore[arg-type]  # as any caller may

    town.mainspring.advance(hours=1)

    said = {(kind, status) for kind, _, _, status in town.messages()}
    assert said == {(kind, "Skipped" if kind in BOTH else "Sent") for kind in kinds}
    assert seekers.deliveries() == []  # the newcomer was announced after the wish
    with town.conn.transaction():
        assert wishes.opt_in(town.desk, town.conn, user, kind="instant_alert", by=user)
        assert not wishes.opt_in(town.desk, town.conn, user, kind="instant_alert", by=user)
    seekers.newcomer()
    town.mainspring.advance(minutes=1)
    assert seekers.deliveries() == [(search, "instant", "Sent", None)]


@pytest.mark.rule("STAFF-20.20")
@pytest.mark.rule("STAFF-7.13")
@pytest.mark.rule("STAFF-7.14")
def test_a_day_without_matches_is_counted_and_not_told_unless_somebody_asks_for_it(
    town: Town, seekers: Seekers, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = {"opted_out": ["empty_digest"]}  # as everybody begins
    assert town.value("select column_default from information_schema.columns where column_name = 'opted_out'") == (
        "'{empty_digest}'::text[]"
    )
    quiet, partly, asks = seekers.user(**plain), seekers.user(**plain), seekers.user(**plain)
    alchemist = {"trade": "alchemist"}
    searches = [
        seekers.search(user, alchemist, name="Alchemists", instant_enabled=False, zero_result_streak=28)
        for user in (quiet, partly, asks)
    ]
    seekers.search(partly, name="Welders", instant_enabled=False)
    worker = seekers.worker(listed=SLOT - timedelta(hours=1))
    with town.conn.transaction():
        wishes.opt_in(town.desk, town.conn, asks, kind="empty_digest", by=asks)
    monkeypatch.setitem(vars(town.desk), "settings", replace(town.desk.settings, deactivate_empty_searches=True))

    town.mainspring.advance(to=SLOT)

    told = {who: text for who, _, text in seekers.told("digest")}
    assert told.keys() == {partly, asks}
    assert told[partly].startswith(f"Alchemists\n{NOBODY}\n")
    assert f"/workers/{worker}\n" in told[partly]
    assert told[asks].startswith(f"Alchemists\n{NOBODY}\n")
    assert [row[2] for row in seekers.deliveries()] == ["Empty", "Sent", "Sent", "Sent"]
    assert town.wrong("saved_searches_skipped") == []
    town.mainspring.advance(to=SLOT + DAY)
    assert [town.row("saved_searches", one)["zero_result_streak"] for one in searches] == [30, 30, 30]
    assert {who for who, *_ in seekers.told("search_deactivated")} == {quiet, partly, asks}
    assert {who for who, *_ in seekers.told("digest")} == {partly, asks}


@pytest.mark.rule("STAFF-20.20")
def test_without_a_secret_there_are_no_links_and_people_say_it_themselves(town: Town, seekers: Seekers) -> None:
    with pytest.raises(ConfigurationError, match=wishes.SECRET):
        wishes.OptOutLinks.from_env({wishes.SECRET: "x" * 15}, "https://app.example.com")
    plain = Market(dsn=town.mainspring.dsn, maintenance=False, watches=())
    user, other = seekers.user(), seekers.user()
    text = plain.desk.notify._setup.templates["digest"]
    assert "opt" not in text.render({"parts": [], "opt_out": ""} | {"parts": [{"name": "x", "workers": []}]}).text
    link = wishes.OptOutLinks.from_env({wishes.SECRET: SECRET}, "")
    assert link is not None
    with served(plain) as url:
        assert visit(url + link.link(user, "digest"), post=True)[0] == 404
        headers = shown(town, user, "ann")
        assert ask(url, f"/users/{user}/opt-out", {"kind": "digest"}, **headers) == (200, {"done": True})
        assert ask(url, f"/users/{user}/opt-out", {"kind": "digest"}, **headers) == (200, {"done": False})
        assert ask(url, f"/users/{other}/opt-out", {"kind": "digest"}, **headers)[0] == 404
        assert ask(url, f"/users/{user}/opt-in", {"kind": "digest"}, **headers) == (200, {"done": True})
    assert town.row("users", user)["opted_out"] == town.row("users", other)["opted_out"] == []
    plain.desk.close()
