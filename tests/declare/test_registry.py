from __future__ import annotations

from typing import Any

import pytest

from mainspring.category import Category
from mainspring.declare.context import Context
from mainspring.declare.registry import Registry
from mainspring.declare.task import Task
from mainspring.errors import DeclarationError, DuplicateTask, UnknownOption, UnknownTask
from mainspring.when.rule import daily


async def issue_invoice(ctx: Context, *, booking_id: int) -> None:
    """Issue an invoice."""


async def send_invoice(*, booking_id: int) -> None: ...


@pytest.mark.rule("ENG-2.12")
@pytest.mark.parametrize("name", ["issue_invoice", "subscription.renewal_tick", "PARSE_FACTS"])
def test_a_name_keeps_its_exact_spelling(name: str) -> None:
    tasks = Registry("rental")
    task = tasks.task(name=name)(send_invoice)

    assert task.name == task.job(booking_id=7).task == name
    assert tasks.get(name) is task
    assert name.swapcase() not in tasks


def test_the_decorator_works_with_and_without_options() -> None:
    tasks = Registry("rental")

    plain = tasks.task(issue_invoice)
    with_options = tasks.task(queue="q:exports")(send_invoice)

    assert isinstance(plain, Task)
    assert (plain.name, plain.app, plain.queue) == ("issue_invoice", "rental", "q:default")
    assert with_options.queue == "q:exports"
    assert list(tasks) == [plain, with_options]
    assert tasks.names() == ["issue_invoice", "send_invoice"]
    assert len(tasks) == 2


@pytest.mark.rule("ENG-2.12")
def test_a_name_is_declared_once() -> None:
    tasks = Registry("rental")
    tasks.task(issue_invoice)

    with pytest.raises(DuplicateTask, match="issue_invoice"):
        tasks.task(name="issue_invoice")(send_invoice)
    with pytest.raises(DuplicateTask, match="issue_invoice"):
        tasks.task(aliases=("issue_invoice",))(send_invoice)
    assert tasks.names() == ["issue_invoice"]


@pytest.mark.rule("ENG-2.12")
def test_a_name_is_unique_over_all_registries_that_are_joined() -> None:
    rental, billing, everything = Registry("rental"), Registry("billing"), Registry("all")
    rental.task(issue_invoice)
    billing.task(issue_invoice)
    billing.task(send_invoice)
    everything.include(rental)

    with pytest.raises(DuplicateTask, match="issue_invoice is declared twice: by rental and by billing"):
        everything.include(billing)
    assert everything.names() == ["issue_invoice"]


@pytest.mark.rule("ENG-2.12")
def test_a_task_declared_after_the_joining_is_found_and_checked_too() -> None:
    rental, billing, apps, everything = Registry("rental"), Registry("billing"), Registry("apps"), Registry("all")
    apps.include(rental, billing)
    everything.include(apps)

    task = rental.task(issue_invoice)

    assert everything.get("issue_invoice") is apps.get("issue_invoice") is task
    with pytest.raises(DuplicateTask):
        billing.task(issue_invoice)
    assert "issue_invoice" not in billing


def test_a_category_has_one_meaning_over_all_registries_that_are_joined() -> None:
    rental, billing, planning, everything = map(Registry, ("rental", "billing", "planning", "all"))
    rental.task(category=Category("paperwork", key_ttl="1d"))(issue_invoice)
    billing.task(name="same", category=Category("paperwork", key_ttl="24h"))(send_invoice)
    planning.task(name="other", category=Category("paperwork", key_ttl="2d"))(send_invoice)
    everything.include(rental, billing)

    clash = "category paperwork has two meanings: of issue_invoice in rental, and of other in planning"
    with pytest.raises(DeclarationError, match=clash):
        everything.include(planning)
    with pytest.raises(DeclarationError, match="of same in billing, and of late in billing"):
        billing.task(name="late", category=Category("paperwork"))(send_invoice)
    assert everything.names() == ["issue_invoice", "same"]


def test_joining_twice_or_in_a_circle_is_harmless() -> None:
    one, two = Registry("one"), Registry("two")
    one.include(two)
    one.include(two)
    two.include(one)

    task = one.task(issue_invoice)

    assert list(one) == list(two) == [task]


def test_a_former_name_finds_the_task() -> None:
    tasks = Registry("rental")
    task = tasks.task(aliases=("make_invoice",))(issue_invoice)

    assert tasks.get("make_invoice") is task
    assert "make_invoice" in tasks
    assert tasks.names() == ["issue_invoice", "make_invoice"]
    assert list(tasks) == [task]
    assert task.job(booking_id=7).task == "issue_invoice"


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    tasks = Registry("rental")
    tasks.task(issue_invoice)

    with pytest.raises(UnknownTask, match=r"'issue_invoices' .did you mean 'issue_invoice'"):
        tasks.get("issue_invoices")
    assert UnknownTask.code == "UNKNOWN_JOB_TYPE"


def test_a_name_is_never_imported() -> None:
    with pytest.raises(UnknownTask):
        Registry("rental").get("os.system")


def test_a_declaration_that_fails_leaves_nothing_behind() -> None:
    tasks = Registry("rental")

    with pytest.raises(UnknownOption):
        tasks.task(queues="q:default")(send_invoice)  # type: ignore[call-overload]
    assert len(tasks) == 0
    assert repr(tasks) == "<Registry rental: 0 tasks>"


def test_a_schedule_may_stand_above_its_task() -> None:
    registry = Registry("shop")

    @registry.schedule("digest", daily("08:00", zone="Europe/Oslo"), catch_up="skip")
    @registry.schedule("early-digest", daily("06:00"))
    @registry.task
    async def send_digest() -> None: ...

    assert isinstance(send_digest, Task)
    assert {schedule.name: (schedule.task, schedule.catch_up) for schedule in registry.schedules()} == {
        "digest": ("send_digest", "skip"),
        "early-digest": ("send_digest", "latest"),
    }


def test_a_schedule_above_a_function_asks_for_the_task() -> None:
    registry = Registry("shop")
    above: Any = registry.schedule("digest", daily("08:00"))

    with pytest.raises(DeclarationError, match=r"^schedule digest: put @tasks\.task between it and the function$"):
        above(lambda: None)
