"""A task: a declared function, its stable name, and how its jobs run."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable
from datetime import timedelta
from functools import update_wrapper
from string import Formatter
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Literal,
    ParamSpec,
    TypedDict,
    Unpack,
    cast,
    get_type_hints,
    overload,
)

import msgspec
from msgspec.structs import replace
from typing_extensions import TypeVar

from mainspring.category import CATEGORIES, Category
from mainspring.checks import LOWEST_PRIORITY
from mainspring.circuit import MAX_BREAKER, Need
from mainspring.declare.enqueuer import enqueuer
from mainspring.declare.payload import codec_for
from mainspring.dedupe import Dedupe
from mainspring.errors import DeclarationError, UnknownOption, ValidationError
from mainspring.job import DEFAULT_PRIORITY, Claim, Enqueuing, NewJob
from mainspring.queue import DEAD_LETTER
from mainspring.retry import Retry
from mainspring.text.document import read_payload
from mainspring.text.sanitize import names_secret
from mainspring.text.span import NO_SPAN, Span, read_span, span_of
from mainspring.text.texts import MAX_NAME, MAX_QUEUE, did_you_mean, text_problem

if TYPE_CHECKING:
    from mainspring.declare.registry import Registry

P = ParamSpec("P")
R = TypeVar("R", default=Any)  # what its jobs result in
C = TypeVar("C", default=R)  # what calling it returns: a coroutine of that, where it is an async function

RunsIn = Literal["async", "thread", "process"]

TASK_TIMEOUT: Final = timedelta(minutes=5)
SNOOZE_LIMIT: Final = timedelta(days=7)


class TaskOptions(TypedDict, total=False):
    """What a declaration may say; what it leaves out comes from the category, or has the default shown."""

    name: str  # the function's
    category: str | Category  # "default"
    queue: str  # the category's
    priority: int  # 2, from 0 (first) to 3 (last)
    retry: Retry | int  # the category's; 3: so many attempts, with the category's delays
    dedupe: Dedupe | None  # None: two equal enqueues are two jobs
    strand: str | None  # None; "booking:{booking_id}": what limits by key and order hold together
    key_ttl: Span | None  # the category's; None: a finished job's key is remembered for ever
    needs: tuple[str, ...]  # (); ("stripe", "webhook:{endpoint_id}"): its jobs start while these breakers let them
    timeout: Span  # 5 minutes
    snooze_limit: Span | None  # 7 days; None: a job may be put off for ever
    cancellable: bool  # True
    schedulable: bool  # True
    project_scoped: bool  # False; True: every job names its project
    halve: str | None  # None; "rows": the list of items that is halved when an attempt fails, until one item is left
    cpu: bool  # False; True: a plain function that runs in a process of its own
    reason: str | None  # why this work is a job, or on a critical queue
    allow_secrets: tuple[str, ...]  # payload fields that look like secrets and are none
    subject: str | None  # None; the payload field that logs show, such as the id of a booking
    camel_logs: bool  # False; True: its log lines carry camelCase names as well
    encrypt: bool  # True: where there is a cipher, what its jobs carry is encrypted
    best_effort: bool  # False; True: its jobs may be refused while their queue is full
    aliases: tuple[str, ...]  # former names, so that jobs enqueued under them still run


TASK_OPTIONS: Final = TaskOptions.__annotations__.keys()
#: The options as they are kept: time spans are timedeltas.
_SPANS: Final = {"key_ttl": timedelta | None, "timeout": timedelta, "snooze_limit": timedelta | None}
_READ: Any = TypedDict("_READ", {**get_type_hints(TaskOptions), **_SPANS}, total=False)  # type: ignore[misc]  # made at run time
#: What an option takes whose type says too little to whoever gave another.
#: What other libraries call an option: the word that we have for it.
_ELSEWHERE: Final = {"max_retries": "retry", "retries": "retry", "max_attempts": "retry", "time_limit": "timeout"}
_WANTED: Final = {
    "retry": "takes a number of attempts, or a policy such as ms.exponential(attempts=3)",
    "dedupe": "takes one of ms.dedupe, such as ms.dedupe.by_payload()",
}


class Task(Generic[P, R, C]):
    """A function that runs in the background.

    It stays a function: calling the task calls it. `enqueue` asks for it in the background, `job` builds what a client
    enqueues.
    """

    sweeps = False  # True: what it enqueues should have been enqueued before
    home: Registry | None = None  # where it was declared

    def __init__(self, fn: Callable[..., C], *, app: str, **options: Unpack[TaskOptions]) -> None:
        update_wrapper(self, fn)
        self.fn = fn
        self.app = app
        self.name = options.get("name", str(getattr(fn, "__name__", "?")))
        self.doc = (inspect.getdoc(fn) or "").partition("\n")[0]
        options = self._checked(options)
        self.category = self._category(options.get("category", "default"))
        self.queue = options.get("queue", self.category.queue)
        self.priority = options.get("priority", DEFAULT_PRIORITY)
        self.retry = self._retry(options.get("retry"))
        self.dedupe = options.get("dedupe")
        self.strand = options.get("strand")
        self.key_ttl = read_span(options.get("key_ttl", self.category.key_ttl))
        self.needs = tuple(map(Need.read, options.get("needs", ())))
        self.timeout = read_span(options.get("timeout")) or TASK_TIMEOUT
        self.limit = self.timeout.total_seconds()
        self.snooze_limit = read_span(options.get("snooze_limit", SNOOZE_LIMIT))
        self.cancellable = options.get("cancellable", True)
        self.schedulable = options.get("schedulable", True)
        self.project_scoped = options.get("project_scoped", False)
        self.halve = options.get("halve")
        self.reason = options.get("reason")
        self.allow_secrets = options.get("allow_secrets", ())
        self.subject = options.get("subject")
        self.camel_logs = options.get("camel_logs", False)
        self.encrypt = options.get("encrypt", True)
        self.best_effort = options.get("best_effort", False)
        self.aliases = options.get("aliases", ())
        self.codec, self.wants_ctx = codec_for(fn, self.name)
        self.runs = self._runs(cpu=options.get("cpu", False))
        self._check_fields()

        dedupe = self.dedupe or Dedupe()
        self._key = dedupe.template and "{}:{}".format(re.sub(r"([{}])", r"\1\1", self.name), dedupe.template)
        # Measured: copying a job with another payload takes half the time of making one from its fields.
        self._blank = NewJob(
            task=self.name,
            payload=msgspec.Raw(b"{}"),
            queue=self.queue,
            priority=self.priority,
            max_attempts=self.retry.attempts,
            cancellable=self.cancellable,
            mode=dedupe.mode if self.dedupe else None,
            ttl=self.key_ttl if dedupe.ttl is None else dedupe.ttl,
            wait=dedupe.wait,
            project_scoped=self.project_scoped,
            schedulable=self.schedulable,
            by_payload=dedupe.by_payload,
            allow_secrets=self.allow_secrets,
            encrypt=self.encrypt,
            subject=self.subject,
            best_effort=self.best_effort,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> C:
        """Run the function here and now."""
        if self.wants_ctx and not args and next(iter(inspect.signature(self.fn).parameters)) not in kwargs:
            name = self.fn.__name__
            raise TypeError(f"{name}(ctx, ...) takes the context first; {name}.enqueue(...) runs it in the background")
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    def __reduce__(self) -> str:
        # A process of its own finds the task by its place in its module.
        return self.fn.__qualname__

    @overload
    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Enqueuing[R]: ...
    @overload
    def enqueue(self, *args: Any, conn: Any, **kwargs: Any) -> Enqueuing[R]: ...
    def enqueue(self, *args: Any, conn: Any = None, **kwargs: Any) -> Any:
        """Ask for a run of the task, by the client of the application that it belongs to; in async code, await it.

        ::

            send_welcome.enqueue(user_id=7)
            send_welcome.enqueue(user_id=7, conn=conn)  # part of conn's transaction
            await send_welcome.enqueue(user_id=7)  # where an event loop runs, or conn is async

        It is `client.enqueue(send_welcome.job(user_id=7))`. In a handler, `ctx.enqueue(send_welcome.job(user_id=7))`.
        With `conn=` a type checker does not see the payload: `enqueue_in` says the same, checked.
        """
        job: Callable[..., NewJob] = self.job  # whose arguments the overloads check
        return enqueuer(self, conn)(job(*args, **kwargs), conn)

    def enqueue_in(self, conn: Any, /, *args: P.args, **kwargs: P.kwargs) -> Enqueuing[R]:
        """Ask for a run of the task as a part of the transaction of a connection or a session.

        ::

            with Session(engine) as session, session.begin():
                session.add(User(id=7))
                send_welcome.enqueue_in(session, user_id=7)
        """
        if conn is None:
            raise ValidationError("conn: is missing", field="conn")
        answer: Enqueuing[R] = enqueuer(self, conn)(self.job(*args, **kwargs), conn)
        return answer

    def job(self, *args: P.args, **kwargs: P.kwargs) -> NewJob[R]:
        """One request to run the task, to be enqueued; the handler's context is not among its arguments.

        The key of a declared `dedupe` starts with the task's name, so that tasks do not share keys: with
        `dedupe=reset_failed("{booking_id}")`, `issue_invoice.job(booking_id=7)` has the key `issue_invoice:7`.
        """
        raw = self.codec.encode(args, kwargs)
        if self._key is None and self.strand is None:
            return replace(self._blank, payload=msgspec.Raw(raw))
        # Key and strand are made from the payload as it is stored, so they do not depend on how a type prints itself.
        fields = msgspec.json.decode(raw)
        key = self._key and self._key.format_map(fields)
        strand = self.strand and self.strand.format_map(fields)
        return replace(self._blank, payload=msgspec.Raw(raw), key=key, strand=strand)

    def template(self) -> NewJob:
        """A job without a payload, whose key and strand are still to be made from one: what a schedule keeps."""
        return replace(self._blank, key=self._key, strand=self.strand)

    def half(self, payload: bytes, of: Claim) -> NewJob:
        """A job for half of the items of a chunk; all else is the chunk's, but for its key."""
        return replace(
            self._blank,
            payload=msgspec.Raw(payload),
            queue=of.queue,
            priority=of.priority,
            max_attempts=of.max_attempts,
            strand=of.strand,
            mode=None,
            wait=None,
            by_payload=False,
            best_effort=False,
        )

    def typed(self, text: str) -> NewJob[R]:
        """The job for a payload that a person typed: a worker forgives fields that it does not know, a person is told.

        `task.typed('{"booking_id": 7}')` is `task.job(booking_id=7)`.
        """
        text = bytes(read_payload(text, self.allow_secrets)).decode()
        for name in self.codec.held(text) - set(self.codec.fields):
            raise ValidationError(f"{name}: is not a field{did_you_mean(name, self.codec.fields)}", field=name)
        job: Callable[..., NewJob[R]] = self.job  # whose arguments are known only when it runs
        return job(**self.codec.decode(text))

    def describe(self) -> dict[str, Any]:
        """Every option with its value, declared or default."""
        return {
            "name": self.name,
            "app": self.app,
            "doc": self.doc,
            "category": self.category.name,
            "queue": self.queue,
            "priority": self.priority,
            "retry": self.retry.describe(),
            "dedupe": self.dedupe and dataclasses.asdict(self.dedupe),
            "strand": self.strand,
            "key_ttl": self.key_ttl,
            "needs": [str(need) for need in self.needs],
            "timeout": self.timeout,
            "snooze_limit": self.snooze_limit,
            "cancellable": self.cancellable,
            "schedulable": self.schedulable,
            "project_scoped": self.project_scoped,
            "halve": self.halve,
            "runs": self.runs,
            "context": self.wants_ctx,
            "reason": self.reason,
            "allow_secrets": self.allow_secrets,
            "subject": self.subject,
            "camel_logs": self.camel_logs,
            "encrypt": self.encrypt,
            "best_effort": self.best_effort,
            "aliases": self.aliases,
            "payload": self.codec.schema(),
        }

    def _checked(self, options: TaskOptions) -> TaskOptions:
        yields = inspect.isgeneratorfunction(self.fn) or inspect.isasyncgenfunction(self.fn)
        if yields or not (inspect.isfunction(self.fn) or inspect.ismethod(self.fn)):  # a block's are its methods
            raise self._wrong("a handler is a function or an async function")
        for option in options.keys() - TASK_OPTIONS:
            near = did_you_mean(_ELSEWHERE.get(option, option), TASK_OPTIONS)
            raise UnknownOption(f"task {self.name}: unknown option {option!r}{near}")
        try:
            given = {name: self._read(name, value) for name, value in options.items()}
            options = cast(TaskOptions, msgspec.convert(given, _READ))
        except msgspec.ValidationError as error:
            said, _, option = str(error).rstrip("`").rpartition(" - at `$.")
            raise self._wrong(f"{option}: {_WANTED.get(option, said)}") from None
        for what, value, limit in (
            ("name", self.name, MAX_NAME),
            ("queue", options.get("queue", "q:default"), MAX_QUEUE),
            *(("alias", alias, MAX_NAME) for alias in options.get("aliases", ())),
        ):
            if problem := text_problem(value, limit):
                raise self._wrong(f"{what} {problem}")
        if options.get("queue") == DEAD_LETTER:
            raise self._wrong(f"queue {DEAD_LETTER} holds dead jobs; no task runs there")
        if not 0 <= options.get("priority", DEFAULT_PRIORITY) <= LOWEST_PRIORITY:
            raise self._wrong(f"priority is not between 0 and {LOWEST_PRIORITY}")
        if span_of("timeout", options.get("timeout", TASK_TIMEOUT)) <= timedelta(0):
            raise self._wrong("timeout is not positive")
        return options

    def _read(self, name: str, value: object) -> object:
        """An option's value, a time span as a timedelta."""
        if name not in _SPANS or value is None:
            return value
        found = read_span(value)
        if found is None:
            raise self._wrong(f"{name} is {NO_SPAN}")
        return found

    def _category(self, given: str | Category) -> Category:
        if isinstance(given, Category):
            if CATEGORIES.get(given.name, given) != given:
                raise self._wrong(f"category {given.name}: this name is the engine's own")
            return given
        if given not in CATEGORIES:
            meant = did_you_mean(given, CATEGORIES)
            raise self._wrong(f"unknown category {given!r}{meant}; one of your own is a value, ms.Category({given!r})")
        return CATEGORIES[given]

    def _retry(self, given: Retry | int | None) -> Retry:
        if isinstance(given, Retry):
            return given
        try:
            return self.category.retry if given is None else dataclasses.replace(self.category.retry, attempts=given)
        except DeclarationError as error:
            raise self._wrong(f"retry: {error}") from None

    def _runs(self, *, cpu: bool) -> RunsIn:
        if (
            not inspect.isroutine(self.fn)
            or inspect.isgeneratorfunction(self.fn)
            or inspect.isasyncgenfunction(self.fn)
        ):
            raise self._wrong("a handler is a function or an async function")
        if not cpu:
            return "async" if inspect.iscoroutinefunction(self.fn) else "thread"
        if inspect.iscoroutinefunction(self.fn):
            raise self._wrong("cpu=True needs a plain function, not an async one")
        if self.fn.__qualname__ != self.fn.__name__:
            raise self._wrong("cpu=True needs a function at the top of its module, so that another process finds it")
        if self.wants_ctx:
            raise self._wrong("cpu=True runs in another process, which the context cannot enter")
        return "process"

    def _check_fields(self) -> None:
        fields = self.codec.fields
        for field in fields:
            if names_secret(field) and field not in self.allow_secrets:
                raise self._wrong(
                    f"field {field} looks like a secret: pass a reference to it, or say allow_secrets=({field!r},)"
                )
        if self.subject is not None and (self.subject not in fields or names_secret(self.subject)):
            raise self._wrong(f"subject {self.subject!r} is not a field{did_you_mean(self.subject, fields)}")
        if self.halve is not None and self.halve not in fields:
            raise self._wrong(f"halve {self.halve!r} is not a field{did_you_mean(self.halve, fields)}")
        self._check_template("dedupe", self.dedupe.template if self.dedupe else None)
        self._check_template("strand", self.strand)
        for need in self.needs:
            if problem := text_problem(need.name, MAX_BREAKER):
                raise self._wrong(f"needs: the name of a breaker {problem}")
            if "{" in need.name or "}" in need.name or need.template == "":
                raise self._wrong(f"needs {str(need)!r}: say it as 'stripe' or 'webhook:{{endpoint_id}}'")
            self._check_template("needs", need.template)

    def _check_template(self, what: str, template: str | None) -> None:
        """Refuse a template that names what the payload does not have."""
        try:
            parts = [part[1] for part in Formatter().parse(template or "") if part[1] is not None]
        except ValueError as error:
            raise self._wrong(f"{what} {template!r}: {error}") from None
        for part in parts:
            field = part.partition("[")[0]
            if field not in self.codec.fields:
                raise self._wrong(f"{what} {template!r}: no field {field!r}{did_you_mean(field, self.codec.fields)}")

    def _wrong(self, problem: str) -> DeclarationError:
        return DeclarationError(f"task {self.name}: {problem}")
