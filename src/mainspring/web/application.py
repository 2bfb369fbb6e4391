"""The ASGI application: everything that is served, in one place, to be served alone or mounted in another."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Mount, Route, Router
from starlette.types import ASGIApp

from mainspring.app import App
from mainspring.config import allowed_hosts, probed_by_ip, role_dsn, trusted_proxies
from mainspring.errors import ConfigurationError, MainspringError
from mainspring.text.span import Span, configured_span
from mainspring.web.access.desk import AccessDesk
from mainspring.web.access.sign_in import SignIn
from mainspring.web.access.vouched import Vouching
from mainspring.web.answers import failed, refused
from mainspring.web.api.http_api import API_PREFIX, HttpApi
from mainspring.web.authenticator import Authenticator
from mainspring.web.backend import Backend
from mainspring.web.guard import Guard
from mainspring.web.guarded_route import NO_TOKENS, guarded
from mainspring.web.health import Ready, live
from mainspring.web.inbound import LARGEST_INBOUND_BODY, InboundReceiver
from mainspring.web.metrics import Scrape
from mainspring.web.operators import OperatorsOnly
from mainspring.web.origin import AllowedHosts
from mainspring.web.paces import Paced, RequestPaces, RequestRates
from mainspring.web.proxies import TrustedProxies
from mainspring.web.runs import Run, RunsUnderWay
from mainspring.web.secret import known_secret

GRACE = timedelta(seconds=30)
CONSOLE_PREFIX: Final = "/console"  # kept for it: there is none yet


def create(
    app: App,
    *,
    access: Authenticator | None = None,
    secret: str | None = None,
    tokens: Mapping[str, str] = NO_TOKENS,
    proxies: Sequence[str] = (),
    hosts: Sequence[str] = (),
    probe_by_ip: bool = False,
    largest: int = LARGEST_INBOUND_BODY,
    grace: Span = GRACE,
) -> Starlette:
    """The HTTP application of an application, mountable under any prefix.

    ::

        web = Starlette(routes=[Mount("/jobs", create(app, hosts=["shop.example"]))])

    `access` knows who may ask the HTTP API, below /api/v1, and routes `by_role`; else the users and tokens in the
    database are asked. On a secured schema there is no API without its two logins, MAINSPRING_API_DSN and
    MAINSPRING_OPERATOR_DSN.
    `secret` is CRON_SECRET unless given. Without one there is no run endpoint, and metrics are shown to this machine
    only. `tokens` are those of routes, by the names of their variables, unless the environment has them. `proxies`
    are addresses and networks whose `X-Forwarded-…` headers are believed, beside MAINSPRING_TRUSTED_PROXIES. `hosts`
    are the names under which it answers, beside those of loopback and MAINSPRING_ALLOWED_HOSTS; with `probe_by_ip`, or
    MAINSPRING_PROBE_BY_IP, health is told under any IP address too. `largest` bounds the body of a request, in bytes;
    `grace` is how long a stop waits for runs.
    """
    known, patience = known_secret(secret), configured_span("grace", grace)
    names = AllowedHosts([*hosts, *allowed_hosts()], probe_by_ip=probe_by_ip or probed_by_ip())
    backend, desk = Backend(app, known), AccessDesk(app, Vouching.configured())
    runs, paces = RunsUnderWay(backend), RequestPaces(RequestRates.configured())
    others = [*app.routes, *(route for block in app.blocks for route in block.routes())]
    wanted = [route for route in others if isinstance(route, Run)]
    if wanted and known is None:
        raise ConfigurationError(f"CRON_SECRET: is not set, and {wanted[0].path} runs jobs for whoever knows it")
    if known is not None and Run().path not in {run.path for run in wanted}:
        wanted.append(Run())
    ours = SignIn(desk).routes()
    theirs = guarded([route for route in others if not isinstance(route, Run)], tokens, Paced(access or desk, paces))
    places = {declared.route.path for declared in ours}
    if taken := [r.path for r in theirs if r.path in places or f"{r.path}/".startswith(f"{CONSOLE_PREFIX}/")]:
        raise ConfigurationError(f"routes: {min(taken)} is taken, for signing in or for the console")
    checks = [check for block in app.blocks for check in block.checks]
    sources = [source for block in app.blocks for source in block.inbound]
    routes: list[BaseRoute] = [
        Route("/v1/health/live", live),
        Route("/v1/health/ready", Ready(app, checks).answer),
        Route("/metrics", Scrape(backend).answer),
        Route("/v1/inbound/{provider}", InboundReceiver(backend, sources).answer, methods=["POST"]),
        *(runs.route(run) for run in wanted),
        *guarded(ours),
        *theirs,
    ]

    if access is None and (not app.secured or all(map(role_dsn, ("api", "operator")))):
        access = desk
    api = None if access is None else HttpApi(app)
    if access is not None and api is not None:
        inside: dict[str, ASGIApp] = {API_PREFIX: api, CONSOLE_PREFIX: Router()}
        for path, one in inside.items():
            door = OperatorsOnly(one, Paced(access, paces))
            routes += [Route(path, door), Mount(path, door)]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        runs.open()  # again, where it was stopped before
        try:
            yield
        finally:
            await runs.close(patience)
            await backend.close()
            await desk.close()
            if api is not None:
                await api.close()

    made = Starlette(
        routes=routes,
        middleware=[
            Middleware(
                Guard,
                largest=largest,
                hosts=names,
                proxies=TrustedProxies([*proxies, *trusted_proxies()]),
                paces=paces,
                uncounted=frozenset(run.path for run in wanted),
            )
        ],
        exception_handlers={HTTPException: refused, MainspringError: failed},
        lifespan=lifespan,
    )
    made.router.redirect_slashes = False  # it would send callers to whatever host their own header names
    made.state.runs = runs
    return made
