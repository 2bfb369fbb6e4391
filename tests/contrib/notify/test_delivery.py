"""Delivering: retries, refusals, opt-outs, quiet hours, the spam limit, and what the log and the lines say."""

from __future__ import annotations

import logging
from datetime import timedelta
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from tests.contrib.notify.conftest import MIDNIGHT, TEMPLATES, Recording, rows

import mainspring as ms
from mainspring.contrib.notify import Notification, Notify, Recipient, Spam, Template, Undeliverable, Words
from mainspring.errors import ConfigurationError, ValidationError
from mainspring.outcome import Failure, RetryAfter
from mainspring.testing import Harness

NOON = MIDNIGHT + timedelta(hours=12)


def down() -> Failure:
    return Failure("no answer", code="HttpException", counts=False)


def state(mainspring: Harness, where: str = "true") -> list[Any]:
    return rows(mainspring, "status, reason, error, attempts", where)


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.name == "mainspring.notify"]


@pytest.fixture(autouse=True)
def lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mainspring.notify")


@pytest.mark.rule("ENG-21.07")
def test_a_first_run_sends_one_mail_to_that_address_and_sets_the_stamp(
    mainspring: Harness, notify: Notify, mail: Recording, caplog: pytest.LogCaptureFixture
) -> None:
    (asked,) = notify.send("ana", "greeting", {"name": "Ana"}, by=mainspring.client)
    mainspring.drain()

    (sent,) = mail.taken
    assert (sent.to, sent.title, sent.text, sent.key) == ("ana@example.com", "Hello", "Hello Ana!", str(asked.id))
    log = rows(mainspring, "status, title, text, attempts, sent_at, provider, provider_id, reserved_at")
    assert log == [("sent", "Hello", "Hello Ana!", 1, MIDNIGHT, "smtp", "smtp-1", None)]
    assert events(caplog) == ["email:sent"]
    (record,) = caplog.records
    assert record.__dict__["notification_id"] == str(asked.id)
    assert record.__dict__["org_id"] == "default"
    assert "example.com" not in str(record.__dict__)


@pytest.mark.rule("RENT-5.04", "ENG-21.07")
def test_one_that_is_stamped_is_skipped_and_its_job_succeeds(
    mainspring: Harness, notify: Notify, mail: Recording, caplog: pytest.LogCaptureFixture
) -> None:
    (asked,) = notify.send("ana", "greeting", {"name": "Ana"}, by=mainspring.client)
    mainspring.conn.execute("update mainspring.notification set status = 'sent', sent_at = mainspring.now()")
    mainspring.drain()

    assert mail.calls == []
    assert mainspring.client.get(asked.job_id).state == "succeeded"
    assert events(caplog) == ["email:skipped"]
    assert caplog.records[-1].__dict__["reason"] == "already_sent"


@pytest.mark.rule("STAFF-14.03")
def test_a_channel_that_is_down_does_not_hold_the_others(
    mainspring: Harness, notify: Notify, mail: Recording, sms: Recording
) -> None:
    sms.fails = [down() for _ in range(20)]
    mainspring.clock.set(NOON)
    notify.send("ana", "both", {"name": "Ana"}, by=mainspring.client)
    mainspring.drain(raise_errors=False)

    assert rows(mainspring, "channel, status, error") == [("email", "sent", None), ("sms", "pending", "HttpException")]
    assert len(mail.taken) == 1


@pytest.mark.rule("STAFF-14.04", "STAFF-16.01")
def test_retries_grow_with_jitter_and_end_in_the_dead_letter(
    mainspring: Harness, mail: Recording, caplog: pytest.LogCaptureFixture
) -> None:
    retry = ms.exponential(base=30, factor=2, cap=3600, jitter="spread", attempts=6)  # staffing's: 5 retries
    notify = Notify(senders=[mail], templates=TEMPLATES, retry=retry)
    mail.fails = [down() for _ in range(6)]
    with Harness(mainspring.dsn, ms.App(blocks=[notify], maintenance=False)) as harness:
        (asked,) = notify.send("ana", "greeting", {"name": "Ana"}, by=harness.client)
        runs = [run for run in harness.advance(hours=3, raise_errors=False) if run.task == "notify.deliver"]

        gaps = [(later.at - earlier.at).total_seconds() for earlier, later in pairwise(runs)]
        assert len(gaps) == 5
        for gap, raw in zip(gaps, (30, 60, 120, 240, 480), strict=True):
            assert 0.8 * raw <= gap <= 1.2 * raw
        assert state(harness) == [("failed", None, "HttpException", 6)]
        assert [letter.id for letter in harness.client.dead.list()] == [asked.job_id]
        assert events(caplog) == ["email:error"] * 6

        harness.client.replay(asked.job_id, reason="it answers again")  # the row follows the job
        assert state(harness)[0][0] == "pending"
        harness.drain()
        assert state(harness) == [("sent", None, None, 7)]
        assert events(caplog)[-1] == "email:sent"


