"""Secrets that would be recognised anywhere: each stands in one place only, so that a leak says where it began."""

from __future__ import annotations

from itertools import count

_numbers = count(1)


def canary() -> str:
    """A value that nothing else contains."""
    return f"Canary{next(_numbers):03}x7Qz9Lm2Vb4Tn6Ws"


def secrets_in_every_shape() -> dict[str, str]:
    """Canary → a text that holds it in one of the shapes that secrets have in errors, logs and answers of providers."""
    shapes = (
        "card declined with key sk_live_{}",
        "signature mismatch for whsec_{}",
        'provider said {{"api_key": "{}", "status": 401}}',
        "provider said {{'client_secret': '{}'}}",
        "GET /v1/charges?access_token={}&page=2 failed",
        "Authorization: Bearer {} was refused",
        "could not connect to postgresql://shop:{}@db.internal/shop",
        "password={} is wrong",
        "PASSPHRASE: '{}'",
        "token eyJhbGciOiJIUzI1NiJ9.{}.c2lnbmF0dXJl expired",
        "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----",
        "signing_key = {}",
        r'provider said {{"password": "a\"{}"}}',
        "headers [(b'x-api-key', b'{}')]",
        "Cookie: theme=dark; session={}",
        "callback?password%3D{}",
        "bot xoxb-{} was removed",
        "Authorization: Token {}",
        "refused {{'client_secret': ['{}']}}",
    )
    return {value: shape.format(value) for shape in shapes for value in (canary(),)}
