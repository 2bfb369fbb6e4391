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

from mainspring.app import App
from mainspring.caller import Caller, calling
from mainspring.client import AsyncClient, Client
from mainspring.codes import register as register_code
from mainspring.config import WorkerConfig
from mainspring.context import Context, SyncContext
from mainspring.dedupe import by_payload, debounce, keep, live, replacing, reset_failed, window
from mainspring.errors import (
    ConfigurationError,
    DatabaseUnavailable,
    DeclarationError,
    JobError,
    JobExists,
    JobNotFound,
    KeyReused,
    LeaseLost,
    MainspringError,
    PayloadTooLarge,
    ResultUnavailable,
    SchemaError,
    TransitionRefused,
    ValidationError,
)
from mainspring.job import Claim, Enqueued, Job, NewJob
from mainspring.outcome import Cancelled, Failure, Permanent, RetryAfter, Snooze
from mainspring.registry import Registry
from mainspring.retry import Retry, exponential, fixed
from mainspring.states import State
from mainspring.task import Task

__all__ = [
    "App",
    "AsyncClient",
    "Caller",
    "Cancelled",
    "Claim",
    "Client",
    "ConfigurationError",
    "Context",
    "DatabaseUnavailable",
    "DeclarationError",
    "Enqueued",
    "Failure",
    "Job",
    "JobError",
    "JobExists",
    "JobNotFound",
    "KeyReused",
    "LeaseLost",
    "MainspringError",
    "NewJob",
    "PayloadTooLarge",
    "Permanent",
    "Registry",
    "ResultUnavailable",
    "Retry",
    "RetryAfter",
    "SchemaError",
    "Snooze",
    "State",
    "SyncContext",
    "Task",
    "TransitionRefused",
    "ValidationError",
    "WorkerConfig",
    "by_payload",
    "calling",
    "debounce",
    "exponential",
    "fixed",
    "keep",
    "live",
    "register_code",
    "replacing",
    "reset_failed",
    "window",
]
