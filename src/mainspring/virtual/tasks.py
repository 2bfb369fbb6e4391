"""Whose jobs are run: what the kit needs to know of an App, or of a Registry alone."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from mainspring.app import App
from mainspring.cipher import Cipher
from mainspring.circuit import Breaker
from mainspring.config import DEFAULT_SCHEMA
from mainspring.db.cipher import Keyring
from mainspring.db.limits import declare
from mainspring.db.queues import declare as declare_queues
from mainspring.db.readable import key_in, readable_job
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue
from mainspring.declare.caller import NOBODY, Caller
from mainspring.declare.registry import Registry
from mainspring.errors import ConfigurationError
from mainspring.events import Observer
from mainspring.job import Job
from mainspring.limit import DeclaredLimit, check_declared, owner
from mainspring.queue import DEAD_LETTER, QUEUES, Queue
from mainspring.worker.executor import Authorize

Tasks: TypeAlias = "App | Registry"


@dataclass(frozen=True, slots=True)
class DeclaredTasks:
    """The tasks, and how they are run."""

    registry: Registry
    schema: str = DEFAULT_SCHEMA
    caller: Caller = NOBODY
    authorize: Authorize | None = None
    queues: Sequence[str] = ()  # those of the worker, where they are configured
    observers: Sequence[Observer] = ()
    cipher: Cipher | None = None
    breakers: Sequence[Breaker] = ()
    limits: Sequence[DeclaredLimit] = ()
    declared_queues: Sequence[Queue] = ()

    @classmethod
    def by(cls, tasks: Tasks) -> DeclaredTasks:
        """What an application or a registry says."""
        if isinstance(tasks, Registry):
            return cls(tasks)
        if isinstance(tasks, App):
            queues = tuple(tasks.config.queues) if tasks.config else ()
            elsewhere = [observer for block in tasks.blocks for observer in block.observers]  # a broker, a run endpoint
            observers = [observer for observer in tasks.observers if observer not in elsewhere]
            return cls(
                tasks.registry, tasks.schema, tasks.caller, tasks.authorize, queues, observers, tasks.cipher,
                tasks.breakers, tasks.limits, tasks.queues,
            )  # fmt: skip
        raise ConfigurationError(f"app: a {type(tasks).__name__} is no App and no Registry")

    def serves(self) -> list[str]:
        """The queues whose jobs run: the engine's, those declared, those of the tasks, and those configured."""
        declared = (queue.name for queue in self.declared_queues)
        names = [*QUEUES, *declared, *(task.queue for task in self.registry), *self.queues]
        return [name for name in dict.fromkeys(names) if name != DEAD_LETTER]

    def declare(self, sql: Sql) -> Dialogue[None]:
        """Write down the limits and the queues, as a worker does when it starts."""
        app = owner(self.registry.origins())
        if self.limits:
            yield from declare(sql, app, check_declared(self.limits, self.registry.names(), self.serves()))
        if self.declared_queues:
            yield from declare_queues(sql, app, self.declared_queues)


def shown(job: Job, ring: Keyring) -> Job:
    """A job with what is encrypted of it decrypted."""
    key = key_in(job)
    return job if key is None else readable_job(job, ring.to_read(job.org_id, key))


def find(name: str) -> Tasks:
    """What `module:name` names."""
    module, _, attribute = name.partition(":")
    try:
        found: Tasks = getattr(importlib.import_module(module), attribute or "app")
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"mainspring_app: there is no {name}: {error}") from error
    DeclaredTasks.by(found)
    return found
