"""What the process that a worker runs in gives it."""

from __future__ import annotations

import os
import re
import secrets
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


def worker_id() -> str:
    """An id for a worker of this process, unique per start."""
    host = re.sub(r"[^\w.-]", "-", socket.gethostname())
    return f"{host}:{os.getpid()}:{secrets.token_hex(4)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosting:
    """Who the worker is in its process, and what that does for it."""

    id: str = field(default_factory=worker_id)
    own_process: bool = False  # it ends if the event loop stands still
    alone: bool = False  # it runs only what must run alone
    cell: Sequence[str] | None = None  # the command line of a process that does; None: the worker runs that itself
    after: tuple[str, float] | None = None  # the worker in whose place it was started, and when that died
    pulse: Callable[[float, float], None] | None = None  # told that it lives: its lease and its grace, in seconds
    housekeeping: bool = True  # it fires the engine's own schedules, too
