"""Stands in for twilio."""

from __future__ import annotations

from starlette.routing import BaseRoute

from mainspring.sandbox.world import World


def routes(world: World) -> list[BaseRoute]:
    """The pages of the provider."""
    return []
