"""The routes by which people sign in and out, see who they are, and end sessions of theirs."""

from __future__ import annotations

import asyncio
import logging
from importlib.resources import files
from typing import Any, Final, TypeVar
from uuid import UUID

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from mainspring.db import access as verbs
from mainspring.db.access import AccessHolder, Grant, Opening, Voucher
from mainspring.db.jobs import now as database_now
from mainspring.declare.credential import csrf_token, is_secret, new_secret
from mainspring.declare.password import LONGEST_PASSWORD, PasswordRecipe
from mainspring.declare.route import DeclaredRoute, public
from mainspring.job import SYSTEM
from mainspring.text.texts import MAX_NAME, text_problem
from mainspring.web.access.cookie import OIDC_SUFFIX, cookie_name, give_cookie, secret_in, take_cookie
from mainspring.web.access.desk import AccessDesk
from mainspring.web.access.oidc import Oidc, OidcRefused
from mainspring.web.access.oidc_config import CALLBACK_PATH
from mainspring.web.answers import Json, nobody, refusal
from mainspring.web.proxies import address_of, network_of

log = logging.getLogger("mainspring.web")
S = TypeVar("S", bound=msgspec.Struct)

HASHES_AT_ONCE: Final = 2  # passwords that are looked at; each takes 32 MiB and a core
HASHES_WAITING: Final = 20  # beyond them somebody is told to come back
REFUSED: Final = "This name, password or link opens nothing."
NO_TLS: Final = "Signing in needs TLS at a proxy that is named (MAINSPRING_TRUSTED_PROXIES), beyond this machine."
PAGE_FILES: Final = {"sign-in.js": "text/javascript", "sign-in.css": "text/css"}


class PasswordSignIn(msgspec.Struct, forbid_unknown_fields=True):
    """What somebody types."""

    name: str
    password: str


class LinkSignIn(msgspec.Struct, forbid_unknown_fields=True):
    """What stands in a one-time link."""

    code: str


