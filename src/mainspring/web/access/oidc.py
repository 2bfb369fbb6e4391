"""Sign-in by OpenID Connect: the code flow with PKCE, state and nonce, all made of one secret of the browser.

So nothing is kept here between going there and coming back, and what comes back without that secret is worth nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import ssl
import time
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any, Final, cast
from urllib.parse import urlencode, urlsplit

import httpx2
import msgspec

from mainspring.text.texts import holder_problem
from mainspring.web.access.oidc_config import OidcConfig, is_sheltered

OIDC_TIMEOUT_S: Final = 5.0
MOST_OIDC_BYTES: Final = 512 * 1024
DOCUMENT_KEPT_S: Final = 3600.0  # how long what a provider says of itself is believed
CLOCK_LEEWAY_S: Final = 60  # its clock may be wrong by so much
#: Signed by the provider alone: not by what we share with it, and not "none".
ALGORITHMS: Final = [
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
    "Ed25519",
]


class OidcRefused(Exception):
    """Why somebody was not signed in: for the log."""


class Provider(msgspec.Struct, frozen=True):
    """What a provider says of itself."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    token_endpoint_auth_methods_supported: list[str] = msgspec.field(default_factory=lambda: ["client_secret_basic"])


class Oidc:
    """One provider."""

    def __init__(self, config: OidcConfig) -> None:
        self._config = config
        self._known: tuple[float, Provider, Any] | None = None

    async def address(self, secret: str) -> str:
        """Where a browser with this secret signs in."""
        provider, _ = await self._provider()
        verifier = derived(secret, "verifier")
        challenge = urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
        asked = {
            "response_type": "code",
            "client_id": self._config.client_id,
            "redirect_uri": self._config.redirect_uri,
            "scope": self._config.scope,
            "state": derived(secret, "state"),
            "nonce": derived(secret, "nonce"),
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        joint = "&" if urlsplit(provider.authorization_endpoint).query else "?"
        return provider.authorization_endpoint + joint + urlencode(asked)

    def check_state(self, secret: str | None, query: Mapping[str, str]) -> str:
        """Refuse what does not come back from where this browser went; the secret of one that went."""
        if secret is None:
            raise OidcRefused("the browser did not begin it here, or too long ago")
        if not hmac.compare_digest(derived(secret, "state").encode(), query.get("state", "").encode()):
            raise OidcRefused("the state is another")
        return secret

    async def identity(self, secret: str | None, query: Mapping[str, str], now: datetime) -> tuple[str, list[str]]:
        """Who comes back, and of which groups they are."""
        secret = self.check_state(secret, query)
        if "error" in query or not query.get("code"):
            raise OidcRefused("the provider refused")
        provider, keys = await self._provider()
        if query.get("iss", provider.issuer) != provider.issuer:  # RFC 9207: it is another provider's answer
            raise OidcRefused("the answer is another provider's")
        claims = await self._claims(provider, keys, query["code"], secret, now)
        return self._name(claims), _texts(claims.get(self._config.groups_claim))

    async def _claims(self, provider: Provider, keys: Any, code: str, secret: str, now: datetime) -> Mapping[str, Any]:
        from joserfc import jwt
        from joserfc.errors import JoseError

        token = (await self._exchange(provider, code, derived(secret, "verifier"))).get("id_token")
        if not isinstance(token, str):
            raise OidcRefused("the provider gave no id token")
        wanted: dict[str, Any] = {
            "iss": {"essential": True, "value": provider.issuer},
            "aud": {"essential": True, "value": self._config.client_id},
            "exp": {"essential": True},
            "iat": {"essential": True},
            "sub": {"essential": True},
            "nonce": {"essential": True, "value": derived(secret, "nonce")},
        }
        try:
            try:
                found = jwt.decode(token, keys, algorithms=ALGORITHMS)
            except (JoseError, ValueError):
                _, keys = await self._provider(anew=True)  # it may have other keys by now
                found = jwt.decode(token, keys, algorithms=ALGORITHMS)
            jwt.JWTClaimsRegistry(now=int(now.timestamp()), leeway=CLOCK_LEEWAY_S, **wanted).validate(found.claims)
        except (JoseError, ValueError, TypeError) as error:
            raise OidcRefused(f"the id token is not good: {type(error).__name__}") from None
        party = found.claims.get("azp")
        if party not in (None, self._config.client_id) or (
            isinstance(found.claims["aud"], list) and len(found.claims["aud"]) > 1 and party is None
        ):
            raise OidcRefused("the id token is for another application")
        return found.claims

    def _name(self, claims: Mapping[str, Any]) -> str:
        claim = self._config.name_claim
        name = claims.get(claim)
        if not isinstance(name, str) or holder_problem(name):
            raise OidcRefused(f"the id token has no {claim}")
        if claim == "email" and claims.get("email_verified") is not True:
            raise OidcRefused("the provider has not verified the address: see MAINSPRING_OIDC_NAME_CLAIM")
        return name

    async def _exchange(self, provider: Provider, code: str, verifier: str) -> Mapping[str, Any]:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._config.redirect_uri,
            "client_id": self._config.client_id,
            "code_verifier": verifier,
        }
        auth, secret = None, self._config.client_secret
        if secret is not None and "client_secret_basic" in provider.token_endpoint_auth_methods_supported:
            auth = (self._config.client_id, secret.reveal())
        elif secret is not None:
            form["client_secret"] = secret.reveal()
        return await _json("POST", provider.token_endpoint, data=form, auth=auth)

    async def _provider(self, *, anew: bool = False) -> tuple[Provider, Any]:
        """What the provider says of itself, and its keys."""
        from joserfc.jwk import KeySet

        known = self._known
        if known is not None and not anew and time.monotonic() < known[0]:
            return known[1], known[2]
        where = self._config.issuer.rstrip("/") + "/.well-known/openid-configuration"
        try:
            provider = msgspec.convert(await _json("GET", where), Provider)
            endpoints = (provider.authorization_endpoint, provider.token_endpoint, provider.jwks_uri)
            if provider.issuer != self._config.issuer or not all(map(is_sheltered, endpoints)):
                raise OidcRefused("the provider says that it is another, or is not reached by TLS")
            keys = KeySet.import_key_set(cast("Any", await _json("GET", provider.jwks_uri)))
        except OidcRefused:
            raise
        except Exception as error:  # whatever a provider says must break nothing here
            raise OidcRefused(f"what the provider says of itself cannot be read: {type(error).__name__}") from None
        self._known = time.monotonic() + DOCUMENT_KEPT_S, provider, keys
        return provider, keys


