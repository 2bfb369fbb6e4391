"""A mailbox that speaks SMTP."""

from __future__ import annotations

import asyncio

from aiosmtpd.smtp import SMTP

from mainspring.sandbox.world import World


async def smtp_server(world: World, host: str, port: int) -> asyncio.Server:
    """Listen for mail in this event loop."""
    return await asyncio.get_running_loop().create_server(lambda: SMTP(object()), host, port)