def test_after_two_errors_one_mail_and_three_attempts(mainspring: Harness, notify: Notify, mail: Recording) -> None:
    mail.fails = [down(), down()]
    notify.send("ana", "greeting", {"name": "Ana"}, by=mainspring.client)
    mainspring.advance(hours=1, raise_errors=False)

    assert len(mail.taken) == 1
    assert state(mainspring) == [("sent", None, None, 3)]


@pytest.mark.rule("RENT-5.06", "PLAN-3.13", "ENG-21.07")
def test_a_bad_address_fails_after_one_attempt(
    mainspring: Harness, notify: Notify, mail: Recording, caplog: pytest.LogCaptureFixture
) -> None:
    mail.fails = [Undeliverable("to: is no address", code="EMAIL_ADDRESS_INVALID")]
    (asked,) = notify.send("ana", "greeting", {"name": "Ana"}, by=mainspring.client)
    mainspring.advance(hours=5, raise_errors=False)

    assert mainspring.client.get(asked.job_id).state == "failed"
    assert state(mainspring) == [("failed", None, "EMAIL_ADDRESS_INVALID", 1)]
    assert events(caplog) == ["email:error"]


@pytest.mark.rule("PLAN-3.13")
def test_a_providers_hint_is_followed(mainspring: Harness, notify: Notify, mail: Recording) -> None:
    mail.fails = [RetryAfter(90)]
    (asked,) = notify.send("ana", "greeting", {"name": "Ana"}, by=mainspring.client)
    mainspring.drain(raise_errors=False)

    due = mainspring.client.get(asked.job_id).due_at
    assert due is not None
    assert due - MIDNIGHT >= timedelta(seconds=90)
    assert rows(mainspring, "status, reserved_at, error") == [("pending", None, "RATE_LIMITED")]  # nothing went out


@pytest.mark.rule("PLAN-3.12")
def test_a_provider_that_hangs_is_given_up_and_tried_again(mainspring: Harness, mail: Recording) -> None:
    assert Notify()._setup.timeout == 10.0
    notify = Notify(senders=[mail], templates=TEMPLATES, timeout=0.05)
    mail.hangs = True
    with Harness(mainspring.dsn, ms.App(blocks=[notify], maintenance=False)) as harness:
        (asked,) = notify.send("ana", "greeting", {"name": "Ana"}, by=harness.client)
        harness.drain(raise_errors=False)
        assert harness.client.get(asked.job_id).state == "retrying"
        assert state(harness) == [("pending", None, "TIMEOUT", 1)]

        mail.hangs = False
        harness.advance(hours=1)

    assert mail.calls == [f"send {asked.id}", f"find {asked.id}", f"send {asked.id}"]  # one key, asked about first


@pytest.mark.rule("PLAN-3.15")
@pytest.mark.parametrize("opt_out", ["sms", "both", "both/sms"])
def test_an_opt_out_is_respected_unless_the_message_is_necessary(
    mainspring: Harness, notify: Notify, sms: Recording, opt_out: str
) -> None:
    mainspring.clock.set(NOON)
    notify.save_recipient("ana", opt_out=[opt_out], by=mainspring.client)
    notify.send("ana", "both", {"name": "Ana"}, by=mainspring.client, channels=["sms"])
    mainspring.drain()
    assert state(mainspring) == [("skipped", "opted_out", None, 0)]

    notify.send("ana", "both", {"name": "Eva"}, by=mainspring.client, channels=["sms"], necessary=True)
    notify.send("ana", "alarm", {"What": "The barn"}, by=mainspring.client)
    mainspring.drain()
    assert sms.texts == ["Hello Eva!", "The barn is on fire."] or sms.texts == ["The barn is on fire.", "Hello Eva!"]


