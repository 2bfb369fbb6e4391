"""Durable background jobs and schedules for Python teams, in the PostgreSQL they already run.

>>> import mainspring as ms
>>> tasks = ms.Registry("shop")
>>> @tasks.task
... async def send_welcome(*, user_id: int) -> None:
...     "Welcome a new user."
>>> send_welcome.job(user_id=7).queue
'q:default'
"""

__version__ = "0.1.0"

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mainspring import dedupe
from mainspring.category import Category
from mainspring.cipher import Cipher
from mainspring.circuit import breaker
from mainspring.config import Retention, WorkerConfig
from mainspring.declare.caller import Caller, calling, following
from mainspring.declare.context import Context, SyncContext
from mainspring.declare.registry import Registry
from mainspring.declare.task import Task
from mainspring.errors import MainspringError, ValidationError
from mainspring.health.measure import measure
from mainspring.health.watch import watch, watch_dead
from mainspring.job import Enqueued, Job, NewJob
from mainspring.limit import concurrency, fair, in_order, rate
from mainspring.outcome import Failure, Permanent, RetryAfter, Snooze
from mainspring.queue import Queue
from mainspring.retry import exponential, fixed, listed
from mainspring.text.span import Span
from mainspring.together.batch import batch
from mainspring.together.chunk import chunks
from mainspring.together.flow import chain, group
from mainspring.when.rule import cron, daily, every, monthly, weekly

# These bring the database driver, which takes longest to import: a command line that only shows its help, and a module
# that only declares tasks, do without.
if TYPE_CHECKING:
    from mainspring.app import App
    from mainspring.client import AsyncClient, Client
    from mainspring.db.schema.line import Line
else:

    def __getattr__(name: str) -> Any:
        home = {
            "App": "mainspring.app",
            "AsyncClient": "mainspring.client",
            "Client": "mainspring.client",
            "Line": "mainspring.db.schema.line",
        }.get(name)
        if home is None:
            raise AttributeError(f"module 'mainspring' has no attribute {name!r}")
        return getattr(import_module(home), name)


__all__ = [
    "App",
    "AsyncClient",
    "Caller",
    "Category",
    "Cipher",
    "Client",
    "Context",
    "Enqueued",
    "Failure",
    "Job",
    "Line",
    "MainspringError",
    "NewJob",
    "Permanent",
    "Queue",
    "Registry",
    "Retention",
    "RetryAfter",
    "Snooze",
    "Span",
    "SyncContext",
    "Task",
    "ValidationError",
    "WorkerConfig",
    "batch",
    "breaker",
    "calling",
    "chain",
    "chunks",
    "concurrency",
    "cron",
    "daily",
    "dedupe",
    "every",
    "exponential",
    "fair",
    "fixed",
    "following",
    "group",
    "in_order",
    "listed",
    "measure",
    "monthly",
    "rate",
    "watch",
    "watch_dead",
    "weekly",
]
