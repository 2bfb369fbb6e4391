"""The notification rules of a staffing marketplace, shown with kinds, classes and texts as it names them.

The application itself comes later; here the templates have its names and words, and stand-ins ask for them.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import cast

import pytest
from tests.contrib.notify.conftest import MIDNIGHT, Recording, rows

import mainspring as ms
from mainspring.contrib.notify import Channel, Notify, Template
from mainspring.db.notify import Class
from mainspring.outcome import Failure
from mainspring.testing import Harness

SMS: tuple[Channel, ...] = ("sms",)
BOTH: tuple[Channel, ...] = ("sms", "email")
CRITICAL = {
    "ladder_t0": "Timesheet of [Worker] is waiting: [Link]",
    "hard_stop": "Insurance expired. Booking [ID] is suspended.",
    "expired_insurance_alert": "The insurance of booking [ID] expired on [Expiry date].",
}
TIME_BOUND = {
    "clock_out_reminder_a": "Are you still working? Please clock out if your shift has ended.",
    "clock_out_reminder_b": "URGENT: Clock Out. Your scheduled shift ended 30 minutes ago.",
    "ladder_t60m": "Timesheet pending verification for [Worker]. Please verify within 4 hours.",
    "ladder_t3h": "URGENT: Timesheet for [Worker] will auto-approve in 1 hour if not verified.",
    "final_warning": "Booking [ID] ends on [Sunday date] unless it is paid.",
    "dispute_timeout": "Dispute unresolved after 3 hours. All future shifts cancelled until dispute is resolved.",
}
NORMAL = {
    "worker_released": "[Worker] has been released. The last day is [Sunday date].",
    "auto_approved": "Timesheet auto-approved after 4 hours. Supervisor did not verify within required timeframe.",
    "cutoff": "Booking [ID] was not funded: it ends on [Sunday date].",
}
DATA = {"Worker": "Ana", "ID": 7, "Link": "https://example.com/v/7", "Sunday date": date(2026, 11, 15)}
DATA["Expiry date"] = date(2026, 11, 14)
KINDS = [
    Template(name, name.replace("_", " ").title(), text, class_=cast(Class, class_),
             channels=SMS if "ladder" in name else BOTH, style="brackets")
    for class_, texts in (("critical", CRITICAL), ("time_bound", TIME_BOUND), ("normal", NORMAL))
    for name, text in texts.items()
]  # fmt: skip
THREE = datetime(2026, 11, 16, 3, tzinfo=UTC)


@pytest.fixture
def notify(mail: Recording, sms: Recording) -> Notify:
    retry = ms.exponential(base=30, factor=2, cap=3600, jitter="spread", attempts=6)
    return Notify(senders=[mail, sms], templates=KINDS, retry=retry)


@pytest.mark.rule("STAFF-14.06")
@pytest.mark.parametrize("kind", CRITICAL)
def test_critical_ones_ring_at_three_in_the_night(
    mainspring: Harness, notify: Notify, sms: Recording, kind: str
) -> None:
    mainspring.clock.set(THREE)
    notify.send("ana", kind, DATA, by=mainspring.client, channels=SMS)
    mainspring.drain()

    assert rows(mainspring, "critical, status, sent_at") == [(True, "sent", THREE)]
    assert len(sms.taken) == 1


@pytest.mark.rule("STAFF-14.07")
@pytest.mark.parametrize("kind", TIME_BOUND)
def test_time_bound_ones_ring_too_because_later_is_useless(
    mainspring: Harness, notify: Notify, sms: Recording, kind: str
) -> None:
    mainspring.clock.set(THREE)
    notify.send("ana", kind, DATA, by=mainspring.client, channels=SMS)
    mainspring.drain()

    assert rows(mainspring, "critical, status, sent_at") == [(False, "sent", THREE)]
    assert len(sms.taken) == 1


@pytest.mark.rule("STAFF-14.08")
@pytest.mark.parametrize(
    ("zone", "midnight", "seven"),
    [
        ("UTC", MIDNIGHT, MIDNIGHT + timedelta(hours=7)),
        ("Asia/Kathmandu", MIDNIGHT - timedelta(hours=5, minutes=45), MIDNIGHT + timedelta(hours=1, minutes=15)),
        ("Europe/Lisbon", datetime(2027, 3, 28, tzinfo=UTC), datetime(2027, 3, 28, 6, tzinfo=UTC)),  # an hour less
        ("America/New_York", datetime(2027, 11, 7, 4, tzinfo=UTC), datetime(2027, 11, 7, 12, tzinfo=UTC)),  # and more
    ],
)
def test_worker_released_at_midnight_is_mailed_at_once_and_texted_at_seven(
    mainspring: Harness, notify: Notify, zone: str, midnight: datetime, seven: datetime
) -> None:
    notify.save_recipient("ana", zone=zone, by=mainspring.client)
    mainspring.clock.set(midnight)
    notify.send("ana", "worker_released", DATA, by=mainspring.client)
    mainspring.advance(hours=12)

    assert rows(mainspring, "channel, sent_at") == [("email", midnight), ("sms", seven)]


@pytest.mark.rule("STAFF-14.10", "STAFF-14.13", "STAFF-14.02")
def test_texts_are_sent_word_for_word_and_the_label_is_the_title(
    mainspring: Harness, notify: Notify, mail: Recording, sms: Recording
) -> None:
    mainspring.clock.set(MIDNIGHT + timedelta(hours=12))
    asked = [one for template in KINDS for one in notify.send("ana", template.name, DATA, by=mainspring.client)]
    mainspring.drain()

    log = rows(mainspring, "template, channel, text, title, critical, status, attempts, recipient_id")
    assert len(log) == len(asked) == len(mail.taken) + len(sms.taken)
    assert not any("[" in one.text or "]" in one.text for one in (*mail.taken, *sms.taken))
    said = {row[0]: row[2] for row in log}
    assert said["worker_released"] == "Ana has been released. The last day is 2026-11-15."
    assert said["dispute_timeout"] == TIME_BOUND["dispute_timeout"]
    assert {row[0]: row[3] for row in log}["dispute_timeout"] == "Dispute Timeout"


@pytest.mark.rule("STAFF-14.13")
def test_a_sheet_that_was_extended_is_still_said_to_be_approved_after_four_hours(
    mainspring: Harness, notify: Notify, mail: Recording
) -> None:
    submitted = MIDNIGHT + timedelta(hours=8)
    mainspring.clock.set(submitted + timedelta(hours=5))  # T+5h
    notify.send("ana", "auto_approved", DATA, by=mainspring.client)
    mainspring.drain()

    assert mail.texts == [NORMAL["auto_approved"]]


@pytest.mark.rule("STAFF-14.05")
@pytest.mark.parametrize("act", ["auto_approved", "dispute_timeout", "cutoff", "hard_stop"])
def test_the_business_act_stands_though_mail_and_sms_are_down(
    mainspring: Harness, notify: Notify, tasks: ms.Registry, mail: Recording, sms: Recording, act: str
) -> None:
    mainspring.conn.execute("create table booking as select 7 as id, 'before' as state")
    for sender in (mail, sms):
        sender.fails = [Failure("down", code="HttpException") for _ in range(50)]

    @tasks.task
    async def decide(ctx: ms.Context) -> None:
        async with ctx.complete() as conn:
            await conn.execute("update booking set state = %s", [act])
            await notify.send("ana", act, DATA, by=ctx, channels=BOTH)

    mainspring.clock.set(MIDNIGHT + timedelta(hours=12))
    job = mainspring.client.enqueue(decide.job())
    mainspring.advance(hours=3, raise_errors=False)

    assert mainspring.client.get(job.id).state == "succeeded"
    assert mainspring.conn.execute("select state from booking").fetchone() == (act,)
    assert mail.taken == sms.taken == []


@pytest.mark.rule("STAFF-14.12")
@pytest.mark.parametrize("supervisor", [None, "somebody who has left"])
def test_without_a_supervisor_the_borrowing_admin_receives(
    mainspring: Harness, notify: Notify, sms: Recording, supervisor: str | None
) -> None:
    notify.save_recipient("admin", phone="+351900000001", by=mainspring.client)
    notify.send(supervisor, "ladder_t0", DATA, fallback="admin", by=mainspring.client)
    mainspring.drain()

    assert [one.to for one in sms.taken] == ["+351900000001"]
    assert rows(mainspring, "recipient_id, status") == [("admin", "sent")]


@pytest.mark.rule("STAFF-14.09")
def test_one_delivery_for_kind_entity_recipient_channel_and_occurrence(
    mainspring: Harness, notify: Notify, tasks: ms.Registry, sms: Recording
) -> None:
    @tasks.task(retry=ms.fixed(1200, attempts=2))
    def remind(ctx: ms.SyncContext, *, shift_id: int) -> None:
        with ctx.transaction() as conn:
            notify.send("ana", "clock_out_reminder_a", {"shift": shift_id}, by=ctx, conn=conn, channels=SMS)
        if ctx.attempt == 1:
            raise ConnectionError("after it was asked for")

    for shift in (1, 2):
        mainspring.client.enqueue(remind.job(shift_id=shift))
    mainspring.advance(hours=1, raise_errors=False)

    assert len(sms.taken) == 2  # another shift is another entity


@pytest.mark.rule("STAFF-14.11")
def test_after_nine_sent_and_one_failed_the_rate_is_nine_tenths(
    mainspring: Harness, notify: Notify, mail: Recording
) -> None:
    mail.fails = [ms.Permanent("no"), *[None] * 9]
    for n in range(10):
        notify.send("ana", "worker_released", DATA | {"ID": n}, by=mainspring.client, channels=("email",))
    notify.send("ana", "cutoff", DATA, by=mainspring.client, channels=SMS)
    mainspring.drain(raise_errors=False)

    released, cutoff = sorted(notify.rates(by=mainspring.client), key=lambda rate: rate.channel)
    assert (released.template, released.channel, released.sent, released.failed) == ("worker_released", "email", 9, 1)
    assert released.rate == 0.9
    assert (cutoff.rate, cutoff.open) == (None, 1)
