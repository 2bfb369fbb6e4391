"""What operators see and do: the command line, resending, retention; and the secured schema."""

from __future__ import annotations

import json
import logging
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from tests.contrib.notify.conftest import MIDNIGHT, TEMPLATES, Recording, rows
from tests.secured import Secured

import mainspring as ms
from mainspring.cli import main
from mainspring.config import Retention
from mainspring.contrib.notify import Notify
from mainspring.db.wire.sql import Sql
from mainspring.errors import NotPermitted
from mainspring.testing import Harness

NOON = MIDNIGHT + timedelta(hours=12)


def cli(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    code = main(["notification", *words, "--json"])
    said = capsys.readouterr()
    assert code == 0, said.err
    return json.loads(said.out)


@pytest.fixture
def sent(mainspring: Harness, notify: Notify) -> UUID:
    (asked,) = notify.send("ana", "greeting", {"name": "Ana"}, by=mainspring.client)
    mainspring.drain()
    return asked.id


def test_list_filters_and_show_says_everything(
    mainspring: Harness, notify: Notify, sent: UUID, capsys: pytest.CaptureFixture[str]
) -> None:
    notify.save_recipient("eve", by=mainspring.client)
    notify.send("eve", "both", {"name": "Eve"}, by=mainspring.client)
    mainspring.drain()

    assert [row["id"] for row in cli(capsys, "list", "--status", "sent")] == [str(sent)]
    assert {row["reason"] for row in cli(capsys, "list", "--status", "skipped")} == {"no_address"}
    assert [row["channel"] for row in cli(capsys, "list", "--channel", "sms", "--recipient", "eve")] == ["sms"]
    assert len(cli(capsys, "list", "--template", "both")) == 2
    assert cli(capsys, "show", str(sent))["text"] == "Hello Ana!"
    assert main(["notification", "list"]) == 0
    assert "greeting" in capsys.readouterr().out
    assert main(["notification", "show", str(sent)]) == 0
    assert "provider id   smtp-1" in capsys.readouterr().out
    assert main(["notification", "show", str(uuid4())]) != 0
    assert "there is no notification" in capsys.readouterr().err


def test_messages_about_a_thing_are_found_by_its_subject(
    mainspring: Harness, notify: Notify, mail: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, subject in (("Ana", "booking 17"), ("Bob", "booking 18"), ("Eve", None)):
        notify.send("ana", "greeting", {"name": name}, by=mainspring.client, subject=subject)
    notify.send("ana", "greeting", {"name": "Ana"}, by=mainspring.client, subject="booking 19")  # the same message
    mainspring.drain()

    (row,) = cli(capsys, "list", "--subject", "booking 17")
    assert (row["subject"], row["text"], row["title"]) == ("booking 17", "Hello Ana!", "Hello")
    assert cli(capsys, "list", "--subject", "booking 19") == []
    assert [row["subject"] for row in cli(capsys, "list")] == [None, "booking 18", "booking 17"]
    assert main(["notification", "list"]) == 0
    assert "SUBJECT" in (shown := capsys.readouterr().out)
    assert "booking 17" in shown

    cli(capsys, "resend", row["id"], "--reason", "she lost it")
    (event,) = mainspring.client.audit.events(subject="booking 17")
    assert event.event == "notification.resent"
    with pytest.raises(ms.ValidationError, match="subject: "):
        notify.send("ana", "greeting", {"name": "Ana"}, by=mainspring.client, subject=" ")


@pytest.mark.mainspring_new
def test_messages_about_a_thing_are_found_by_an_index(mainspring: Harness) -> None:
    mainspring.conn.execute(
        """insert into mainspring.notification (org_id, id, recipient_id, channel, template, class, necessary, subject,
                                                data, payload_hash, bucket, due_at, status, sent_at, job_id, created_at)
           select 'default', gen_random_uuid(), 'ana', 'email', 'greeting', 'normal', false, 'booking ' || n % 500,
                  '{}', n, t.now, t.now, 'sent', t.now, gen_random_uuid(), t.now
           from generate_series(1, 5000) n, (select mainspring.now()) t (now)"""
    )
    mainspring.conn.execute("analyze mainspring.notification")
    names = ("id", "status", "channel", "template", "recipient")
    for org in (None, "default"):
        about = dict.fromkeys(names) | {"org": org, "subject": "booking 17", "limit": 50}
        ((plan,),) = mainspring.conn.execute("explain (format json) " + Sql()["list_notifications"], about).fetchall()
        assert "'Index Name': 'notification_subject'" in str(plan), org


def test_rates_are_shown(mainspring: Harness, sent: UUID, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(capsys, "rates") == [
        {"template": "greeting", "channel": "email", "sent": 1, "failed": 0, "skipped": 0, "open": 0, "rate": 1.0}
    ]
    assert cli(capsys, "rates", "--since", "2026-11-17T00:00:00Z") == []
    assert main(["notification", "rates"]) == 0
    assert "100.0%" in capsys.readouterr().out


@pytest.mark.rule("ENG-26.05")
def test_why_a_mail_did_not_arrive_is_shown_dry_run_and_provider_trouble_alike(
    mainspring: Harness,
    notify: Notify,
    mail: Recording,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SEND_EMAILS", "false")
    dry = Notify(senders=[mail], templates=TEMPLATES)
    with Harness(mainspring.dsn, ms.App(blocks=[dry], maintenance=False)) as harness:
        dry.send("ana", "greeting", {"name": "dry"}, by=harness.client)
        harness.drain()
    mail.fails = [ms.Permanent("the key is wrong", code="SENDER_MISCONFIGURED")]
    (asked,) = notify.send("ana", "greeting", {"name": "wet"}, by=mainspring.client)
    mainspring.drain(raise_errors=False)

    (skipped,) = cli(capsys, "list", "--status", "skipped")
    assert (skipped["reason"], skipped["sent_at"]) == ("dry_run", None)
    (failed,) = cli(capsys, "list", "--status", "failed")
    assert (failed["error"], failed["sent_at"], failed["job_id"]) == ("SENDER_MISCONFIGURED", None, str(asked.job_id))


@pytest.mark.rule("ENG-26.06")
def test_resend_clears_the_stamp_enqueues_a_job_and_is_audited(
    mainspring: Harness, notify: Notify, mail: Recording, sent: UUID, capsys: pytest.CaptureFixture[str]
) -> None:
    said = cli(capsys, "resend", str(sent), "--reason", "she lost it", "--as", "ada")

    job = mainspring.client.get(UUID(said["job"]))
    assert (job.state, job.queue, job.task) == ("ready", "q:notifications", "notify.deliver")
    assert rows(mainspring, "status, sent_at, resends") == [("pending", None, 1)]
    (event,) = mainspring.client.audit.events(event="notification.resent")
    assert (event.actor_id, event.detail["reason"], event.detail["before"]["status"]) == ("ada", "she lost it", "sent")

    assert main(["notification", "resend", str(sent), "--reason", "again"]) != 0
    assert "is still to be sent" in capsys.readouterr().err

    mainspring.drain()
    assert [one.key for one in mail.taken] == [str(sent), f"{sent}-1"]  # or the provider would not send it
    assert rows(mainspring, "status, attempts, resends") == [("sent", 2, 1)]


def test_the_former_job_of_one_that_is_resent_finds_nothing_to_do(
    mainspring: Harness,
    notify: Notify,
    mail: Recording,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "mainspring.notify")
    mail.fails = [ms.Permanent("no")]
    (asked,) = notify.send("ana", "greeting", {"name": "Ana"}, by=mainspring.client)
    mainspring.drain(raise_errors=False)
    cli(capsys, "resend", str(asked.id), "--reason", "mended")
    mainspring.client.replay(asked.job_id, reason="mended")
    mainspring.drain()

    assert len(mail.taken) == 1
    assert {job.state for job in mainspring.client.jobs()} == {"succeeded"}
    assert "replaced" in {record.__dict__.get("reason") for record in caplog.records}


def test_a_notification_that_was_removed_fails_its_job(mainspring: Harness, notify: Notify) -> None:
    (asked,) = notify.send("ana", "greeting", {"name": "Ana"}, by=mainspring.client)
    mainspring.conn.execute("delete from mainspring.notification")
    mainspring.drain(raise_errors=False)

    job = mainspring.client.get(asked.job_id)
    assert job.state == "failed"
    assert job.error is not None
    assert job.error["code"] == "NOTIFICATION_GONE"


def test_old_ones_go_and_those_under_way_stay(
    mainspring: Harness, notify: Notify, tasks: ms.Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MAINSPRING_MAINTENANCE")
    mainspring.clock.set(NOON)
    notify.send("ana", "everywhere", by=mainspring.client)
    mainspring.drain()
    notify.send("ana", "greeting", {"name": "later"}, by=mainspring.client, at=NOON + timedelta(days=999))
    app = ms.App(tasks, maintenance=Retention(notifications=timedelta(days=30)))
    prune = app.registry.get("mainspring.prune_notifications")
    with Harness(mainspring.dsn, app) as harness:
        assert harness.run_one(prune.job().for_org("SYSTEM")).result == {"removed": 0}
        harness.clock.advance(days=31)
        assert harness.run_one(prune.job().for_org("SYSTEM")).result == {"removed": 5}  # four, and the inbox's

    assert rows(mainspring, "status") == ["pending"]
    assert notify.inbox("ana", by=mainspring.client) == []


def test_on_a_secured_schema_it_works_by_role_and_stays_in_its_organisation(secured: Secured, mail: Recording) -> None:
    notify = Notify(senders=[mail], templates=TEMPLATES)
    with ms.Client(secured.dsn("api"), secured=True, caller=ms.Caller(org_id="acme")) as client:
        notify.save_recipient("ana", email="ana@example.com", by=client)
        (asked,) = notify.send("ana", "greeting", {"name": "Ana"}, by=client)
        notify.send("ana", "everywhere", by=client, channels=["in_app"])
        assert notify.send("ana", "greeting", {"name": "Ana"}, by=client, best_effort=True)[0].answer == "existing"

    worker = ms.App(dsn=secured.dsn("worker"), blocks=[notify], maintenance=False)
    summary = worker.run_due(limit=10)
    assert len(mail.taken) == 1, summary

    with ms.Client(secured.dsn("api"), secured=True, caller=ms.Caller(org_id="acme")) as client:
        (item,) = notify.inbox("ana", by=client)
        assert notify.read("ana", [item.id], by=client) == 1
        assert [rate.sent for rate in notify.rates(by=client)] == [1, 1]
    with ms.Client(secured.dsn("api"), secured=True, caller=ms.Caller(org_id="globex")) as other:
        assert notify.inbox("ana", by=other) == []
        assert notify.rates(by=other) == []
        with pytest.raises(ms.errors.ValidationError, match="there is no recipient"):
            notify.send("ana", "greeting", {"name": "Ana"}, by=other)
        with pytest.raises(NotPermitted), psycopg.connect(secured.dsn("api", "globex")) as conn:
            notify.save_recipient("ana", email="eve@example.com", by=other, conn=conn, org="acme")
    with psycopg.connect(secured.dsn("operator", "acme")) as conn:
        query = "select channel, status, text from mainspring.notification_log order by channel"
        assert conn.execute(query).fetchall() == [("email", "sent", "Hello Ana!"), ("in_app", "sent", "News")]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute("select email from mainspring.recipient")
    assert asked.answer == "created"


def test_an_open_dead_letter_keeps_its_notification_so_that_its_replay_can_send_it(
    mainspring: Harness, notify: Notify, mail: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MAINSPRING_MAINTENANCE")
    mail.fails = [ms.Permanent("a wrong setting")]
    (asked,) = notify.send("ana", "greeting", {"name": "Ana"}, by=mainspring.client)
    mainspring.drain(raise_errors=False)
    app = ms.App(maintenance=Retention(notifications=timedelta(days=30)))
    prune = app.registry.get("mainspring.prune_notifications")
    with Harness(mainspring.dsn, app) as harness:
        harness.clock.advance(days=31)
        assert harness.run_one(prune.job().for_org("SYSTEM")).result == {"removed": 0}

    mainspring.client.replay(asked.job_id, reason="mended")
    mainspring.drain()
    assert len(mail.taken) == 1