@pytest.mark.rule("PLAN-3.15", "STAFF-14.08")
def test_in_the_night_only_what_rings_waits_and_necessary_ones_do_not(
    mainspring: Harness, notify: Notify, sms: Recording
) -> None:
    _, texted = notify.send("ana", "both", {"name": "Ana"}, by=mainspring.client)
    notify.send("ana", "both", {"name": "Eva"}, by=mainspring.client, channels=["sms"], necessary=True)
    mainspring.advance(hours=6, minutes=59)
    assert sms.texts == ["Hello Eva!"]
    assert rows(mainspring, "status, due_at", "channel = 'sms' and not necessary") == [
        ("pending", MIDNIGHT + timedelta(hours=7))
    ]

    mainspring.advance(minutes=1)
    assert sms.texts == ["Hello Eva!", "Hello Ana!"]
    assert mainspring.client.get(texted.job_id).snoozes == 0  # its time was known when it was asked for


def test_quiet_hours_that_began_meanwhile_are_kept_too_and_cost_no_attempt(
    mainspring: Harness, notify: Notify, sms: Recording
) -> None:
    mainspring.clock.set(NOON)
    (asked,) = notify.send("ana", "both", {"name": "Ana"}, by=mainspring.client, channels=["sms"])
    mainspring.clock.set(NOON + timedelta(hours=11))  # no worker until 23:00
    mainspring.drain()

    job = mainspring.client.get(asked.job_id)
    assert (job.state, job.attempt, job.due_at) == ("scheduled", 0, MIDNIGHT + timedelta(days=1, hours=7))
    mainspring.advance(hours=8)
    assert len(sms.taken) == 1


@pytest.mark.parametrize("critical", [False, True])
def test_what_is_above_the_spam_limit_waits_and_nothing_is_lost(
    mainspring: Harness, sms: Recording, mail: Recording, critical: bool
) -> None:
    template = Template(
        "news", "News", "{{ n }}", channels=("sms", "email"), class_="critical" if critical else "normal"
    )
    notify = Notify(senders=[sms, mail], templates=[template], spam=Spam(3))
    mainspring.clock.set(NOON)
    with Harness(mainspring.dsn, ms.App(blocks=[notify], maintenance=False)) as harness:
        for n in range(7):
            notify.send("ana", "news", {"n": n}, by=harness.client)
        harness.drain()
        assert (len(sms.taken), len(mail.taken)) == ((7, 7) if critical else (3, 3))
        harness.advance(minutes=59, seconds=59)
        assert len(sms.taken) == (7 if critical else 3)
        harness.advance(hours=2, seconds=1)

        assert sorted(sms.texts) == [str(n) for n in range(7)]
        assert set(rows(harness, "status, attempts")) == {("sent", 1)}
        sent = sorted(rows(harness, "sent_at", "channel = 'sms'"))
        if not critical:
            assert all(later - first >= timedelta(hours=1) for first, later in zip(sent, sent[3:], strict=False))


def test_a_recipient_may_have_a_spam_limit_of_their_own(mainspring: Harness, notify: Notify, mail: Recording) -> None:
    notify.save_recipient("ana", spam_limit=1, by=mainspring.client)
    for n in range(2):
        notify.send("ana", "greeting", {"name": n}, by=mainspring.client)
    mainspring.drain()

    assert len(mail.taken) == 1


@pytest.mark.rule("PLAN-3.11")
@pytest.mark.parametrize("gone", ["recipient", "reason", "address"])
def test_what_has_no_reason_any_more_is_skipped(mainspring: Harness, mail: Recording, gone: str) -> None:
    async def assigned(conn: psycopg.AsyncConnection[Any], note: Notification) -> bool:
        query = "select exists (select from assignment where id = %s)"
        row = await (await conn.execute(query, [note.data["assignment"]])).fetchone()
        return bool(row and row[0])

    template = Template("notification.assignment", "Assigned", "To {{ event }}", still=assigned)
    notify = Notify(senders=[mail], templates=[template])
    mainspring.conn.execute("create table assignment as select 7 as id")
    with Harness(mainspring.dsn, ms.App(blocks=[notify], maintenance=False)) as harness:
        data = {"event": "the fair", "assignment": 7}
        notify.send("ana", template.name, data, by=harness.client)
        harness.drain()
        assert len(mail.taken) == 1

        (asked,) = notify.send("ana", template.name, data | {"event": "the race"}, by=harness.client)
        if gone == "recipient":
            assert notify.forget_recipient("ana", by=harness.client)
        elif gone == "reason":
            mainspring.conn.execute("delete from assignment")
        else:
            notify.save_recipient("ana", email=None, by=harness.client)
        harness.drain()

        reasons = {"recipient": "unknown_recipient", "reason": "no_longer_holds", "address": "no_address"}
        assert len(mail.taken) == 1
        assert state(harness, f"id = '{asked.id}'") == [("skipped", reasons[gone], None, 0)]
        assert harness.client.get(asked.job_id).state == "succeeded"


