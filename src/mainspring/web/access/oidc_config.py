"""Where people sign in by OpenID Connect, as the environment says."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from mainspring.config import app_url
from mainspring.contrib.secret import Secret
from mainspring.errors import ConfigurationError
from mainspring.extras import needs

CALLBACK_PATH: Final = "/sign-in/oidc/callback"


@dataclass(frozen=True, slots=True)
class OidcConfig:
    """A provider, and what we are to it."""

    issuer: str
    client_id: str
    redirect_uri: str
    client_secret: Secret | None
    name_claim: str
    groups_claim: str
    scope: str

    @classmethod
    def configured(cls, env: Mapping[str, str]) -> OidcConfig | None:
        """None where no provider is named."""
        issuer = env.get("MAINSPRING_OIDC_ISSUER")
        if not issuer:
            return None
        needs("sign-in by OpenID Connect needs", "oidc", "joserfc")
        client, base = env.get("MAINSPRING_OIDC_CLIENT_ID"), app_url(env)
        if not client:
            raise ConfigurationError("MAINSPRING_OIDC_CLIENT_ID: is not set; the provider knows us by it")
        if base is None:
            raise ConfigurationError("APP_URL: is not set; the provider sends people back to it")
        for name, url in (("MAINSPRING_OIDC_ISSUER", issuer), ("APP_URL", base)):
            if not is_sheltered(url):
                raise ConfigurationError(f"{name}: is not of the form https://host/path")
        secret = env.get("MAINSPRING_OIDC_CLIENT_SECRET")
        return cls(
            issuer,
            client,
            base.rstrip("/") + CALLBACK_PATH,
            Secret(secret) if secret else None,
            env.get("MAINSPRING_OIDC_NAME_CLAIM") or "email",
            env.get("MAINSPRING_OIDC_GROUPS_CLAIM") or "groups",
            env.get("MAINSPRING_OIDC_SCOPE") or "openid email profile",
        )


def is_sheltered(url: object) -> bool:
    """Whether nobody can listen on the way to an address: TLS, or this machine.

    >>> [is_sheltered(url) for url in ("https://id.example", "http://127.0.0.1:9", "http://id.example", "mailto:x")]
    [True, True, False, False]
    """
    try:
        parts = urlsplit(url) if isinstance(url, str) and url.isprintable() else None
        if parts is None or not parts.hostname or parts.username is not None or parts.fragment or parts.port == 0:
            return False
        if parts.scheme == "https":
            return True
        return parts.scheme == "http" and (
            parts.hostname == "localhost" or ipaddress.ip_address(parts.hostname).is_loopback
        )
    except ValueError:
        return False
