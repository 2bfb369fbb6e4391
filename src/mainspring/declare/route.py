"""Who may call a route. Each route of an application says it, or nothing is served."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from mainspring.declare.credential import ACCESS_ROLES, AccessRole
from mainspring.declare.principal import Principal as Principal
from mainspring.declare.principal import who_asks as who_asks
from mainspring.errors import DeclarationError
from mainspring.job import DEFAULT_ORG

Access = Literal["public", "token", "role"]
JSON_ONLY = ("application/json",)


@dataclass(frozen=True, slots=True)
class DeclaredRoute:
    """A route, and who may come in by it: made by `public`, `by_token` and `by_role`."""

    route: Any  # Starlette's
    access: Access
    setting: str | None = None  # the environment variable that holds a token
    accepts: tuple[str, ...] = JSON_ONLY  # content types of bodies; none named: all
    role: AccessRole = "admin"  # that somebody needs at least
    org: str | None = None  # whose it is; None: everybody's, for those who see all organisations


def public(route: Any, *, accepts: tuple[str, ...] = JSON_ONLY) -> DeclaredRoute:
    """A route for everybody who reaches the server; it may still ask for something itself, such as a signature.

    ::

        app = ms.App(tasks, routes=[public(Route("/hello", hello))])

    `accepts` are the content types that a body may have; an empty tuple takes any.
    """
    return DeclaredRoute(route, "public", accepts=accepts)


def by_token(route: Any, setting: str, *, accepts: tuple[str, ...] = JSON_ONLY) -> DeclaredRoute:
    """A route for callers that send `Authorization: Bearer …` with the token in this environment variable.

    ::

        app = ms.App(tasks, routes=[by_token(Route("/orders", orders), "SHOP_TOKEN")])

    The server does not start while the variable is not set, or holds less than 16 characters.
    """
    return DeclaredRoute(route, "token", setting, accepts)


def by_role(
    route: Any,
    role: AccessRole,
    *,
    org: str | None = DEFAULT_ORG,
    token: str | None = None,
    accepts: tuple[str, ...] = JSON_ONLY,
) -> DeclaredRoute:
    """A route for people who are signed in and programs with an access token, who have this role at least.

    ::

        app = ms.App(tasks, routes=[by_role(Route("/orders", orders), "operator")])

    `org` is whose data the route is about: for who belongs to another organisation it is not there, and None is for
    those alone who see all. `token` names an environment variable besides; where it is set, whoever knows its value is
    an admin of that organisation here. `who_asks(request)` says who it is.
    """
    if role not in ACCESS_ROLES:
        raise DeclarationError(f"role: {role!r} is not one of {', '.join(ACCESS_ROLES)}")
    return DeclaredRoute(route, "role", token, accepts, role, org)
