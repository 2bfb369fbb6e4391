"""What a browser sends for a hostile page, sent without one: `make browser` has the page itself."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import httpx2
import pytest
from tests.databases import Database
from tests.web.browser.house import CANARY, GuardedHouse, guarded_house

#: How a page's request says where it comes from: another site, another port of this machine, a frame without an origin.
FROM = [
    {"origin": "http://evil.test", "sec-fetch-site": "cross-site"},
    {"origin": "http://127.0.0.1:9", "sec-fetch-site": "same-site"},
    {"origin": "null", "sec-fetch-site": "cross-site"},
    {"origin": "http://evil.test"},  # of a browser that does not say the other
    {"sec-fetch-site": "cross-site"},
]
#: How it may come without being asked about first, and how it may not.
MODES = [
    {"sec-fetch-mode": "no-cors", "sec-fetch-dest": "empty"},
    {"sec-fetch-mode": "cors", "sec-fetch-dest": "empty"},
    {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document", "sec-fetch-user": "?1"},
    {"sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
]
KINDS = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/json", None]


@pytest.fixture
def house(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[GuardedHouse]:
    for limit in ("ADDRESS", "CALLER", "ORG"):
        monkeypatch.setenv(f"MAINSPRING_REQUESTS_PER_{limit}", "0")
    with database.connect() as conn, guarded_house(database.dsn, conn) as found:
        yield found


def test_what_a_foreign_page_makes_a_browser_send_changes_nothing(house: GuardedHouse) -> None:
    cancel = f"/api/v1/jobs/{house.job}/cancel"
    with httpx2.Client(base_url=house.url) as browser:
        me = browser.post("/api/v1/sign-in/link", json={"code": house.link()}).json()
        assert browser.cookies.get("mainspring")
        before = house.state()
        for place, method in itertools.product((cancel, "/account", "/note", "/api/v1/sign-out"), ("POST", "DELETE")):
            for said, mode, kind in zip(itertools.cycle(FROM), itertools.cycle(MODES), KINDS * 4, strict=False):
                headers = said | mode | ({} if kind is None else {"content-type": kind})
                answer = browser.request(method, place, content=b"{}", headers=headers)
                assert (answer.status_code, answer.json()["code"]) == (403, "CROSS_ORIGIN"), (place, headers)
        for said, mode in itertools.product(FROM, MODES):  # to be asked first is to be told nothing
            asked = said | mode | {"access-control-request-method": "POST"}
            answer = browser.request("OPTIONS", cancel, headers=asked)
            assert not [name for name in answer.headers if name.startswith("access-control-")]
            looked = browser.get(f"/api/v1/jobs/{house.job}", headers=said | mode)
            assert looked.headers["cross-origin-resource-policy"] == "same-origin"  # it comes, and no page may read it
            assert "frame-ancestors 'none'" in looked.headers["content-security-policy"]
            assert not [name for name in looked.headers if name.startswith("access-control-")]
            rebound = browser.get(f"/api/v1/jobs/{house.job}", headers=said | mode | {"host": "evil.test"})
            assert (rebound.status_code, CANARY in rebound.text) == (400, False)
        # A page that says it is ours, and does not know the token of the session.
        ours = {"origin": house.url, "sec-fetch-site": "same-origin"}
        assert browser.post(cancel, json={}, headers=ours).status_code == 403
        assert browser.post(cancel, json={}, headers=ours | {"x-csrf-token": "guess"}).status_code == 403
        assert house.state() == before
        assert browser.post(cancel, json={}, headers=ours | {"x-csrf-token": me["csrf"]}).status_code == 200
    assert house.state() != before
