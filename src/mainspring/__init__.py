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

from mainspring.breaker import Breaker, breaker
from mainspring.cipher import Cipher, MasterKey
from mainspring.codes import register as register_code
from mainspring.config import Retention, WorkerConfig
from mainspring.declare.caller import Caller, calling, following
from mainspring.declare.context import Context, SyncContext
from mainspring.declare.registry import Registry
from mainspring.declare.schedule import Schedule
from mainspring.declare.task import Task
from mainspring.dedupe import by_payload, debounce, keep, live, replacing, reset_failed, window
from mainspring.errors import (
    BatchNotFound,
    ConfigurationError,
    DatabaseUnavailable,
    DeclarationError,
    JobError,
    JobExists,
    JobNotFound,
    KeyReused,
    LeaseLost,
    MainspringError,
    NotPermitted,
    PayloadTooLarge,
    QueueFull,
    ResultUnavailable,
    ScheduleNotFound,
    SchemaError,
    TransitionRefused,
    UnknownName,
    ValidationError,
)
from mainspring.health.alert import AlertRow
from mainspring.health.measure import Measure, Measured, measure
from mainspring.health.watch import Watch, watch, watch_dead
from mainspring.job import Claim, Enqueued, Job, NewJob
from mainspring.limit import Fair, Limit, concurrency, fair, in_order, rate
from mainspring.outcome import BreakerOpen, Cancelled, Failure, Permanent, RetryAfter, Snooze
from mainspring.plans import Plan
from mainspring.retry import Retry, exponential, fixed, listed
from mainspring.states import State
from mainspring.together.batch import Batch, NewBatch, batch
from mainspring.together.chunk import chunks
from mainspring.together.flow import Flow, chain, group
from mainspring.when.rule import FRI, MON, SAT, SUN, THU, TUE, WED, Rule, Tick, cron, daily, every, monthly, weekly
from mainspring.when.zones import check_zone

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
    "FRI",
    "MON",
    "SAT",
    "SUN",
    "THU",
    "TUE",
    "WED",
    "AlertRow",
    "App",
    "AsyncClient",
    "Batch",
    "BatchNotFound",
    "Breaker",
    "BreakerOpen",
    "Caller",
    "Cancelled",
    "Cipher",
    "Claim",
    "Client",
    "ConfigurationError",
    "Context",
    "DatabaseUnavailable",
    "DeclarationError",
    "Enqueued",
    "Failure",
    "Fair",
    "Flow",
    "Job",
    "JobError",
    "JobExists",
    "JobNotFound",
    "KeyReused",
    "LeaseLost",
    "Limit",
    "Line",
    "MainspringError",
    "MasterKey",
    "Measure",
    "Measured",
    "NewBatch",
    "NewJob",
    "NotPermitted",
    "PayloadTooLarge",
    "Permanent",
    "Plan",
    "QueueFull",
    "Registry",
    "ResultUnavailable",
    "Retention",
    "Retry",
    "RetryAfter",
    "Rule",
    "Schedule",
    "ScheduleNotFound",
    "SchemaError",
    "Snooze",
    "State",
    "SyncContext",
    "Task",
    "Tick",
    "TransitionRefused",
    "UnknownName",
    "ValidationError",
    "Watch",
    "WorkerConfig",
    "batch",
    "breaker",
    "by_payload",
    "calling",
    "chain",
    "check_zone",
    "chunks",
    "concurrency",
    "cron",
    "daily",
    "debounce",
    "every",
    "exponential",
    "fair",
    "fixed",
    "following",
    "group",
    "in_order",
    "keep",
    "listed",
    "live",
    "measure",
    "monthly",
    "rate",
    "register_code",
    "replacing",
    "reset_failed",
    "watch",
    "watch_dead",
    "weekly",
    "window",
]
