"""Asking: rows and jobs in the caller's transaction, one message for one event, and refusals that write nothing."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
import sqlalchemy
import sqlalchemy.orm
from tests.contrib.notify.conftest import MIDNIGHT, TEMPLATES, Recording, rows

import mainspring as ms
from mainspring.contrib.notify import Notify, Recipient, Template
from mainspring.errors import ValidationError
from mainspring.testing import Harness

NINE = MIDNIGHT + timedelta(days=1, hours=9)


def count(mainspring: Harness, table: str = "notification") -> int:
    found = mainspring.conn.execute(f"select count(*) from mainspring.{table}".encode()).fetchone()
    assert found is not None
    return int(found[0])


@pytest.mark.rule("STAFF-14.01", "ENG-10.03", "STAFF-14.02")
def test_a_request_is_a_row_and_a_job_on_its_own_queue_and_no_provider_is_called(
    mainspring: Harness, notify: Notify, mail: Recording
) -> None:
    with psycopg.connect(mainspring.dsn) as conn:
        asked = notify.send("ana", "both", {"name": "Ana"}, by=mainspring.client, conn=conn, at=NINE)
        assert rows(mainspring) == []  # nobody sees it before the commit

    assert [one.answer for one in asked] == ["created", "created"]
    assert mail.calls == []
    assert rows(mainspring, "template, recipient_id, channel, critical, status, attempts") == [
        ("both", "ana", "email", False, "pending", 0),
        ("both", "ana", "sms", False, "pending", 0),
    ]
    found = mainspring.client.jobs(task="notify.deliver")
    assert {job.queue for job in found} == {"q:notifications"}
    assert {job.max_attempts for job in found} == {10}
    assert [set(job.payload) for job in found] == [{"notification_id"}] * 2  # nothing personal


def test_rolled_back_with_the_callers_transaction(mainspring: Harness, notify: Notify) -> None:
    with psycopg.connect(mainspring.dsn) as conn:
        notify.send("ana", "greeting", {"name": "Ana"}, by=mainspring.client, conn=conn)
        conn.rollback()

    assert count(mainspring) == count(mainspring, "job") == 0


@pytest.mark.rule("PLAN-3.02", "PLAN-3.03", "PLAN-3.04")
def test_the_same_five_are_one_message_and_any_other_is_another(mainspring: Harness, notify: Notify) -> None:
    notify.save_recipient("eve", email="eve@example.com", by=mainspring.client)
    notify.save_recipient("ana", email="ana@example.com", by=mainspring.client, org="acme")
    data: dict[str, Any] = {"name": "Ana", "more": {"a": 1, "b": 2}}

    def ask(to: str = "ana", template: str = "greeting", **more: Any) -> tuple[UUID, str]:
        (one,) = notify.send(to, template, {**data, **more.pop("data", {})}, by=mainspring.client, **more)
        return one.id, one.answer

    first, answer = ask()
    assert answer == "created"
    assert ask(data={"more": {"b": 2, "a": 1}}) == (first, "existing")  # another order of names
    others = [
        ask("eve"), ask(template="both", channels=["email"]), ask(data={"name": "Eva"}), ask(org="acme"),
        ask(event_at=MIDNIGHT - timedelta(hours=1)), ask(template="both", channels=["sms"]),
    ]  # fmt: skip
    assert {how for _, how in others} == {"created"}
    assert len({first, *(id for id, _ in others)}) == 7
    assert count(mainspring) == count(mainspring, "job") == 7


@pytest.mark.rule("PLAN-3.05")
def test_times_within_a_quarter_of_an_hour_are_one_and_the_clock_is_cut_in_utc(
    mainspring: Harness, notify: Notify
) -> None:
    def ask(event_at: datetime | None = None) -> str:
        return notify.send("ana", "greeting", {"name": "Ana"}, by=mainspring.client, event_at=event_at)[0].answer

    mainspring.clock.set(MIDNIGHT + timedelta(minutes=14, seconds=59))
    assert ask() == "created"
    assert ask(MIDNIGHT) == "existing"
    mainspring.clock.advance(seconds=1)
    assert ask() == "created"
    assert ask(MIDNIGHT + timedelta(minutes=29)) == "existing"
    assert rows(mainspring, "bucket") == [MIDNIGHT, MIDNIGHT + timedelta(minutes=15)]


@pytest.mark.rule("PLAN-3.05", "STAFF-14.09")
def test_a_retry_of_the_asking_job_an_hour_later_makes_no_double(
    mainspring: Harness, notify: Notify, tasks: ms.Registry, mail: Recording
) -> None:
    attempts: list[int] = []

    @tasks.task(retry=ms.fixed(3600, attempts=3))
    async def tell(ctx: ms.Context) -> None:
        attempts.append(ctx.attempt)
        async with ctx.transaction() as conn:  # committed before the job fails: the worst case
            await notify.send("ana", "greeting", {"name": "Ana"}, by=ctx, conn=conn)
        if ctx.attempt < 3:
            raise ConnectionError("later")

    mainspring.client.enqueue(tell.job())
    mainspring.advance(hours=3, raise_errors=False)

    assert attempts == [1, 2, 3]
    assert len(mail.taken) == 1
    assert rows(mainspring, "bucket") == [MIDNIGHT]


def test_a_handler_asks_with_its_success_and_a_failed_one_has_not_asked(
    mainspring: Harness, notify: Notify, tasks: ms.Registry, mail: Recording
) -> None:
    @tasks.task
    async def fine(ctx: ms.Context) -> None:
        await notify.send("ana", "greeting", {"name": "one"}, by=ctx)

    @tasks.task
    def plain(ctx: ms.SyncContext) -> None:
        with ctx.complete() as conn:
            conn.execute("select 1")
            notify.send("ana", "greeting", {"name": "two"}, by=ctx, conn=conn)
            notify.send("ana", "greeting", {"name": "three"}, by=ctx)

    @tasks.task
    async def fails(ctx: ms.Context) -> None:
        await notify.send("ana", "greeting", {"name": "four"}, by=ctx)
        raise ms.Permanent("no")

    parents = [mainspring.client.enqueue(task.job()).id for task in (fine, plain, fails)]
    mainspring.drain(raise_errors=False)

    assert sorted(mail.texts) == ["Hello one!", "Hello three!", "Hello two!"]
    delivered = mainspring.client.jobs(task="notify.deliver")
    assert {job.parent_id for job in delivered} == set(parents[:2])  # follow-ups of who asked


@pytest.mark.anyio
async def test_in_async_code_it_is_awaited(mainspring: Harness, notify: Notify) -> None:
    async with ms.AsyncClient(mainspring.dsn) as client, await psycopg.AsyncConnection.connect(mainspring.dsn) as conn:
        (first,) = await notify.send("ana", "greeting", {"name": "Ana"}, by=client, conn=conn)
        await conn.commit()
        (second,) = await notify.send("ana", "greeting", {"name": "Ana"}, by=client)
        assert await notify.send("nobody", "greeting", by=client, best_effort=True) == []

    assert (first.answer, second.answer, second.id) == ("created", "existing", first.id)


def test_a_session_of_sqlalchemy_is_joined(mainspring: Harness, notify: Notify) -> None:
    engine = sqlalchemy.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(mainspring.dsn))
    with sqlalchemy.orm.Session(engine) as session, session.begin():
        notify.send("ana", "greeting", {"name": "Ana"}, by=mainspring.client, conn=session)
        assert rows(mainspring) == []
    engine.dispose()

    assert rows(mainspring) == ["pending"]


@pytest.mark.rule("PLAN-3.02")
def test_asked_for_by_64_at_once_it_is_one_row_and_one_job(mainspring: Harness, notify: Notify) -> None:
    with ms.Client(mainspring.dsn, pool_size=16) as client, ThreadPoolExecutor(16) as threads:
        asked = list(threads.map(lambda _: notify.send("ana", "both", {"name": "Ana"}, by=client, at=NINE), range(64)))

    answers = [one.answer for both in asked for one in both]
    assert answers.count("created") == 2
    assert len({one.id for both in asked for one in both}) == 2
    assert count(mainspring) == count(mainspring, "job") == 2


@pytest.mark.rule("PLAN-3.08")
def test_one_message_for_one_assignment(mainspring: Harness, tasks: ms.Registry, mail: Recording) -> None:
    template = Template("notification.assignment", "New assignment", "You were assigned to {{ event }}.")
    notify = Notify(senders=[mail], templates=[template])
    with Harness(mainspring.dsn, ms.App(blocks=[notify], maintenance=False)) as harness:
        for _ in range(2):
            notify.send("ana", template.name, {"event": "the fair", "assignment": 7}, by=harness.client)
        harness.drain()

    assert [(one.to, one.text) for one in mail.taken] == [("ana@example.com", "You were assigned to the fair.")]


@pytest.mark.rule("PLAN-3.09", "ENG-10.03")
def test_a_delayed_one_is_sent_at_its_time_and_not_before(mainspring: Harness, notify: Notify, mail: Recording) -> None:
    (asked,) = notify.send("ana", "greeting", {"name": "Ana"}, by=mainspring.client, at=NINE)
    job = mainspring.client.get(asked.job_id)
    assert (job.state, job.queue, job.due_at) == ("scheduled", "q:notifications", NINE)

    mainspring.advance(to=NINE - timedelta(seconds=1))
    assert mail.taken == []
    mainspring.advance(seconds=1)
    assert len(mail.taken) == 1
    assert rows(mainspring, "sent_at") == [NINE]


@pytest.mark.rule("PLAN-3.10")
def test_a_time_long_past_is_refused_and_nothing_is_written(mainspring: Harness, notify: Notify) -> None:
    def ask(seconds: float) -> str:
        at = MIDNIGHT - timedelta(seconds=seconds)
        return notify.send("ana", "greeting", {"name": "Ana"}, by=mainspring.client, at=at)[0].answer

    with pytest.raises(ValidationError, match=r"^at: lies more than 60 s in the past$"):
        ask(300)
    with pytest.raises(ValidationError):
        ask(60.001)
    assert count(mainspring) == 0
    assert ask(60) == "created"


@pytest.mark.rule("PLAN-3.06", "PLAN-3.07")
def test_the_core_row_commits_though_the_queue_is_full(
    mainspring: Harness, notify: Notify, caplog: pytest.LogCaptureFixture
) -> None:
    mainspring.conn.execute("create table assignment (id int)")
    notify.send("ana", "greeting", {"name": "first"}, by=mainspring.client)
    mainspring.client.limits.depth("q:notifications", 1, reason="a drill")

    with psycopg.connect(mainspring.dsn) as conn:
        conn.execute("insert into assignment values (7)")
        asked = notify.send("ana", "greeting", {"name": "Ana"}, by=mainspring.client, conn=conn, best_effort=True)
        conn.execute("insert into assignment values (8)")

    assert asked == []
    assert "notification:refused greeting: queue: q:notifications is full" in caplog.text
    assert mainspring.conn.execute("select array_agg(id) from assignment").fetchone() == ([7, 8],)
    assert count(mainspring) == 1


@pytest.mark.rule("PLAN-3.06", "PLAN-3.07")
@pytest.mark.parametrize("breaks", ["insert", "template", "data", "recipient"])
def test_best_effort_never_breaks_the_callers_transaction(
    mainspring: Harness, notify: Notify, caplog: pytest.LogCaptureFixture, breaks: str
) -> None:
    mainspring.conn.execute("create table assignment (id int)")
    if breaks == "insert":
        mainspring.conn.execute("alter table mainspring.notification add check (template <> 'greeting')")
    asked: dict[str, Any] = {"to": "ana", "template": "greeting", "data": {"name": "Ana"}}
    wrong: dict[str, dict[str, Any]] = {"template": {"template": "gone"}, "data": {"data": {}}, "recipient": {"to": ""}}
    asked |= wrong.get(breaks, {})

    with psycopg.connect(mainspring.dsn) as conn:
        conn.execute("insert into assignment values (7)")
        assert notify.send(**asked, by=mainspring.client, conn=conn, best_effort=True) == []

    assert "notification:refused" in caplog.text
    assert mainspring.conn.execute("select id from assignment").fetchall() == [(7,)]
    assert count(mainspring) == count(mainspring, "job") == 0


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"to": "nobody"}, "to"),
        ({"to": ""}, "to"),
        ({"to": None}, "to"),
        ({"to": []}, "to"),
        ({"to": ["ana", "nobody"]}, "to"),
        ({"to": "ana\n"}, "to"),
        ({"template": "greetin"}, "template"),
        ({"data": {}}, "data.name"),
        ({"data": {"name": object()}}, "data"),
        ({"channels": ["fax"]}, "channels"),
        ({"channels": "email"}, "channels"),
        ({"at": MIDNIGHT.replace(tzinfo=None)}, "at"),
        ({"event_at": "now"}, "event_at"),
        ({"zone": "Mars/Olympus"}, "zone"),
        ({"fallback": ""}, "fallback"),
        ({"attempts": 7}, "attempts"),
    ],
)
def test_wrong_input_is_named_and_nothing_is_written(
    mainspring: Harness, notify: Notify, wrong: dict[str, Any], field: str
) -> None:
    asked: dict[str, Any] = {"to": "ana", "template": "greeting", "data": {"name": "Ana"}, **wrong}

    with pytest.raises(ValidationError) as refused:
        notify.send(**asked, by=mainspring.client)

    assert refused.value.field == field
    assert str(refused.value).startswith(f"{field}: ")
    assert count(mainspring) == count(mainspring, "job") == 0


def test_a_channel_without_a_sender_is_refused(mainspring: Harness, mail: Recording) -> None:
    notify = Notify(senders=[mail], templates=TEMPLATES)

    with pytest.raises(ValidationError, match=r"^channels: there is no sender for sms$"):
        notify.send("ana", "both", {"name": "Ana"}, by=mainspring.client)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"zone": "europe/lisbon"}, "zone"),
        ({"email": ""}, "email"),
        ({"email": "a\r\nb"}, "email"),
        ({"phone": 7}, "phone"),
        ({"quiet_from": "25:00"}, "quiet_from"),
        ({"language": "german (Austria)"}, "language"),
        ({"language": 7}, "language"),
        ({"opt_out": "sms"}, "opt_out"),
        ({"spam_limit": 0}, "spam_limit"),
        ({"fax": "1"}, "fax"),
    ],
)
def test_a_wrong_recipient_is_refused_and_keeps_what_is_known(
    mainspring: Harness, notify: Notify, wrong: dict[str, Any], field: str
) -> None:
    before = mainspring.conn.execute("select * from mainspring.recipient").fetchall()

    with pytest.raises(ValidationError) as refused:
        notify.save_recipient("ana", by=mainspring.client, **wrong)

    assert refused.value.field == field
    assert mainspring.conn.execute("select * from mainspring.recipient").fetchall() == before


def test_saving_a_recipient_changes_what_is_named_and_nothing_else(mainspring: Harness, notify: Notify) -> None:
    notify.save_recipient("ana", by=mainspring.client, opt_out=["push"], quiet_to="08:30", email=None)

    query = "select to_jsonb(r) - 'updated_at' from mainspring.recipient r"
    assert mainspring.conn.execute(query).fetchone() == (
        {
            "org_id": "default", "recipient_id": "ana", "email": None, "phone": "+351900000007",
            "zone": "Europe/Lisbon", "push_token": "device-7", "quiet_from": "22:00:00", "quiet_to": "08:30:00",
            "opt_out": ["push"], "spam_limit": None, "language": "",
        },
    )  # fmt: skip


def test_reprs_and_payloads_tell_nothing_personal(mainspring: Harness, notify: Notify) -> None:
    notify.send("ana", "greeting", {"name": "Ana of Lisbon"}, by=mainspring.client)

    everything = json.dumps([job.payload for job in mainspring.client.jobs()])
    assert "Lisbon" not in everything
    assert "ana@" not in repr(Recipient(recipient_id="ana", email="ana@example.com"))


@pytest.mark.parametrize(
    "wrong", [{"to": 7}, {"org": ""}, {"org": 7}, {"data": {"name": datetime.min.replace(tzinfo=UTC)}}]
)
def test_best_effort_bears_what_is_no_input_at_all(
    mainspring: Harness, notify: Notify, wrong: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    asked: dict[str, Any] = {"to": "ana", "template": "greeting", "data": {"name": "Ana"}, "zone": "America/New_York"}

    with pytest.raises(ValidationError):
        notify.send(**asked | wrong, by=mainspring.client)
    assert notify.send(**asked | wrong, by=mainspring.client, best_effort=True) == []
    assert "notification:refused" in caplog.text


@pytest.mark.rule("STAFF-14.12")
@pytest.mark.parametrize("best_effort", [False, True])
def test_who_receives_in_place_of_somebody_unknown_does_so_in_best_effort_too(
    mainspring: Harness, notify: Notify, mail: Recording, best_effort: bool
) -> None:
    how: Any = {"fallback": "ana", "by": mainspring.client, "best_effort": best_effort}
    notify.send(["gone", "left"], "greeting", {"name": "Ana"}, **how)
    mainspring.drain()

    assert rows(mainspring, "recipient_id, status") == [("ana", "sent")]
    assert len(mail.taken) == 1
