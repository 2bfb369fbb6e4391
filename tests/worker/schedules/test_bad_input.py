"""What is refused, where it is said: at the declaration, by the client, in SQL. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from tests.databases import Database

import mainspring as ms
from mainspring import Client, Registry, ValidationError
from mainspring.errors import ConfigurationError, DeclarationError, UnknownOption, UnknownTask

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"catch_up": "lates"}, "catch_up: is not one of skip, latest, all (did you mean 'latest'?)"),
    ({"running": "yes"}, "running: is not one of allow, skip"),
    ({"within": timedelta(seconds=1)}, "within: is not a time span from 1 minute to 10 years"),
    ({"within": 5}, "within: is not a time span from 1 minute to 10 years"),
    ({"within": timedelta(hours=1), "catch_up": "skip"}, "within: has no meaning with catch_up skip"),
    ({"most": 5}, "most: needs catch_up all"),
    ({"most": 0, "catch_up": "all"}, "most: is not a whole number from 1 to 1000"),
    ({"jitter": timedelta(days=2)}, "jitter: is not a time span from 0 to 1 day"),
    ({"jitter": timedelta(seconds=-1)}, "jitter: is not a time span from 0 to 1 day"),
    ({"queue": ""}, "queue: is empty"),
    ({"queue": "q:deadletter"}, "queue: q:deadletter holds dead jobs"),
    ({"priority": 9}, "priority: is not a whole number from 0 to 3"),
    ({"org": "a\x1bb"}, "org: has a control character"),
    ({"payload": {"name": "Ada"}}, "name: is not a field"),
    ({"payload": {"nmae": "Ada"}}, "nmae: is not a field"),
    ({"payload": {"note": 7}}, "note: expected str, got int"),
    ({"payload": {"note": "a\0b"}}, "payload.note: has a NUL character"),
    ({"payload": {"note": object()}}, "payload: "),
    ({"payload": [1]}, "payload: is not a mapping"),
    ({"page": 10}, "page: needs entities"),
    ({"spread": timedelta(minutes=1)}, "spread: needs entities"),
    ({"entities": "select 1", "page": 5000}, "page: is not a whole number from 1 to 1000"),
    ({"entities": " "}, "entities: is neither SQL nor a function"),
    ({"zones": 7}, "zones: is neither SQL nor a function"),
    ({"entities": "select 1", "running": "skip"}, "running: is for schedules that make one job a fire"),
]


@pytest.fixture
def tasks() -> Registry:
    tasks = Registry("test")

    @tasks.task
    async def work(*, note: str = "") -> None: ...

    @tasks.task(schedulable=False)
    async def at_once() -> None: ...

    @tasks.task
    async def needs(*, booking: int, zone: str) -> None: ...

    return tasks


@pytest.fixture
def client(database: Database) -> Iterator[Client]:
    with Client(database.dsn) as client:
        yield client
        assert client.schedules.list() == []


@pytest.mark.parametrize(("options", "said"), WRONG)
def test_declaration_names_the_schedule_and_the_field(tasks: Registry, options: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        tasks.schedule("digest", ms.daily("10:00"), "work", **options)
    assert str(refused.value).startswith(f"schedule digest: {said}")
    assert tasks.schedules() == []


@pytest.mark.parametrize("number", range(0, len(WRONG), 3))
def test_client_names_the_field(tasks: Registry, client: Client, number: int) -> None:
    options, said = WRONG[number]
    with pytest.raises(ValidationError) as refused:
        client.schedules.create("digest", ms.daily("10:00"), tasks.get("work"), **options)
    assert str(refused.value).startswith(said)
    assert refused.value.field in said


@pytest.mark.parametrize("name", ["", " ", "x" * 201, "a\nb", "a\0b", "\ud800", 7, None])
def test_name_is_one(tasks: Registry, client: Client, name: Any) -> None:
    with pytest.raises(DeclarationError, match=r"name: "):
        tasks.schedule(name, ms.daily("10:00"), "work")
    with pytest.raises(ValidationError, match=r"name: "):
        client.schedules.create(name, ms.daily("10:00"), "work")


def test_what_cannot_be_a_schedule_is_refused_when_declared(tasks: Registry) -> None:
    with pytest.raises(UnknownTask, match=r"no task is called 'wrok' \(did you mean 'work'\?\)"):
        tasks.schedule("s", ms.daily("10:00"), "wrok")
    with pytest.raises(UnknownOption, match=r"unknown option 'catchup' \(did you mean 'catch_up'\?\)"):
        tasks.schedule("s", ms.daily("10:00"), "work", catchup="all")  # type: ignore[call-overload]
    with pytest.raises(DeclarationError, match="task: at_once cannot be scheduled"):
        tasks.schedule("s", ms.daily("10:00"), "at_once")
    with pytest.raises(DeclarationError, match="booking: is missing"):
        tasks.schedule("s", ms.daily("10:00"), "needs")
    with pytest.raises(DeclarationError, match="rule: is not made by"):
        tasks.schedule("s", "0 10 * * *", "work")  # type: ignore[call-overload]
    with pytest.raises(DeclarationError, match="task: is not a task"):
        tasks.schedule("s", ms.daily("10:00"), print)  # type: ignore[call-overload]
    with pytest.raises(DeclarationError, match="zones: need a rule of local times"):
        tasks.schedule("s", ms.every(hours=1), "work", zones="select 1")
    tasks.schedule("s", ms.daily("10:00"), "work")
    with pytest.raises(DeclarationError, match="schedule s: is declared twice: by test and by test"):
        tasks.schedule("s", ms.daily("11:00"), "work")
    other = Registry("other")
    other.include(tasks)
    with pytest.raises(DeclarationError, match="by test and by other"):
        other.schedule("s", ms.daily("11:00"), "work")
    other.schedule("s", ms.daily("11:00"), "work", org="acme")  # another organisation's is another one
    assert [schedule.place for schedule in other.schedules()] == [("default", "s"), ("acme", "s")]


def test_task_of_another_application_is_refused_at_the_start(tasks: Registry, client: Client) -> None:
    other = Registry("other")
    other.schedule("s", ms.daily("10:00"), tasks.get("work"))
    with pytest.raises(ConfigurationError, match="schedule s: task: work is not of this application"):
        client.schedules.sync(other)


def test_code_cannot_be_created_at_run_time(client: Client) -> None:
    with pytest.raises(ValidationError, match="zones: is code: declare the schedule in a registry"):
        client.schedules.create("s", ms.daily("10:00"), "work", zones="select 1")


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 201])
def test_verbs_refuse_a_name_that_none_can_have(client: Client, name: str) -> None:
    for verb in ("get", "pause", "resume", "delete", "run", "next", "fires"):
        with pytest.raises(ValidationError, match=r"name: "):
            getattr(client.schedules, verb)(name)


# -- SQL --------------------------------------------------------------------------------------------------------------

SQL: list[tuple[str, str]] = [
    ("name => '', cron => '0 10 * * *'", "name: is empty"),
    ("name => 's', cron => null", "cron: or every: give one of them"),
    ("name => 's', cron => '0 10 * * *', every => '1 h'", "cron: or every: give one of them"),
    *(
        (f"name => 's', cron => '{cron}'", said)
        for cron, said in [
            ("0 10 * *", "cron: has not five fields"),
            ("0 0 10 * * *", "cron: has not five fields"),
            ("@reboot", "cron: has not five fields"),
            ("60 * * * *", "cron: has a wrong minute"),
            ("*/0 * * * *", "cron: has a wrong minute"),
            ("5-1 * * * *", "cron: has a wrong minute"),
            ("1,,2 * * * *", "cron: has a wrong minute"),
            ("٣ * * * *", "cron: has a wrong minute"),
            ("0 24 * * *", "cron: has a wrong hour"),
            ("0 0 0 * *", "cron: has a wrong day of month"),
            ("0 0 L, * *", "cron: has a wrong day of month"),
            ("0 0 LW * *", "cron: has a wrong day of month"),
            ("0 0 * 13 *", "cron: has a wrong month"),
            ("0 0 * FOO *", "cron: has a wrong month"),
            ("0 0 * * 8", "cron: has a wrong day of week"),
            ("0 0 * * WED#6", "cron: has a wrong day of week"),
            ("0 0 30 2 *", "cron: never fires: no such month has such a day"),
            ("0 0 31 2,4,6 *", "cron: never fires: no such month has such a day"),
            ("1" * 300, "cron: is longer than 200 characters"),
        ]
    ),
    ("name => 's', every => '0.5 s'", "every: is not a time span from 1 second to 10 years"),
    ("name => 's', every => '-1 h'", "every: is not a time span"),
    *(
        (f"name => 's', every => '1 h', zone => '{zone}'", "zone: is not a time zone")
        for zone in ("Mars/Phobos", "utc", "../../etc/passwd", "", "+25:00", "posix/UTC; drop")
    ),
    ("name => 's', every => '1 h', catch_up => 'x'", "catch_up: is not one of skip, latest, all"),
    ("name => 's', every => '1 h', most => 3", "most: is not a whole number from 1 to 1000, or does not belong to all"),
    ("name => 's', every => '1 h', within => '1 s'", "within: is not a time span"),
    ("name => 's', every => '1 h', running => 'x'", "running: is not one of allow, skip"),
    ("name => 's', every => '1 h', jitter => '2 days'", "jitter: is not a time span from 0 to 1 day"),
    ("name => 's', every => '1 h', gap => 'x'", "gap: is not one of shift, skip"),
    ("name => 's', every => '1 h', overlap => 'x'", "overlap: is not one of first, last, both"),
    ("name => 's', every => '1 h', priority => 7", "priority: is not a whole number from 0 to 3"),
    ("name => 's', every => '1 h', payload => '[]'", "payload: is not a JSON object"),
    ("name => 's', every => '1 h', payload => '{\"password\": 1}'", "payload.password: looks like a secret"),
    ("name => 's', every => '1 h', actor_type => 'x'", "actor_type: must be user, system or api_key"),
]


@pytest.mark.parametrize(("call", "said"), SQL)
def test_sql_names_the_field_and_writes_nothing(database: Database, call: str, said: str) -> None:
    with database.connect() as conn:
        with pytest.raises(psycopg.Error) as refused:
            conn.execute(f"select mainspring.create_schedule(task => 'work', {call})".encode())
        assert refused.value.sqlstate == "MS001"
        assert str(refused.value.diag.message_primary).startswith(said)
        assert conn.execute("select count(*) from mainspring.schedule").fetchone() == (0,)


@pytest.mark.parametrize(
    "cron",
    ["0 10 * * WED", "*/5 0-6,22 1,15,L JAN-MAR 0-7", "0 0 29 2 *", "0 9 * * MON#1,5L", "5/15 * * * *",
     "  0\t0 31 * * ", "0 0 31 2 1"],
)  # fmt: skip
def test_sql_takes_what_the_rules_take(database: Database, cron: str) -> None:
    with database.connect() as conn, Client(database.dsn) as client:
        conn.execute("select mainspring.create_schedule('s', 'work', %s, zone => 'Europe/London')", [cron])
        assert client.schedules.get("s").words == ms.cron(cron, zone="Europe/London").describe()
        with pytest.raises(psycopg.Error, match="name: is taken by another schedule"):
            conn.execute("select mainspring.create_schedule('s', 'work', %s)", [cron])
        conn.execute("select mainspring.create_schedule('e', 'work', every => '90 min')")
        assert client.schedules.get("e").words == "every 1 hour 30 minutes"
