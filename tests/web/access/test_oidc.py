"""Sign-in by OpenID Connect, against a provider on loopback that is asked to lie."""

from __future__ import annotations

import hashlib
import json
import threading
import time
import warnings
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from joserfc import jwk, jwt
from tests.web.access.conftest import ME, SQL, House

from mainspring.db import access
from mainspring.errors import ConfigurationError
from mainspring.testing import Clock
from mainspring.web import create
from mainspring.web.access import oidc
from mainspring.web.access.oidc_config import OidcConfig

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of what the provider uses of authlib
]

OLGA = {"email": "olga@shop.example", "email_verified": True, "groups": ["ops", "all"]}
START = "/sign-in/oidc"
Forge = Callable[[dict[str, Any], Any], str]


class LyingProvider:
    """The provider, what it was asked, and how it changes its id tokens."""

    def __init__(self) -> None:
        # Here, so that not each process of a run imports all that when it collects the tests.
        with warnings.catch_warnings(record=True):  # what it uses of authlib is on its way out
            import flask
            import oidc_provider_mock
            import werkzeug.serving
            from oidc_provider_mock._storage import storage

        users = [
            oidc_provider_mock.User(sub="olga", claims=OLGA),
            oidc_provider_mock.User(sub="eve", claims={"email": OLGA["email"], "email_verified": False}),
            oidc_provider_mock.User(sub="ben", claims={"email": "ben@shop.example", "email_verified": True}),
        ]
        self.forms: list[dict[str, str]] = []
        self.forge: Forge | None = None
        app: flask.Flask = oidc_provider_mock.app(require_nonce=True, user_claims=users)

        @app.before_request
        def note() -> None:
            if flask.request.path.endswith("/token"):
                self.forms.append(flask.request.form.to_dict())

        @app.after_request
        def lie(answer: flask.Response) -> flask.Response:
            if self.forge is not None and flask.request.path.endswith("/token") and answer.status_code == 200:
                told = json.loads(answer.get_data())
                claims = jwt.decode(told["id_token"], jwk.RSAKey.import_key(storage.jwk.as_dict())).claims
                told["id_token"] = self.forge(dict(claims), storage.jwk)
                answer.set_data(json.dumps(told))
            return answer

        self.server = werkzeug.serving.make_server("127.0.0.1", 0, app, threaded=True)
        self.issuer = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def provider() -> Iterator[LyingProvider]:
    made = LyingProvider()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.05,))
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


@pytest.fixture(autouse=True)
def configured(provider: LyingProvider, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSPRING_OIDC_ISSUER", provider.issuer)
    monkeypatch.setenv("MAINSPRING_OIDC_CLIENT_ID", "mainspring")
    monkeypatch.setenv("MAINSPRING_OIDC_CLIENT_SECRET", "between us")
    monkeypatch.setenv("MAINSPRING_SIGN_IN_ROLES", "olga@shop.example=admin, group:ops=operator@acme")
    monkeypatch.setenv("APP_URL", "http://localhost")
    Clock(house.conn).set(datetime.now(UTC))  # the provider has no other


async def go(visitor: httpx2.AsyncClient, user: str = "olga") -> str:
    """Sign in at the provider, and give where it sends the browser back to."""
    answer = await visitor.get(START)
    assert answer.status_code == 303
    assert answer.headers["set-cookie"].partition("=")[0] == "mainspring-oidc"
    assert {"HttpOnly", "SameSite=lax"} <= set(answer.headers["set-cookie"].split("; "))
    async with httpx2.AsyncClient(verify=False) as browser:
        sent = await browser.post(answer.headers["location"], data={"sub": user})
    back = urlsplit(sent.headers["location"])
    assert (back.netloc, back.path) == ("localhost", "/sign-in/oidc/callback")
    return f"{back.path}?{back.query}"


async def who(visitor: httpx2.AsyncClient) -> Any:
    answer = await visitor.get("/api/v1/me")
    return answer.json()["name"] if answer.status_code == 200 else answer.status_code


async def test_somebody_signs_in_at_their_provider(house: House, provider: LyingProvider) -> None:
    async with house.visited() as visitor:
        assert "oidc" in (await visitor.get("/api/v1/sign-in")).json()["ways"]
        asked = parse_qs(urlsplit((await visitor.get(START)).headers["location"]).query)
        assert asked["code_challenge_method"] == ["S256"]
        assert asked["response_type"] == ["code"]
        back = await go(visitor)
        answer = await visitor.get(back)
        assert answer.status_code == 200
        assert "http-equiv" in answer.text  # a page of ours goes on: a redirect would bring no strict cookie
        assert await who(visitor) == "olga@shop.example"
        (form,) = provider.forms
        again = parse_qs(urlsplit((await visitor.get(START)).headers["location"]).query)
        assert again["state"] != asked["state"]
        assert form["redirect_uri"] == "http://localhost/sign-in/oidc/callback"
        challenge = urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).decode().rstrip("=")
        assert len(challenge) == 43
        assert (await visitor.get(back)).status_code == 403  # the browser's secret is used up

    (row,) = (user for user in house.do(access.users(SQL)) if user.name != "ana")
    assert (row.role, row.org, row.signs_in_by) == ("admin", None, "oidc")
    house.do(access.change_user(SQL, row.name, {"disabled": True}, ME))
    async with house.visited() as visitor:
        assert (await visitor.get(await go(visitor))).status_code == 403
        assert await who(visitor) == 401


