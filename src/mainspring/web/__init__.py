"""The HTTP backend: health, metrics, the run endpoint, providers' webhooks, and your own routes.

`mainspring serve` serves it; `create` makes the ASGI application, to be served or mounted. Needs
`pip install mainspring[web]`.
"""

from mainspring.errors import ConfigurationError

try:
    from mainspring.declare.principal import Principal as Principal
    from mainspring.declare.principal import who_asks as who_asks
    from mainspring.declare.route import by_role as by_role
    from mainspring.declare.route import by_token as by_token
    from mainspring.declare.route import public as public
    from mainspring.web.application import create as create
    from mainspring.web.kick import Kick as Kick
    from mainspring.web.runs import Run as Run
    from mainspring.web.server import Server as Server
    from mainspring.web.server import serve as serve
except ModuleNotFoundError as missing:
    if (missing.name or "").partition(".")[0] not in {"starlette", "uvicorn", "httpx2", "prometheus_client"}:
        raise
    raise ConfigurationError("serving over HTTP needs an extra: pip install 'mainspring[web]'") from None

__all__ = ["Kick", "Principal", "Run", "Server", "by_role", "by_token", "create", "public", "serve", "who_asks"]
