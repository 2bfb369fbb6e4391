from __future__ import annotations

import asyncio
import inspect
import pickle
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from typing import Any, cast
from uuid import UUID

import msgspec
import pytest
from tests.documents import ALL_CATEGORIES, RENTAL

from mainspring import dedupe
from mainspring.category import CATEGORIES, Category
from mainspring.checks import check_job
from mainspring.declare.context import Context, SyncContext
from mainspring.declare.registry import Registry
from mainspring.declare.task import TASK_OPTIONS, Task
from mainspring.dedupe import Dedupe
from mainspring.errors import DeclarationError, UnknownOption, ValidationError
from mainspring.job import NewJob
from mainspring.retry import fixed

HOUR = timedelta(hours=1)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
tasks = Registry("rental")


@tasks.task
async def plain(*, booking_id: int, note: str = "") -> int:
    """Do something plain.

    Its second paragraph is for readers of the source.
    """
    return booking_id + len(note)


@tasks.task(
    name="issue.invoice",
    category=RENTAL,
    queue="q:notifications",
    priority=1,
    retry=fixed(30, attempts=4),
    dedupe=dedupe.reset_failed("{booking_id}"),
    key_ttl=HOUR,
    needs=("stripe", "webhook:{booking_id}"),
    timeout=HOUR,
    snooze_limit=None,
    cancellable=False,
    schedulable=False,
    project_scoped=True,
    reason="waits for another system",
    allow_secrets=("csrf_token",),
    subject="booking_id",
    camel_logs=True,
    encrypt=False,
    strand="booking:{booking_id}",
    halve="rows",
    best_effort=True,
    aliases=("old_issue_invoice",),
)
async def full(ctx: Context, *, booking_id: int, csrf_token: str = "", rows: list[int] | None = None) -> None:
    """Say everything."""


@tasks.task(cpu=True)
def square(*, number: int) -> int:
    return number * number


def declared(fn: Callable[..., Any], **options: Any) -> Task[..., Any]:
    return Task(fn, app="test", **options)


async def pay(*, invoice_id: int, at: datetime | None = None, lines: list[str] | None = None) -> None: ...


# --- the function


def test_a_task_is_still_its_function() -> None:
    assert asyncio.run(cast(Any, plain(booking_id=7, note="abc"))) == 10
    assert square(number=4) == 16
    assert inspect.signature(plain) == inspect.signature(plain.fn)
    assert plain.doc == "Do something plain."
    assert repr(plain) == "<Task plain>"


def test_a_task_that_is_called_without_its_context_says_what_would_run_it() -> None:
    registry = Registry("shop")

    @registry.task
    def send(ctx: SyncContext, *, order_id: int) -> int:
        return order_id

    with pytest.raises(TypeError, match=r"^send\(ctx, ...\) takes the context first; send.enqueue\(...\) runs it in"):
        send(order_id=7)
    assert send(None, order_id=7) == send(ctx=None, order_id=7) == 7


def test_the_kind_of_function_decides_where_it_runs() -> None:
    def thread(ctx: SyncContext, *, number: int) -> None: ...

    assert (plain.runs, plain.wants_ctx) == ("async", False)
    assert (full.runs, full.wants_ctx) == ("async", True)
    assert (declared(thread).runs, declared(thread).wants_ctx) == ("thread", True)
    assert (square.runs, square.wants_ctx) == ("process", False)


def test_a_task_for_processes_is_found_by_name_in_another_process() -> None:
    assert pickle.loads(pickle.dumps(square)) is square
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert pool.submit(square, number=5).result(60) == 25


def test_a_function_that_another_process_cannot_find_is_refused() -> None:
    def local(*, number: int) -> None: ...
    async def coroutine(*, number: int) -> None: ...
    def context(ctx: SyncContext, *, number: int) -> None: ...

    context.__qualname__ = "context"
    refused: list[tuple[Any, str]] = [
        (local, "top of its module"),
        (coroutine, "plain function"),
        (context, "context"),
    ]
    for fn, problem in refused:
        with pytest.raises(DeclarationError, match=f"^task {fn.__name__}: .*{problem}"):
            declared(fn, cpu=True)


def test_what_is_not_a_function_is_refused() -> None:
    def generator() -> Iterator[int]:
        yield 1

    async def async_generator() -> AsyncIterator[int]:
        yield 1

    for fn in (generator, async_generator, len, NewJob, 7):
        with pytest.raises(DeclarationError, match="a handler is a function"):
            declared(cast(Any, fn))


# --- its options