async def test_the_verifier_is_that_of_the_challenge(house: House, provider: LyingProvider) -> None:
    async with house.visited() as visitor:
        answer = await visitor.get(START)
        asked = parse_qs(urlsplit(answer.headers["location"]).query)
        async with httpx2.AsyncClient(verify=False) as browser:
            back = (await browser.post(answer.headers["location"], data={"sub": "olga"})).headers["location"]
        await visitor.get(back)
    digest = hashlib.sha256(provider.forms[0]["code_verifier"].encode()).digest()
    assert asked["code_challenge"] == [urlsafe_b64encode(digest).decode().rstrip("=")]
    assert provider.forms[0]["code_verifier"] not in answer.headers["location"]


@pytest.mark.parametrize("user", ["eve", "ben", "stranger"])
async def test_who_is_not_verified_or_not_mapped_stays_out(house: House, user: str) -> None:
    async with house.visited() as visitor:
        answer = await visitor.get(await go(visitor, user))
        assert answer.status_code == 403
        assert await who(visitor) == 401
    assert [row.name for row in house.do(access.users(SQL))] == ["ana"]


async def test_what_comes_back_belongs_to_the_browser_that_went(house: House, caplog: pytest.LogCaptureFixture) -> None:
    async with house.visited() as mine, house.visited() as theirs:
        back = await go(theirs)
        assert (await mine.get(back)).status_code == 403  # a page that sends us back as somebody else
        assert "the browser did not begin it here" in caplog.text
        await go(mine)
        assert (await mine.get(back)).status_code == 403
        assert "the state is another" in caplog.text
        for query in ("", "?code=x", "?state=x&code=x", "?error=access_denied", "?state=%00&code=%ff"):
            assert (await theirs.get("/sign-in/oidc/callback" + query)).status_code == 403
        assert (await who(mine), await who(theirs)) == (401, 401)
    tries = house.conn.execute("select count(*) from mainspring.access_try").fetchone()
    assert tries == (0,)  # what a page of somebody else sends back keeps nobody from signing in


def _signed(claims: dict[str, Any], key: Any, **changes: Any) -> str:
    changed = {name: value for name, value in (claims | changes).items() if value is not None}
    return jwt.encode(
        {"alg": "RS256", "kid": key.as_dict().get("kid")}, changed, jwk.RSAKey.import_key(key.as_dict(is_private=True))
    )