class SignIn:
    """The routes before every session. Each is open to everybody, and looks at what it is shown."""

    def __init__(self, access: AccessDesk) -> None:
        self._access, self._vouching = access, access.vouching
        self._oidc = None if self._vouching.oidc is None else Oidc(self._vouching.oidc)
        self._hashing, self._waiting = asyncio.Semaphore(HASHES_AT_ONCE), 0
        page = files("mainspring.web.access") / "page"
        self._files = {file.name: file.read_text() for file in page.iterdir()}

    def routes(self) -> list[DeclaredRoute]:
        """The routes, for everybody."""
        routes = [
            Route("/sign-in", self.show),
            Route("/sign-in/{file}", self.file),
            Route("/api/v1/sign-in", self.ways, methods=["GET"]),
            Route("/api/v1/sign-in", self.by_password, methods=["POST"]),
            Route("/api/v1/sign-in/link", self.by_link, methods=["POST"]),
            Route("/api/v1/sign-in/proxy", self.by_proxy, methods=["POST"]),
            Route("/api/v1/sign-out", self.sign_out, methods=["POST"]),
            Route("/api/v1/me", self.me, methods=["GET"]),
            Route("/api/v1/sessions", self.sessions, methods=["GET"]),
            Route("/api/v1/sessions", self.end_all, methods=["DELETE"]),
            Route("/api/v1/sessions/{id}", self.end_one, methods=["DELETE"]),
        ]
        if self._oidc is not None:
            routes[:0] = [Route("/sign-in/oidc", self.to_provider), Route(CALLBACK_PATH, self.from_provider)]
        return [public(route) for route in routes]

    # -- signing in

    async def ways(self, request: Request) -> Response:
        """By what somebody can sign in here."""
        others = {"proxy": self._vouching.proxy_user(request) is not None, "oidc": self._oidc is not None}
        return Json({"ways": ["password", "link", *(way for way, there in others.items() if there)]})

    async def by_password(self, request: Request) -> Response:
        """Sign in by a name and a password. It takes as long for a name that nobody has."""
        name, opening = self._opening(request)
        typed = await _body(request, PasswordSignIn)
        if text_problem(typed.name, MAX_NAME) or len(typed.password) > LONGEST_PASSWORD:
            return self._refused(None, opening)
        recipe = await self._try(typed.name, opening)
        made = await self._verifier(recipe, typed.password)
        found = await self._access.ask(verbs.sign_in(self._access.sql, typed.name, made, opening))
        # Who is not known may have typed a password in the place of a name.
        return self._welcome(found, name, opening) if found else self._refused(recipe and typed.name, opening)

    async def by_link(self, request: Request) -> Response:
        """Sign in by a one-time code."""
        name, opening = self._opening(request)
        code = (await _body(request, LinkSignIn)).code
        await self._try(None, opening)
        if not is_secret(code):
            return self._refused(None, opening)
        found = await self._access.ask(verbs.sign_in_by_link(self._access.sql, code, opening))
        return self._welcome(found, name, opening) if found else self._refused(None, opening)

    async def by_proxy(self, request: Request) -> Response:
        """Sign in as whom a named proxy brings."""
        name, opening = self._opening(request)
        user = self._vouching.proxy_user(request)
        if user is None:
            return self._refused(None, opening)
        found = await self._vouched(user, "proxy", self._vouching.proxy_groups(request), opening)
        return self._welcome(found, name, opening) if found else self._refused(user, opening)

    async def to_provider(self, request: Request) -> Response:
        """Send somebody to their provider; what comes back must belong to the secret that their browser keeps."""
        assert self._oidc is not None
        name = cookie_name(request, OIDC_SUFFIX)
        if name is None:
            return refusal(403, "SIGN_IN_NEEDS_TLS", NO_TLS)
        secret = new_secret()
        try:
            answer = RedirectResponse(await self._oidc.address(secret), status_code=303)
        except OidcRefused as why:
            log.warning("sign-in by the provider refused: %s", why, extra={"action": "refuse"})
            return refusal(503, "PROVIDER_UNAVAILABLE", "The provider of identities cannot be asked; try again.")
        give_cookie(answer, name, secret, "lax")  # it must come along when the provider sends them back
        return answer

    async def from_provider(self, request: Request) -> Response:
        """Sign in whom a provider sends back."""
        assert self._oidc is not None
        name, opening = self._opening(request)
        secret, user, found = secret_in(request, OIDC_SUFFIX), None, None
        try:
            self._oidc.check_state(secret, request.query_params)  # a page of somebody else spends no try of its visitor
            await self._try(None, opening)
            now = await self._access.ask(database_now(self._access.sql))
            user, groups = await self._oidc.identity(secret, request.query_params, now)
            found = await self._vouched(user, "oidc", groups, opening)
        except OidcRefused as why:
            log.warning("sign-in by the provider refused: %s", why, extra={"action": "refuse"})
        if found is None:
            self._refused(user, opening)
            answer: Response = HTMLResponse(self._files["refused.html"], status_code=403)
        else:
            # A page of ours goes on from here: a redirect would still be the provider's, and bring no strict cookie.
            answer = self._welcome(found, name, opening, HTMLResponse(self._files["welcome.html"]))
        take_cookie(answer, cookie_name(request, OIDC_SUFFIX) or name)
        return answer

    async def _vouched(self, user: str, by: Voucher, groups: list[str], opening: Opening) -> AccessHolder | None:
        grant: Grant | None = self._vouching.roles.grant(user, groups)
        if grant is None:
            return None
        vouched = verbs.sign_in_vouched(self._access.sql, user, by, grant, opening)
        return await self._access.ask(vouched, org=SYSTEM)

    # -- sessions

    async def me(self, request: Request) -> Response:
        """Who asks, and what a page needs to act for them."""
        principal = await self._access.principal(request)
        if principal is None:
            return nobody()
        secret, found = await self._access.session(request)
        about = {"name": principal.name, "role": principal.role, "org": principal.org, "reveals": principal.reveals}
        return Json(
            about | {"session": found and found.session, "csrf": csrf_token(secret) if found and secret else None}
        )

    async def sessions(self, request: Request) -> Response:
        """Where somebody is signed in."""
        if await self._access.principal(request) is None:
            return nobody()
        secret, _ = await self._access.session(request)
        found = [] if secret is None else await self._access.ask(verbs.sessions(self._access.sql, secret))
        return Json({"sessions": found})

    async def sign_out(self, request: Request) -> Response:
        """End the session that asks; without one it is so already."""
        await self._access.principal(request)  # which looks at the token of the session
        secret, found = await self._access.session(request)
        if secret is not None and found is not None:
            await self._access.ask(verbs.end_sessions(self._access.sql, secret, found.session))
        return self._gone(request)

    async def end_all(self, request: Request) -> Response:
        """End all sessions of who asks, this one as well."""
        if await self._access.principal(request) is None:
            return nobody()
        secret, _ = await self._access.session(request)
        if secret is not None:
            await self._access.ask(verbs.end_sessions(self._access.sql, secret))
        return self._gone(request)

    async def end_one(self, request: Request) -> Response:
        """End one session of who asks."""
        if await self._access.principal(request) is None:
            return nobody()
        try:
            id = UUID(request.path_params["id"])
        except ValueError:
            raise HTTPException(404) from None
        secret, found = await self._access.session(request)
        if secret is None or not await self._access.ask(verbs.end_sessions(self._access.sql, secret, id)):
            raise HTTPException(404)
        return self._gone(request) if found is not None and found.session == id else Response(status_code=204)

    # -- pages

    async def show(self, _: Request) -> Response:
        """The page on which people sign in."""
        return HTMLResponse(self._files["sign-in.html"])

    async def file(self, request: Request) -> Response:
        """What belongs to it."""
        kind = PAGE_FILES.get(request.path_params["file"])
        if kind is None:
            raise HTTPException(404)
        return Response(
            self._files[request.path_params["file"]], media_type=kind, headers={"cache-control": "no-cache"}
        )

    # -- parts

    def _opening(self, request: Request) -> tuple[str, Opening]:
        """A session for a browser, where its cookie may travel."""
        name = cookie_name(request)
        if name is None:
            raise HTTPException(403, NO_TLS)
        return name, Opening(secret=new_secret(), address=_address(request), before=secret_in(request))

    async def _try(self, name: str | None, opening: Opening) -> str | None:
        found = await self._access.ask(verbs.try_sign_in(self._access.sql, name, network_of(opening.address)))
        if found.wait:
            log.warning("sign-in from %s held back", opening.address, extra={"action": "refuse"})
            raise HTTPException(429, "Too many tries to sign in; wait", {"retry-after": str(found.wait)})
        return found.recipe

    async def _verifier(self, recipe: str | None, password: str) -> str:
        if self._waiting >= HASHES_WAITING:
            raise HTTPException(503, "Too many sign in; try again", {"retry-after": "5"})
        self._waiting += 1
        try:
            async with self._hashing:
                known = PasswordRecipe.new() if recipe is None else PasswordRecipe.parse(recipe)
                return await asyncio.to_thread(known.verifier, password)
        finally:
            self._waiting -= 1

    def _welcome(self, found: AccessHolder, name: str, opening: Opening, answer: Response | None = None) -> Response:
        log.info("%s signed in from %s", found.name, opening.address, extra={"action": "sign-in"})
        about = {"name": found.name, "role": found.role, "org": found.org, "reveals": found.reveals}
        answer = answer or Json(about | {"session": found.session, "csrf": csrf_token(opening.secret)})
        give_cookie(answer, name, opening.secret)
        return answer

    def _refused(self, user: str | None, opening: Opening) -> Response:
        who = "somebody" if user is None else user
        log.warning("sign-in of %s from %s refused", who, opening.address, extra={"action": "refuse"})
        return refusal(401, "SIGN_IN_REFUSED", REFUSED)

    def _gone(self, request: Request) -> Response:
        answer = Response(status_code=204)
        if (name := cookie_name(request)) is not None and name in request.cookies:
            take_cookie(answer, name)
        return answer


def _address(request: HTTPConnection) -> str:
    found = address_of(request.client.host if request.client else "")
    return "unknown" if found is None else str(found)


async def _body(request: Request, kind: type[S]) -> S:
    try:
        return msgspec.json.decode(await request.body(), type=kind)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise HTTPException(400, _problem(error)) from None


def _problem(error: Any) -> str:
    return "The body is not the JSON that belongs here: " + str(error).partition(" - ")[0][:200]