@pytest.mark.rule("ENG-21.07")
@pytest.mark.parametrize(
    "said", [{"SEND_EMAILS": "false"}, {"SEND_EMAILS": "yes"}, {"MAINSPRING_NOTIFY_DRY_RUN": "on"}]
)
def test_a_dry_run_records_and_sends_nothing(
    mainspring: Harness,
    mail: Recording,
    sms: Recording,
    said: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    notify = Notify(senders=[mail, sms], templates=TEMPLATES)
    mainspring.clock.set(NOON)
    with Harness(mainspring.dsn, ms.App(blocks=[notify], maintenance=False)) as harness:
        notify.send("ana", "both", {"name": "Ana"}, by=harness.client)
        harness.drain()

        assert mail.calls == []
        found = rows(harness, "status, reason, text", "channel = 'email'")
        assert found == [("skipped", "dry_run", "Hello Ana!")]
        assert "email:skipped" in events(caplog)
        assert (sms.calls == []) == (notify.dry_run == {"email", "sms", "push"})


def test_what_the_code_says_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSPRING_NOTIFY_DRY_RUN", "on")
    assert Notify(dry_run=False).dry_run == frozenset()
    monkeypatch.setenv("MAINSPRING_NOTIFY_DRY_RUN", "perhaps")
    with pytest.raises(ConfigurationError, match="MAINSPRING_NOTIFY_DRY_RUN"):
        Notify()


def test_what_exists_only_at_sending_is_filled_in_then(mainspring: Harness, mail: Recording) -> None:
    asked: list[Any] = []

    async def link(conn: Any, note: Notification) -> dict[str, str]:
        asked.append(note.data)
        return {"link": "https://example.com/invoice?t=signed"}

    template = Template("invoice", "Invoice", "Invoice {{ number }}: {{ link }}", fill=link)
    notify = Notify(senders=[mail], templates=[template])
    with Harness(mainspring.dsn, ms.App(blocks=[notify], maintenance=False)) as harness:
        notify.send("ana", "invoice", {"number": 7}, by=harness.client)
        assert asked == []
        harness.drain()

    assert mail.texts == ["Invoice 7: https://example.com/invoice?t=signed"]


def test_everybody_reads_their_language_and_a_repeat_says_the_same_words(
    mainspring: Harness, mail: Recording, sms: Recording
) -> None:
    words = Words("Olá", "[Order] está a caminho.")
    shipped = Template("shipped", "Hello", "[Order] is on its way.", style="brackets", languages={"pt": words})
    notify = Notify(senders=[mail, sms], templates=[shipped])
    with Harness(mainspring.dsn, ms.App(blocks=[notify], maintenance=False)) as harness:
        notify.save_recipient("ana", by=harness.client, language="pt-PT")
        notify.save_recipient("eve", by=harness.client, email="eve@example.com")
        with pytest.raises(ValidationError, match=r"^data\.Order: is missing, which template shipped needs$"):
            notify.send("ana", "shipped", by=harness.client)
        mail.lost = [TimeoutError("the answer is lost")] * 2
        mail.finds = False

        notify.send(["ana", "eve"], "shipped", {"Order": "Order 7"}, by=harness.client)
        harness.drain(raise_errors=False)
        notify.save_recipient("ana", by=harness.client, language="")  # she may have got it in the other one
        harness.advance(hours=1)

        said = {(one.to, one.title, one.text) for one in mail.taken}
        assert len(mail.taken) == 4
        assert said == {
            ("ana@example.com", "Olá", "Order 7 está a caminho."),
            ("eve@example.com", "Hello", "Order 7 is on its way."),
        }


def test_recipients_may_live_in_the_applications_own_tables(mainspring: Harness, mail: Recording) -> None:
    async def customers(conn: psycopg.AsyncConnection[Any], org: str, ids: Any) -> list[Recipient]:
        found = await conn.execute("select id, email from customer where id = any(%s)", [list(ids)])
        return [Recipient(recipient_id=row[0], email=row[1]) async for row in found]

    mainspring.conn.execute("create table customer as select 'c7' as id, 'carl@example.com' as email")
    notify = Notify(senders=[mail], templates=TEMPLATES, recipients=customers)
    with Harness(mainspring.dsn, ms.App(blocks=[notify], maintenance=False)) as harness:
        notify.send(["c7", "c8"], "greeting", {"name": "Carl"}, by=harness.client)
        harness.drain()

        assert [one.to for one in mail.taken] == ["carl@example.com"]
        assert rows(harness, "recipient_id, status, reason") == [
            ("c7", "sent", None),
            ("c8", "skipped", "unknown_recipient"),
        ]


@pytest.mark.rule("PLAN-3.01", "PLAN-3.14")
def test_every_channel_has_a_sender_and_the_inbox_is_a_row_with_a_read_mark(
    mainspring: Harness, notify: Notify, mail: Recording, sms: Recording, push: Recording
) -> None:
    mainspring.clock.set(NOON)
    notify.send("ana", "everywhere", by=mainspring.client)
    mainspring.drain()

    assert [len(one.taken) for one in (mail, sms, push)] == [1, 1, 1]
    (item,) = notify.inbox("ana", by=mainspring.client, unread=True)
    assert (item.title, item.text, item.link, item.read_at) == ("News", "News", "/news", None)
    assert notify.read("eve", [item.id], by=mainspring.client) == 0  # not hers
    assert notify.read("ana", [item.id], by=mainspring.client) == 1
    assert notify.read("ana", [item.id], by=mainspring.client) == 0
    assert notify.inbox("ana", by=mainspring.client, unread=True) == []
    assert [one.read_at for one in notify.inbox("ana", by=mainspring.client)] == [NOON]


def test_an_open_breaker_holds_the_messages_and_counts_no_attempt(
    mainspring: Harness, notify: Notify, mail: Recording
) -> None:
    notify.send("ana", "everywhere", by=mainspring.client, channels=["in_app"])
    mainspring.drain()  # which declares the breakers
    mainspring.client.breakers.open("smtp", reason="a drill")
    (asked,) = notify.send("ana", "greeting", {"name": "Ana"}, by=mainspring.client)
    mainspring.drain()
    assert mainspring.client.get(asked.job_id).attempt == 0
    assert rows(mainspring, "status, attempts, reserved_at", "channel = 'email'") == [("pending", 0, None)]

    mainspring.client.breakers.auto("smtp", reason="it is over")
    mainspring.advance(hours=1)
    assert len(mail.taken) == 1


def test_messages_wait_for_a_dead_provider_once_and_one_of_them_tries(
    mainspring: Harness, notify: Notify, mail: Recording
) -> None:
    mainspring.clock.set(NOON)
    messages, probes = 20, 5
    mail.fails = [Failure("no answer", code="HttpException") for _ in range(5 + probes)]
    for n in range(messages):
        notify.send("ana", "greeting", {"name": f"Ana {n}"}, by=mainspring.client)
    mainspring.drain(raise_errors=False)
    assert len(mail.calls) == 5  # then the breaker is open
    assert {due for due in rows(mainspring, "due_at") if due > NOON + timedelta(days=1)} == set()  # not for ever

    mainspring.advance(minutes=probes, raise_errors=False)

    assert len([call for call in mail.calls if call.startswith("send")]) == 5 + probes
    trail = mainspring.conn.execute("select event, count(*) from mainspring.audit where job_id is not null group by 1")
    events: dict[str, int] = dict(trail.fetchall())
    assert events["job.deferred"] == messages + probes  # each is stopped once, or goes on waiting after it has tried
    assert "job.started" not in events
    mainspring.advance(minutes=2)
    assert len(mail.taken) == messages


def test_a_cancelled_job_is_a_failed_notification(mainspring: Harness, notify: Notify) -> None:
    (asked,) = notify.send("ana", "greeting", {"name": "Ana"}, by=mainspring.client)
    mainspring.client.cancel(asked.job_id, reason="a mistake")

    assert state(mainspring) == [("failed", None, "CANCELLED", 0)]


def test_a_worker_without_the_template_tries_later(mainspring: Harness, notify: Notify, mail: Recording) -> None:
    (asked,) = notify.send("ana", "greeting", {"name": "Ana"}, by=mainspring.client)
    with Harness(mainspring.dsn, ms.App(blocks=[Notify(senders=[mail])], maintenance=False)) as older:
        older.drain(raise_errors=False)
    assert mainspring.client.get(asked.job_id).state == "retrying"
    assert state(mainspring)[0][0] == "pending"

    mainspring.advance(hours=1)
    assert len(mail.taken) == 1


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"templates": [TEMPLATES[0], Template("greeting", "x", "y")]}, "templates: greeting is declared twice"),
        ({"senders": [Recording("x", "in_app")]}, "senders: x is for 'in_app'"),
        ({"timeout": 0}, "timeout: is not positive"),
    ],
)
def test_a_wrong_block_is_refused(wrong: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        Notify(**wrong)
