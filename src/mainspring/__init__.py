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

from mainspring.caller import Caller, calling
from mainspring.cipher import Cipher, MasterKey
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
    NotPermitted,
    PayloadTooLarge,
    ResultUnavailable,
    SchemaError,
    TransitionRefused,
    ValidationError,
)
from mainspring.job import Claim, Enqueued, Job, NewJob
from mainspring.outcome import Cancelled, Failure, Permanent, RetryAfter, Snooze
from mainspring.plans import Plan
from mainspring.registry import Registry
from mainspring.retry import Retry, exponential, fixed
from mainspring.states import State
from mainspring.task import Task

# These bring the database driver, which takes longest to import: a command line that only shows its help, and a module
# that only declares tasks, do without.
if TYPE_CHECKING:
    from mainspring.app import App
    from mainspring.client import AsyncClient, Client
else:

    def __getattr__(name: str) -> Any:
        home = {"App": "mainspring.app", "AsyncClient": "mainspring.client", "Client": "mainspring.client"}.get(name)
        if home is None:
            raise AttributeError(f"module 'mainspring' has no attribute {name!r}")
        return getattr(import_module(home), name)


__all__ = [
    "App",
    "AsyncClient",
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
    "Job",
    "JobError",
    "JobExists",
    "JobNotFound",
    "KeyReused",
    "LeaseLost",
    "MainspringError",
    "MasterKey",
    "NewJob",
    "NotPermitted",
    "PayloadTooLarge",
    "Permanent",
    "Plan",
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
