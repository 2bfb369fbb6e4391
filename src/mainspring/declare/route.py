"""Who may call a route. Each route of an application says it, or nothing is served."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Access = Literal["public", "token"]
JSON_ONLY = ("application/json",)


@dataclass(frozen=True, slots=True)
class DeclaredRoute:
    """A route, and who may come in by it: made by `public` and `by_token`."""

    route: Any  # Starlette's
    access: Access
    setting: str = ""  # the environment variable that holds the token
    accepts: tuple[str, ...] = JSON_ONLY  # content types of bodies; none named: all


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
