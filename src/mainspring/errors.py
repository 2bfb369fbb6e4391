"""What can go wrong, grouped by who must act.

::

    MainspringError
    ├── ConfigurationError        fix the settings                     (at start-up)
    ├── DeclarationError          fix the code                         (at import or start-up)
    │   ├── DuplicateTask
    │   ├── UnknownTask
    │   └── UnknownOption
    ├── ValidationError           fix the input; carries code and field (at enqueue)
    │   ├── PayloadTooLarge
    │   ├── NameTaken             somebody else is called so
    │   └── UnknownName           no limit, breaker, endpoint or delivery is called so
    ├── JobError                  about one job; carries job_id
    │   ├── JobNotFound
    │   ├── JobExists             the job id is taken by another job
    │   ├── KeyReused             the key is taken with another payload
    │   ├── TransitionRefused     the job's state does not allow it; carries verb and state
    │   ├── ResultUnavailable     the job ended without success; carries state and error
    │   ├── LeaseLost             the worker no longer owns the job
    │   ├── AfterCompletion       a handler went on after it had completed its job
    │   └── CompletionNotCommitted  the transaction that was to complete the job did not commit
    ├── HandlerMistake            a handler's code, or its connection, must change; it is not tried again
    ├── QueueFull                 best-effort work is refused for now; carries queue
    ├── ScheduleNotFound          no schedule has this name
    ├── BatchNotFound             no batch has this id
    ├── NotPermitted              another organisation's, or not this role's to do
    ├── SignatureRefused          a webhook that came is not from whom it says
    ├── Unreadable                an encrypted value was changed, or belongs elsewhere
    │   └── Erased                its key no longer exists: the organisation was erased
    ├── SchemaError               SchemaMissing  SchemaOutdated  SchemaChanged  SchemaTooNew  SchemaBusy
    └── DatabaseUnavailable       try again later

What a handler raises to steer its job (Permanent, RetryAfter, Snooze) lives in `mainspring.outcome`.
"""

from __future__ import annotations

import copyreg
from typing import Any
from uuid import UUID


class MainspringError(Exception):
    """Something went wrong in Mainspring."""

    code: str = "INTERNAL_ERROR"

    def __init__(self, message: str = "", **data: Any) -> None:
        super().__init__(message or (self.__doc__ or "").partition("\n")[0])
        for name, value in data.items():
            setattr(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors cross process borders; by default they would be made anew from the message alone.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined] # not in typeshed


class ConfigurationError(MainspringError):
    """A setting is missing or wrong."""


class DeclarationError(MainspringError):
    """A task, registry or schedule is declared wrongly."""


class DuplicateTask(DeclarationError):
    """Two tasks have the same name."""


class UnknownTask(DeclarationError):
    """No task has this name."""

    code = "UNKNOWN_JOB_TYPE"


class UnknownOption(DeclarationError):
    """This option does not exist."""


class ValidationError(MainspringError):
    """A field of a job is missing or wrong; nothing was written."""

    code = "VALIDATION_ERROR"
    field: str

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(message, field=field)


class PayloadTooLarge(ValidationError):
    """The payload is larger than the limit."""

    code = "PAYLOAD_TOO_LARGE"


class NameTaken(ValidationError):
    """Somebody else is called so."""


class UnknownName(ValidationError):
    """No limit, breaker, endpoint or delivery is called so."""


class JobError(MainspringError):
    """Something went wrong with one job."""

    job_id: UUID | None = None


class JobNotFound(JobError):
    """There is no such job."""


class JobExists(JobError):
    """Another job has this id."""


class KeyReused(JobError):
    """The idempotency key is taken by a job with another payload."""

    code = "IDEMPOTENCY_KEY_REUSED"


class TransitionRefused(JobError):
    """The job's state does not allow this."""

    verb: str
    state: str | None


class ResultUnavailable(JobError):
    """The job ended without success, or has not ended yet."""

    state: str
    error: dict[str, Any] | None = None


class LeaseLost(JobError):
    """The worker no longer owns the job; nothing it writes can commit."""

    code = "LEASE_EXPIRED"


class AfterCompletion(JobError):
    """The handler went on after it had completed its job: nothing more can be written for it."""

    code = "AFTER_COMPLETION"


class CompletionNotCommitted(JobError):
    """The transaction that was to complete the job did not commit."""

    code = "COMPLETION_NOT_COMMITTED"


class HandlerMistake(MainspringError):
    """The handler does what cannot work, so it is not tried again: its code, or its connection, must change."""

    code = "HANDLER_MISTAKE"


class QueueFull(MainspringError):
    """The queue is full: best-effort jobs are refused until it is shorter; nothing was written."""

    code = "QUEUE_FULL"
    queue: str


class ScheduleNotFound(MainspringError):
    """There is no such schedule."""


class BatchNotFound(MainspringError):
    """There is no such batch."""


class NotPermitted(MainspringError):
    """The database refused: it belongs to another organisation, or is not this role's to do."""

    code = "OWNERSHIP_VIOLATION"


class SignatureRefused(MainspringError):
    """What came is not from whom it says, or too old; nothing was stored."""

    code = "SIGNATURE_REFUSED"


class Unreadable(MainspringError):
    """An encrypted value was changed, or belongs to another job or organisation."""

    code = "PAYLOAD_UNREADABLE"


class Erased(Unreadable):
    """The key that encrypted this no longer exists: the organisation was erased."""

    code = "PAYLOAD_ERASED"


class SchemaError(MainspringError):
    """The database schema does not fit this version of Mainspring."""


class SchemaMissing(SchemaError):
    """The schema is not installed in this database: run `mainspring schema migrate`, or name the one that has it."""


class SchemaOutdated(SchemaError):
    """The schema is older than this version needs: run `mainspring schema migrate`."""


class SchemaChanged(SchemaError):
    """A migration that is applied already has changed since."""


class SchemaTooNew(SchemaError):
    """The schema had a breaking change that this version does not know: upgrade Mainspring."""


class SchemaBusy(SchemaError):
    """A migration waited too long for a lock of a table, and has changed nothing: run it again."""


class DatabaseUnavailable(MainspringError):
    """The database cannot be reached or refuses to write; whether the last write happened is unknown."""

    code = "DB_UNAVAILABLE"
    sent: bool = True  # False: no connection could be had, so nothing was written