def derived(secret: str, purpose: str) -> str:
    """A secret of its own for one purpose, of which the others cannot be told."""
    made = hmac.new(secret.encode(), purpose.encode(), hashlib.sha256).digest()
    return urlsafe_b64encode(made).decode().rstrip("=")


def _texts(claim: object) -> list[str]:
    if isinstance(claim, str):
        return [claim]
    return [text for text in claim if isinstance(text, str)] if isinstance(claim, list) else []


@cache
def _authorities() -> ssl.SSLContext:
    """Whose certificates are believed; to read them takes a tenth of a second."""
    return ssl.create_default_context()


async def _json(method: str, url: str, **how: Any) -> Mapping[str, Any]:
    """An object from the provider: soon, of a bounded size, and from nowhere else."""
    about: dict[str, Any] = {"timeout": OIDC_TIMEOUT_S, "trust_env": False, "follow_redirects": False}
    about["verify"] = _authorities()
    body = bytearray()
    try:
        async with (
            httpx2.AsyncClient(**about) as client,
            client.stream(method, url, headers={"accept": "application/json"}, **how) as answer,
        ):
            async for chunk in answer.aiter_bytes():
                body += chunk
                if len(body) > MOST_OIDC_BYTES:
                    raise OidcRefused("the provider's answer is too large")
        if answer.status_code != 200:
            raise OidcRefused(f"the provider answered {answer.status_code}")
        return msgspec.json.decode(bytes(body), type=dict[str, Any])
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, msgspec.MsgspecError, UnicodeError) as error:
        raise OidcRefused(f"the provider cannot be asked: {type(error).__name__}") from None