@pytest.mark.rule("ENG-2.13")
def test_every_option_has_a_default_that_can_be_shown() -> None:
    shown = plain.describe()

    assert shown | {"payload": None} == {
        "name": "plain",
        "app": "rental",
        "doc": "Do something plain.",
        "category": "default",
        "queue": "q:default",
        "priority": 2,
        "retry": "5 attempts, 5 s growing by 2 up to 300 s, jitter equal",
        "dedupe": None,
        "strand": None,
        "key_ttl": timedelta(days=30),
        "needs": [],
        "timeout": timedelta(minutes=5),
        "snooze_limit": timedelta(days=7),
        "cancellable": True,
        "schedulable": True,
        "project_scoped": False,
        "halve": None,
        "runs": "async",
        "context": False,
        "reason": None,
        "allow_secrets": (),
        "subject": None,
        "camel_logs": False,
        "encrypt": True,
        "best_effort": False,
        "aliases": (),
        "payload": None,
    }
    assert shown["payload"]["$defs"]["plain"]["required"] == ["booking_id"]
    assert TASK_OPTIONS - {"cpu"} <= shown.keys()
    msgspec.json.encode(shown)


@pytest.mark.rule("ENG-2.13")
def test_every_option_can_be_said_in_the_one_declaration() -> None:
    assert full.describe() | {"payload": None} == {
        "name": "issue.invoice",
        "app": "rental",
        "doc": "Say everything.",
        "category": "rental",
        "queue": "q:notifications",
        "priority": 1,
        "retry": "4 attempts, 30 s apart",
        "dedupe": {"mode": "reset_failed", "template": "{booking_id}", "by_payload": False, "ttl": None, "wait": None},
        "strand": "booking:{booking_id}",
        "key_ttl": HOUR,
        "needs": ["stripe", "webhook:{booking_id}"],
        "timeout": HOUR,
        "snooze_limit": None,
        "cancellable": False,
        "schedulable": False,
        "project_scoped": True,
        "halve": "rows",
        "runs": "async",
        "context": True,
        "reason": "waits for another system",
        "allow_secrets": ("csrf_token",),
        "subject": "booking_id",
        "camel_logs": True,
        "encrypt": False,
        "best_effort": True,
        "aliases": ("old_issue_invoice",),
        "payload": None,
    }


@pytest.mark.rule("ENG-7.02", "ENG-7.04", "ENG-10.02", "ENG-10.03", "ENG-10.04")
@pytest.mark.parametrize("name", ALL_CATEGORIES)
def test_a_task_takes_queue_policy_and_life_time_of_keys_from_its_category(name: str) -> None:
    expected = ALL_CATEGORIES[name]
    task = declared(pay, category=name if name in CATEGORIES else expected)

    assert (task.queue, task.retry, task.key_ttl) == (expected.queue, expected.retry, expected.key_ttl)
    assert (task.job(invoice_id=1).queue, task.job(invoice_id=1).max_attempts) == (
        expected.queue,
        expected.retry.attempts,
    )
    assert task.job(invoice_id=1).ttl == expected.key_ttl


