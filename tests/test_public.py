"""What users may import: a name that goes, or comes without a word, is noticed here."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pkgutil import iter_modules
from types import ModuleType

import pytest

import mainspring
import mainspring.testing
import mainspring.web
import mainspring.when
import mainspring.worker

NAMES = """
App AsyncClient Caller Category Cipher Client Context Enqueued Failure Job Line MainspringError NewJob Permanent Queue
Registry Retention RetryAfter Snooze Span SyncContext Task ValidationError WorkerConfig
batch breaker calling chain chunks concurrency cron daily dedupe every exponential fair fixed following group
in_order listed measure monthly rate watch watch_dead weekly
"""
PUBLIC = NAMES.split()


def test_public_names_are_exactly_these() -> None:
    assert sorted(mainspring.__all__) == sorted(PUBLIC)


@pytest.mark.parametrize("room", [mainspring.web, mainspring.when], ids=lambda room: room.__name__)
def test_what_a_room_imports_at_its_door_is_what_it_exports(room: ModuleType) -> None:
    modules = {module.name for module in iter_modules(room.__path__)}
    own = {name for name, value in vars(room).items() if getattr(value, "__module__", "").startswith("mainspring")}

    assert own - modules - {"ConfigurationError"} == {*room.__all__}


def test_rules_of_time_come_from_their_room_and_are_those_of_the_root() -> None:
    shared = {"cron", "daily", "every", "monthly", "weekly"}

    assert all(getattr(mainspring.when, name) is getattr(mainspring, name) for name in shared)
    assert {*mainspring.when.__all__} - shared == {"Rule", "Tick", "check_zone", "rule_from_text"}


def test_no_public_name_hides_a_module() -> None:
    modules = {module.name for module in iter_modules(mainspring.__path__)}

    assert modules & set(PUBLIC) == {"dedupe"}
    assert inspect.ismodule(mainspring.dedupe)


ROOMS = [mainspring.worker, mainspring.testing, mainspring.web, mainspring.when]


@pytest.mark.parametrize("module", [mainspring, *ROOMS], ids=lambda m: m.__name__)
def test_every_public_name_is_there_and_says_what_it_is(module: ModuleType) -> None:
    silent = [name for name in module.__all__ if not inspect.getdoc(getattr(module, name))]

    assert silent == []


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_method_says_what_it_does(name: str) -> None:
    kind = getattr(mainspring, name)
    members = vars(kind).items() if inspect.isclass(kind) else ()
    silent = [
        member
        for member, value in members
        if not member.startswith("_")
        and (inspect.isfunction(value) or isinstance(value, property))
        and not inspect.getdoc(getattr(kind, member))
    ]

    assert silent == []


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Clint"):
        _ = mainspring.Clint  # type: ignore[attr-defined]  # there is none, which is the point


def test_star_import_brings_all_public_names() -> None:
    script = "from mainspring import *; print(sorted(n for n in dir() if not n.startswith('_')))"

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == str(sorted(PUBLIC))
