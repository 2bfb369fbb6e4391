"""Who did what is kept for ever, and who somebody is stands in the tables of people alone."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
from collections.abc import Iterator
from datetime import date, timedelta

import psycopg
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from tests.apps.staffing.sheets import at, begun
from tests.apps.staffing.town import MONDAY, NEXT_MONDAY, T00, W10, Town

from mainspring import WorkerConfig
from mainspring.db.gauges import Reader
from mainspring.events import Observer
from mainspring.observe import JsonFormatter, Log, Metrics
from mainspring.worker import Hosting, Worker
from mainspring_apps.staffing import insurance, shifts
from mainspring_sandbox import Fault

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
#: What people are told by, and what pays: in the town's own form, wherever it may stand.
PERSONAL = re.compile(r"Zebedee|p\d+@example\.com|\+1555\d{7}|pm_card_|whsec_|sk_test_|AC[0-9a-f]{32}")


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """Everything that anybody logs, as the engine writes it."""
    stream = io.StringIO()
    handler, root = logging.StreamHandler(stream), logging.getLogger()
    handler.setFormatter(JsonFormatter())
    levels = {root: logging.INFO} | {
        logging.getLogger(name): logging.DEBUG for name in ("mainspring", "mainspring_apps")
    }
    before = {logger: logger.level for logger in levels}
    root.addHandler(handler)
    for logger, level in levels.items():
        logger.setLevel(level)
    yield stream
    root.removeHandler(handler)
    for logger, level in before.items():
        logger.setLevel(level)


def worked(town: Town, stream: io.StringIO, metrics: Metrics) -> None:
    """What is due now is done by a worker that logs and counts."""
    app = town.desk.app
    observers: list[Observer] = [Log(app.registry), metrics]
    worker = Worker(
        app.dsn,
        app.registry,
        config=WorkerConfig(scheduler=False),
        observers=observers,
        breakers=app.breakers,
        hosting=Hosting(housekeeping=False),
    )
    asyncio.run(asyncio.wait_for(worker.drain(), 60))


@pytest.mark.rule("STAFF-19.12", "STAFF-14.10", "STAFF-14.02")
def test_a_busy_week_leaves_no_name_number_address_card_or_bracket_where_none_belongs(
    town: Town, logged: io.StringIO
) -> None:
    metrics = Metrics(town.desk.app.registry, gauges=Reader(town.mainspring.dsn, keep=0))
    booking, shift = begun(town, days=[MONDAY, NEXT_MONDAY], card="pm_card_chargeDeclined")
    town.only("weekly-payments", "weekly-final-warning", "weekly-hard-cutoff")
    town.conn.execute("update staffing.users set name = 'Zebedee ' || id")
    for provider, status in (("twilio", 400), ("twilio", 500), ("smtp", 500)):
        town.sandbox.faults.set(Fault(provider=provider, kind="error", status=status, times=1))
    town.mainspring.advance(to=at("17:31"), raise_errors=False)  # both reminders
    with town.conn.transaction():
        shifts.submit_timesheet(town.desk, town.conn, shift, by=booking.worker_user)
    worked(town, logged, metrics)  # the first step of the ladder
    town.mainspring.advance(hours=5, raise_errors=False)  # approved; nobody has paid for it
    policy = town.value("select id from staffing.insurance_policies where company_id = %s", booking.lender)
    town.mainspring.run_one(insurance.look_at_policy.job(policy_id=policy, instant=T00 + 365 * DAY))
    town.mainspring.advance(to=W10 - HOUR, raise_errors=False)
    with town.conn.transaction():
        insurance.renew_insurance(
            town.desk, town.conn, policy, expiration_date=date(2028, 1, 1), by=booking.lending_admin
        )
    town.mainspring.advance(to=T00 + 8 * HOUR, raise_errors=False)  # charged, declined, warned, released, told by day

    kinds = {kind for kind, _, _, status in town.messages() if status == "Sent"}
    assert kinds == {
        "reminder_5m", "reminder_30m", "ladder_0", "ladder_60m", "ladder_3h", "auto_approved", "extra_time",
        "extra_time_unpaid",
        "insurance_expired", "insurance_stop", "action_required", "final_warning", "worker_released",
    }  # fmt: skip
    texts = town.rows("select title, message from staffing.notification_log where status = 'Sent'")
    assert not [text for row in texts for text in row if "[" in text or "]" in text]
    assert town.texts("ladder_3h") == {
        f"URGENT: Timesheet for Zebedee {booking.worker_user} will auto-approve in 1 hour if not verified."
    }

    lines = [json.loads(line) for line in logged.getvalue().splitlines()]
    assert {line.get("job_type") for line in lines} >= {"ladder_0", "notify.deliver"}
    kept = {
        "logs": logged.getvalue(),
        "metrics": generate_latest(_registered(metrics)).decode(),
        "payloads": town.rows("select payload, key, strand from mainspring.job"),
        "errors": town.rows("select error from mainspring.attempt union all select error from mainspring.finished"),
        "alerts": town.rows("select name, subject, text, detail from mainspring.alert"),
        "audit": town.rows("select detail from mainspring.audit"),
    }
    assert all(kept.values())
    assert {place: set(PERSONAL.findall(str(found))) for place, found in kept.items()} == {
        place: set() for place in kept
    }
    assert PERSONAL.search(str(town.rows("select name, email, phone from staffing.users")))  # it would be found


def _registered(metrics: Metrics) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(metrics)
    return registry


@pytest.mark.rule("STAFF-19.11")
def test_every_act_is_kept_with_who_did_it_and_nobody_can_change_it(town: Town) -> None:
    town.only()
    booking, shift = begun(town)
    with town.conn.transaction():
        shifts.force_clock_out(town.desk, town.conn, shift, by=booking.supervisor or 0)
    town.mainspring.advance(hours=4)

    acts = [(actor, entity, entity_id) for actor, entity, entity_id, *_ in town.audit("clock_in")]
    assert acts == [(str(booking.worker_user), "time_log", shift)]
    assert [row[:3] for row in town.audit("force_clock_out")] == [(str(booking.supervisor), "time_log", shift)]
    assert [row[:3] for row in town.audit("auto_approve")] == [("SYSTEM", "time_log", shift)]
    before = town.rows("select * from staffing.audit_log order by id")
    for change in (
        "update mainspring.audit set actor_id = 'nobody'",
        "delete from mainspring.audit",
        "truncate mainspring.audit",
        "update staffing.audit_log set reason = 'none'",
        "delete from staffing.audit_log",
    ):
        with pytest.raises(psycopg.Error):
            town.conn.execute(change.encode())
    assert town.rows("select * from staffing.audit_log order by id") == before