@pytest.mark.rule("ENG-7.13")
def test_the_policy_belongs_to_the_task_and_not_to_its_queue() -> None:
    mail = declared(pay, category=RENTAL, queue="q:notifications")

    assert (mail.queue, mail.retry) == ("q:notifications", fixed(60, attempts=3))
    assert mail.job(invoice_id=1).max_attempts == 3


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"name": ""}, "name is empty"),
        ({"name": "a\nb"}, "name has a control character"),
        ({"name": "x" * 201}, "name is longer"),
        ({"queue": ""}, "queue is empty"),
        ({"queue": "q" * 64}, "queue is longer"),
        ({"queue": "q:deadletter"}, "holds dead jobs"),
        ({"category": "notification"}, "unknown category 'notification' (did you mean 'notifications'?)"),
        ({"category": "rental"}, "one of your own is a value, ms.Category('rental')"),
        ({"category": Category("maintenance")}, "category maintenance: this name is the engine's own"),
        ({"priority": 4}, "priority"),
        ({"priority": "high"}, "priority"),
        ({"timeout": timedelta(0)}, "timeout"),
        ({"timeout": "5 minuts"}, "timeout is not a time span, such as 90s"),
        ({"retry": "5"}, "retry"),
        ({"dedupe": "keep"}, "dedupe: takes one of ms.dedupe"),
        ({"retry": "3"}, "retry: takes a number of attempts, or a policy"),
        ({"queue": 3}, "queue: Expected `str`, got `int`"),
        ({"cancellable": "yes"}, "cancellable"),
        ({"subject": "bokking_id"}, "subject"),
        ({"aliases": "old"}, "aliases"),
        ({"aliases": ("",)}, "alias is empty"),
    ],
)
def test_a_wrong_option_is_refused_with_the_tasks_name(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(DeclarationError, match=r"(?s)^task .*: ") as caught:
        declared(pay, **options)

    assert problem in str(caught.value)


def test_an_unknown_option_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(UnknownOption, match=r"^task pay: unknown option 'retires' .did you mean 'retry'"):
        declared(pay, retires=3)


def test_an_option_under_another_librarys_name_is_refused_with_ours() -> None:
    with pytest.raises(UnknownOption, match=r"^task pay: unknown option 'max_retries' .did you mean 'retry'"):
        declared(pay, max_retries=3)


@pytest.mark.rule("ENG-19.06")
def test_a_field_that_looks_like_a_secret_is_refused_unless_allowed() -> None:
    async def log_in(*, password: str) -> None: ...

    with pytest.raises(DeclarationError, match="field password looks like a secret"):
        declared(log_in)
    check_job(declared(log_in, allow_secrets=("password",)).job(password="x"))


# --- its jobs


def test_a_job_carries_what_its_task_says() -> None:
    job = full.job(booking_id=7).in_project(UUID(int=1))

    assert (job.task, job.queue, job.priority, job.max_attempts) == ("issue.invoice", "q:notifications", 1, 4)
    assert (job.cancellable, job.schedulable, job.project_scoped) == (False, False, True)
    assert (job.key, job.mode, job.ttl) == ("issue.invoice:7", "reset_failed", HOUR)
    assert bytes(job.payload) == b'{"booking_id":7,"csrf_token":"","rows":null}'
    check_job(job)


@pytest.mark.rule("ENG-2.02")
def test_a_task_of_projects_asks_its_jobs_for_one() -> None:
    with pytest.raises(ValidationError, match=r"^project_id: "):
        check_job(full.job(booking_id=7))


@pytest.mark.rule("ENG-13.06")
def test_a_task_says_whether_its_jobs_may_be_scheduled() -> None:
    scan = declared(pay, schedulable=False).job(invoice_id=1)
    timer = declared(pay).job(invoice_id=1)

    check_job(timer.at(NOON))
    with pytest.raises(ValidationError, match=r"^scheduled_for: "):
        check_job(scan.at(NOON))


def test_a_job_that_does_not_fit_is_refused_by_name() -> None:
    with pytest.raises(ValidationError, match=r"^booking_id: expected int, got str"):
        plain.job(booking_id="7")  # type: ignore[arg-type]


def test_without_dedupe_a_job_has_no_key() -> None:
    job = plain.job(booking_id=7)

    assert (job.key, job.mode, job.by_payload) == (None, None, False)


@pytest.mark.parametrize(
    ("template", "key"),
    [
        ("{invoice_id}", "pay:7"),
        ("{invoice_id:05d}", "pay:00007"),
        ("{at}", "pay:2026-01-01T12:00:00Z"),
        ("{lines[0]}-{invoice_id}", "pay:x-7"),
        ("only-one", "pay:only-one"),
        ("{{literal}}", "pay:{literal}"),
    ],
)
def test_a_key_is_made_from_the_payload_and_starts_with_the_tasks_name(template: str, key: str) -> None:
    task = declared(pay, dedupe=dedupe.live(template))

    assert task.job(invoice_id=7, at=NOON, lines=["x"]).key == key


def test_a_name_with_braces_makes_a_key_too() -> None:
    assert declared(pay, name="a{b}", dedupe=dedupe.live("{invoice_id}")).job(invoice_id=7).key == "a{b}:7"


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("{invoice}", "did you mean 'invoice_id'"),
        ("{}", "no field ''"),
        ("{0}", "no field '0'"),
        ("{invoice_id.real}", "no field 'invoice_id.real'"),
        ("{invoice_id", "expected '}'"),
    ],
)
def test_a_key_of_unknown_fields_is_refused(template: str, problem: str) -> None:
    with pytest.raises(DeclarationError, match=r"^task pay: dedupe") as caught:
        declared(pay, dedupe=dedupe.live(template))

    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (dedupe.window("{invoice_id}"), ("window", timedelta(days=30), None)),
        (dedupe.window("{invoice_id}", ttl=HOUR), ("window", HOUR, None)),
        (dedupe.window("{invoice_id}", ttl=timedelta(0)), ("window", timedelta(0), None)),
        (dedupe.debounce("{invoice_id}", wait=HOUR), ("debounce", timedelta(days=30), HOUR)),
    ],
)
def test_a_job_carries_mode_life_time_and_wait(mode: Dedupe, expected: tuple[Any, ...]) -> None:
    job = declared(pay, dedupe=mode).job(invoice_id=7)

    assert (job.mode, job.ttl, job.wait) == expected
    check_job(job)


def test_by_payload_leaves_the_key_to_the_client_who_knows_the_organisation() -> None:
    job = declared(pay, dedupe=dedupe.by_payload()).job(invoice_id=7)

    assert (job.key, job.mode, job.by_payload) == (None, "window", True)
    check_job(job)


def test_a_dedupe_without_a_template_asks_each_job_for_its_key() -> None:
    job = declared(pay, dedupe=dedupe.keep()).job(invoice_id=7)

    with pytest.raises(ValidationError, match=r"^key: "):
        check_job(job)
    check_job(job.with_key("pay:7"))


def test_making_and_checking_a_job_is_fast() -> None:
    def once() -> float:
        started = time.process_time()
        for number in range(2000):
            check_job(plain.job(booking_id=number, note="x" * 60))
        return (time.process_time() - started) / 2000

    # About 3 µs here; the bound only catches a slow path taken by every job.
    assert min(once() for _ in range(5)) < 30e-6
