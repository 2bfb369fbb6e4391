"""A schedule: a named rule of time, the task that it enqueues, and what happens when an instant is missed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NoReturn, TypeAlias, TypedDict, Unpack, cast, get_args
from uuid import UUID

import msgspec
from msgspec.structs import replace

from mainspring.checks import LONGEST_DELAY, check_number
from mainspring.declare.caller import NOBODY, calling
from mainspring.declare.envelope import complete
from mainspring.declare.task import Task
from mainspring.errors import UnknownOption, ValidationError
from mainspring.job import DEFAULT_ORG, SYSTEM, NewJob
from mainspring.text.document import read_payload
from mainspring.text.span import Span, read_span
from mainspring.text.texts import MAX_NAME, MAX_QUEUE, did_you_mean, text_problem
from mainspring.when.fire import FIRE_ON_TIME, MOST_CAUGHT_UP, CatchUp, WhileRunning
from mainspring.when.rule import Rule
from mainspring.when.zones import EPOCH

#: SQL, or a function (plain or async) that is given a connection, and answers the names of the zones in use.
Zones: TypeAlias = str | Callable[[Any], Any]
#: SQL with %(zone)s, %(after)s, %(limit)s and %(instant)s, or a function of (connection, zone, after, limit), and of
#: `instant=` where it takes that, which answers rows of (key, payload) or (key, payload, organisation), ordered by key,
#: later than the key `after` (None: from the first).
Entities: TypeAlias = str | Callable[..., Any]

#: The fields of a payload that a fire fills in, where the task has them and the schedule does not give them.
FILLED: Final = ("zone", "instant")
#: Where the rule of a schedule over zones holds, in words.
EACH_ZONE: Final = "each zone"
LARGEST_PAGE: Final = 1000

_SAMPLE: Final = {"zone": "UTC", "instant": EPOCH}
_EMPTY: Final = msgspec.Raw(b"{}")
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


class ScheduleOptions(TypedDict, total=False):
    """What may be said about a schedule; what is left out has the default shown."""

    payload: Mapping[str, Any]  # {}
    org: str  # "default"; the organisation of its jobs
    catch_up: CatchUp  # "latest": after nobody looked for a while, the last instant fires; "skip": none; "all"
    within: Span | None  # None; an instant that is later than this is missed, whatever catch_up says
    most: int | None  # 1000; of catch_up="all", the last so many
    running: WhileRunning  # "allow"; "skip": no fire while the job of the last one is not finished
    jitter: Span  # 0; its jobs are due up to so much later
    queue: str | None  # the task's
    priority: int | None  # the task's
    zones: Zones | None  # None; the rule fires in each of these zones, at its own local time
    entities: Entities | None  # None; a fire makes a job for each of these
    page: int  # 100; so many of them in one transaction
    spread: Span  # 0; their jobs are due evenly over this window


SCHEDULE_OPTIONS: Final = ScheduleOptions.__annotations__.keys()
_SPANS: Final[dict[str, tuple[timedelta, timedelta, str]]] = {
    "within": (FIRE_ON_TIME, LONGEST_DELAY, "from 1 minute to 10 years"),
    "jitter": (timedelta(0), timedelta(days=1), "from 0 to 1 day"),
    "spread": (timedelta(0), timedelta(days=7), "from 0 to 7 days"),
}


class Schedule:
    """A rule and the task whose jobs it makes; what is wrong with it is said at once.

    >>> from mainspring.declare.registry import Registry
    >>> from mainspring.when.rule import weekly
    >>> tasks = Registry("shop")
    >>> @tasks.task
    ... async def send_digest(*, week_of: str = "") -> None: ...
    >>> tasks.schedule("digest", weekly("mon", "08:00", zone="Europe/Oslo"), send_digest)
    <Schedule digest: every Monday at 08:00 (Europe/Oslo), send_digest>
    """

    def __init__(
        self,
        name: str,
        rule: Rule,
        task: Task[..., Any] | str,
        *,
        app: str | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> None:
        self.name, self.rule, self.app = name, rule, app
        self.task = task.name if isinstance(task, Task) else task
        self._check(task, options)
        self.org = options.get("org", DEFAULT_ORG)
        self.payload = dict(options.get("payload") or {})
        self.catch_up: CatchUp = options.get("catch_up", "latest")
        self.within = read_span(options.get("within"))
        self.most = options.get("most")
        self.running: WhileRunning = options.get("running", "allow")
        self.jitter = read_span(options.get("jitter")) or timedelta(0)
        self.zones = options.get("zones")
        self.entities = options.get("entities")
        self.page = options.get("page", 100)
        self.spread = read_span(options.get("spread")) or timedelta(0)
        fields = task.codec.fields if isinstance(task, Task) else ()
        self.fill = tuple(field for field in FILLED if field in fields and field not in self.payload)
        self.job = self._template(task, options.get("queue"), options.get("priority"))

    @property
    def place(self) -> tuple[str, str]:
        """Its organisation and name: no two schedules have the same."""
        return self.org, self.name

    def definition(self) -> dict[str, Any]:
        """What the database keeps of it."""
        return {
            "rule": self.rule.to_json(),
            "description": self._words(),
            "zone": self.rule.zone,
            "task": self.task,
            "job": self.job,
            "fill": self.fill,
            "catch_up": self.catch_up,
            "within": self.within,
            "most": self.most,
            "running": self.running,
            "jitter": self.jitter,
            "by_zone": self.zones is not None,
            "by_entity": self.entities is not None,
            "page": self.page,
            "spread": self.spread,
        }

    def __repr__(self) -> str:
        return f"<Schedule {self.name}: {self._words()}, {self.task}>"

    def _words(self) -> str:
        return self.rule.describe(None if self.zones is None else EACH_ZONE)

    def _check(self, task: object, options: ScheduleOptions) -> None:
        if problem := text_problem(self.name, MAX_NAME):
            _refuse("name", problem)
        for option in options.keys() - SCHEDULE_OPTIONS:
            raise UnknownOption(
                f"schedule {self.name}: unknown option {option!r}{did_you_mean(option, SCHEDULE_OPTIONS)}"
            )
        if not isinstance(self.rule, Rule):
            _refuse("rule", "is not made by cron, every, daily, weekly or monthly")
        if isinstance(task, Task) and not task.schedulable:
            _refuse("task", f"{task.name} cannot be scheduled")
        if not isinstance(task, Task | str):
            _refuse("task", "is not a task: declare the function with @tasks.task")
        values = cast(dict[str, Any], options)
        for field, limit in (("org", MAX_NAME), ("queue", MAX_QUEUE)):
            if values.get(field) is not None and (problem := text_problem(values[field], limit)):
                _refuse(field, problem)
        for field, known in (("catch_up", get_args(CatchUp)), ("running", get_args(WhileRunning))):
            if (value := values.get(field, known[0])) not in known:
                _refuse(field, f"is not one of {', '.join(known)}{did_you_mean(value, known)}")
        for field, (least, longest, words) in _SPANS.items():
            span = read_span(values.get(field))
            if values.get(field) is not None and (span is None or not least <= span <= longest):
                _refuse(field, f"is not a time span {words}")
        for field, most in (("page", LARGEST_PAGE), ("most", MOST_CAUGHT_UP)):
            if values.get(field) is not None:
                check_number(field, values[field], 1, most)
        for field in ("zones", "entities"):
            source = values.get(field)
            if source is not None and not callable(source) and (not isinstance(source, str) or not source.strip()):
                _refuse(field, "is neither SQL nor a function")
        if not isinstance(values.get("payload") or {}, Mapping):
            _refuse("payload", "is not a mapping")
        self._check_together(options)

    def _check_together(self, options: ScheduleOptions) -> None:
        """Refuse what would be without meaning."""
        catch_up = options.get("catch_up", "latest")
        if options.get("most") is not None and catch_up != "all":
            _refuse("most", "needs catch_up all")
        if options.get("within") is not None and catch_up == "skip":
            _refuse("within", "has no meaning with catch_up skip")
        if options.get("entities") is None:
            for field in ("page", "spread"):
                if field in options:
                    _refuse(field, "needs entities")
        elif options.get("running", "allow") != "allow":
            _refuse("running", "is for schedules that make one job a fire, not one for each entity")
        if options.get("zones") is not None and self.rule.kind == "every":
            _refuse("zones", "need a rule of local times: elapsed time is the same everywhere")

    def _template(self, task: Task[..., Any] | str, queue: str | None, priority: int | None) -> NewJob:
        """The job that a fire completes; one like those that it will make is checked now."""
        given = NewJob(task=task, payload=_EMPTY) if isinstance(task, str) else task.template()
        given = replace(given, org_id=self.org, actor_type="system", actor_id=SYSTEM)
        given = given if queue is None else replace(given, queue=queue)
        given = given if priority is None else replace(given, priority=priority)
        payload, filled = self.payload, dict[str, Any]()
        if isinstance(task, Task):
            for field in payload.keys() - set(task.codec.fields):
                _refuse(field, f"is not a field{did_you_mean(field, task.codec.fields)}")
            if self.entities is None:  # what they bring is not known yet
                filled = {field: value for field, value in _SAMPLE.items() if field in self.fill}
                typed = task.typed(_written(payload | filled))
                payload = {field: value for field, value in _decode(typed.payload).items() if field not in filled}
        given = replace(given, payload=read_payload(_written(payload), given.allow_secrets))
        if self.entities is None:
            make(given, UUID(int=0), self.name, EPOCH, filled)
        return given


def make(
    template: NewJob, fire: UUID, schedule: str, at: datetime | None, fields: Mapping[str, Any], org: str | None = None
) -> NewJob:
    """The job of a fire, completed and checked: the schedule's payload with these fields, its key made from them."""
    payload = {**_decode(template.payload), **fields}
    raw = msgspec.json.encode(payload)
    if template.key is not None or template.strand is not None:
        payload = _decode(raw)  # as it is stored: the key does not depend on how a type prints itself
    job = replace(
        template,
        payload=msgspec.Raw(raw),
        key=template.key and template.key.format_map(payload),
        strand=template.strand and template.strand.format_map(payload),
        scheduled_for=at,
        request_id=f"schedule:{schedule}"[:MAX_NAME],
        correlation_id=str(fire),
        org_id=template.org_id if org is None else org,
    )
    with calling(NOBODY):  # nobody's request, also where a test's own context surrounds it
        return complete([job], NOBODY)[0]


def _written(payload: Mapping[str, Any]) -> str:
    try:
        return msgspec.json.encode(payload).decode()
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        _refuse("payload", str(error)[:200])


def _refuse(field: str, problem: str) -> NoReturn:
    raise ValidationError(f"{field}: {problem}", field=field)