def _unsigned(claims: dict[str, Any], _: Any) -> str:
    parts = ({"alg": "none"}, claims)
    return ".".join(urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."


def _by_public_key(claims: dict[str, Any], key: Any) -> str:
    public = jwk.RSAKey.import_key(key.as_dict()).as_pem(private=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return jwt.encode({"alg": "HS256"}, claims, jwk.OctKey.import_key(urlsafe_b64encode(public)))


#: What is wrong with a token, how it is refused, and how it is made.
LIES: dict[str, tuple[str, Forge]] = {
    "another issuer": ("InvalidClaimError", lambda claims, key: _signed(claims, key, iss="http://127.0.0.1:1")),
    "for another": ("InvalidClaimError", lambda claims, key: _signed(claims, key, aud="another")),
    "for several": ("for another application", lambda claims, key: _signed(claims, key, aud=["mainspring", "another"])),
    "by another party": ("for another application", lambda claims, key: _signed(claims, key, azp="another")),
    "another nonce": ("InvalidClaimError", lambda claims, key: _signed(claims, key, nonce="another")),
    "no nonce": ("MissingClaimError", lambda claims, key: _signed(claims, key, nonce=None)),
    "over": ("ExpiredTokenError", lambda claims, key: _signed(claims, key, exp=int(time.time()) - 3600)),
    "without an end": ("MissingClaimError", lambda claims, key: _signed(claims, key, exp=None)),
    "of the future": ("InvalidClaimError", lambda claims, key: _signed(claims, key, iat=int(time.time()) + 3600)),
    "another's key": (
        "BadSignatureError",
        lambda claims, _: jwt.encode({"alg": "RS256"}, claims, jwk.RSAKey.generate_key(2048)),
    ),
    "not signed": ("UnsupportedAlgorithmError", _unsigned),
    "signed by what is public": ("UnsupportedAlgorithmError", _by_public_key),
    "no token": ("DecodeError", lambda claims, _: "rubbish"),
    "no name": ("has no email", lambda claims, key: _signed(claims, key, email="\x1b[2J")),
    "an address that is no text": ("has no email", lambda claims, key: _signed(claims, key, email={"a": 1})),
}


async def test_a_token_that_is_not_for_this_sign_in_lets_nobody_in(
    house: House, provider: LyingProvider, caplog: pytest.LogCaptureFixture
) -> None:
    async with house.visited() as visitor:
        for lie, (why, forge) in LIES.items():
            provider.forge = forge
            answer = await visitor.get(await go(visitor))
            assert (answer.status_code, await who(visitor)) == (403, 401), lie
            assert why in caplog.messages[-2], lie
            Clock(house.conn).set(datetime.now(UTC))
            house.conn.execute("delete from mainspring.access_try")
        provider.forge = lambda claims, key: _signed(claims, key)  # the same, but by our hand
        assert (await visitor.get(await go(visitor))).status_code == 200
    said = caplog.text
    assert "between us" not in said
    for form in provider.forms:
        assert form["code_verifier"] not in said
        assert form["code"] not in said


async def test_a_provider_that_is_away_or_another_is_not_asked_further(
    house: House, provider: LyingProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    for issuer in ("http://127.0.0.1:1", f"{provider.issuer}/other", f"{provider.issuer}/"):
        monkeypatch.setenv("MAINSPRING_OIDC_ISSUER", issuer)
        async with house.visited() as visitor:
            answer = await visitor.get(START)
            assert (answer.status_code, answer.json()["code"]) == (503, "PROVIDER_UNAVAILABLE")


@pytest.mark.parametrize(
    ("setting", "value", "complaint"),
    [
        ("MAINSPRING_OIDC_ISSUER", "http://id.example", "MAINSPRING_OIDC_ISSUER: is not of the form https"),
        ("MAINSPRING_OIDC_CLIENT_ID", "", "MAINSPRING_OIDC_CLIENT_ID: is not set"),
        ("APP_URL", "", "APP_URL: is not set"),
        ("MAINSPRING_SIGN_IN_ROLES", "", "MAINSPRING_SIGN_IN_ROLES: is not set"),
        ("MAINSPRING_SIGN_IN_ROLES", "olga=root", "MAINSPRING_SIGN_IN_ROLES: is not of the form"),
    ],
)
def test_what_is_wrong_with_the_settings_stops_the_start(
    house: House, monkeypatch: pytest.MonkeyPatch, setting: str, value: str, complaint: str
) -> None:
    monkeypatch.setenv(setting, value)
    with pytest.raises(ConfigurationError, match=complaint):
        create(house.app)


def test_without_the_library_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainspring.extras.find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match=r"pip install 'mainspring\[oidc\]'"):
        OidcConfig.configured({"MAINSPRING_OIDC_ISSUER": "https://id.example"})
    assert oidc.derived("s", "state") != oidc.derived("s", "nonce")
