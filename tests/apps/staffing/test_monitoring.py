"""What operations see: metrics of every task, and alerts at exactly the thresholds that the ledger names."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tests.apps.staffing.sheets import submitted
from tests.apps.staffing.town import NEXT_WEEK, Town

import mainspring as ms
from mainspring.db.gauges import Reader
from mainspring.observe import Metrics
from mainspring.worker import Hosting, Worker
from mainspring_apps.staffing import insurance, tokens
from mainspring_apps.staffing.market import Market
from mainspring_apps.staffing.rules import watching as rules
from mainspring_apps.staffing.settings import Settings
from mainspring_apps.staffing.watching import measures, watches
from mainspring_sandbox import Fault, Sandbox

HERE = Path(__file__).parent
#: Of each alert that the sections name: the watch, or the name that is opened where it is found.
NAMED = {
    "STAFF-1.38": "charge_failed",
    "STAFF-2.12": "final_warning_delivery",
    "STAFF-3.25": "cutoff_failed",
    "STAFF-4.30": "expired_policy_active",
    "STAFF-9.30": "transfer_failed",
    "STAFF-10.28": "dispute_timeout_failed",
    "STAFF-11.20": "payment_retry_failed",
}
CRITICAL = {
    "payments_failing", "insurance_warning_unsent", "auto_approval_failed", "dead_letter_crowded",
    "cutoff_failed", "expired_policy_active", "release_failed", "transfer_failed", "refund_failed",
    "dispute_timeout_failed", "hard_stop_failed", "refund_event_failed", "refund_unasked", "chargeback_event_failed",
    "reversal_failed", "reversal_event_failed", "upfront_unended", "no_show_failed", "charges_unanswered",
    "nobody_reached", "nobody_to_tell",
}  # fmt: skip


@pytest.fixture
def mainspring_app(mainspring_sandbox_server: Sandbox) -> Iterator[Market]:
    """The marketplace with its watches, which other tests leave out."""
    with mainspring_sandbox_server.standing_in():
        yield Market(maintenance=False)


def paid(town: Town, booking: int, good: int, bad: int, *, source: str = "weekly", week: int = 0) -> None:
    """So many payments of a run; of those that failed, every third had no card."""
    start, end = (instant + week * timedelta(days=7) for instant in NEXT_WEEK)
    town.conn.execute(
        """
        insert into staffing.pending_payments (booking_id, period_start, period_end, amount_minor, currency, status,
                                               source, idempotency_key, failure_code, created_at, settled_at)
        select %(booking)s, %(start)s + x.n * interval '1 ms', %(end)s, 100, 'USD',
               case when x.n <= %(bad)s then 'Failed' else 'Succeeded' end, %(source)s,
               concat_ws(':', %(source)s::text, %(week)s::int, %(good)s::int, x.n),
               case when x.n <= %(bad)s then case when x.n %% 3 = 0 then 'no_card' else 'insufficient_funds' end end,
               mainspring.now(), mainspring.now()
        from generate_series(1, %(all)s) x (n)""",
        {"booking": booking, "start": start + timedelta(seconds=good), "end": end, "bad": bad, "good": good,
         "all": good + bad, "source": source, "week": week},
    )  # fmt: skip


def ended(town: Town, count: int, state: str = "succeeded") -> None:
    """So many jobs have come to an end now."""
    town.mainspring.client.enqueue_many([tokens.clean_tokens.job() for _ in range(count)])
    buried(town, "clean_tokens", state)


def buried(town: Town, task: str, state: str = "dead") -> None:
    """What waits of a task has come to an end, by direct writes."""
    town.conn.execute(
        """
        with gone as (delete from mainspring.waiting where task = %s returning id, org_id)
        insert into mainspring.finished (id, org_id, state, attempt, finished_at)
        select id, org_id, %s, 1, mainspring.now() from gone""",
        [task, state],
    )


def retried(town: Town, count: int) -> None:
    """So many of the jobs that ended have failed once before, now."""
    town.conn.execute(
        """
        insert into mainspring.attempt (org_id, job_id, epoch, attempt, worker, started_at, ended_at, outcome)
        select f.org_id, f.id, 1, 1, 'w', mainspring.now(), mainspring.now(), 'retried' from mainspring.finished f
        where not exists (select from mainspring.attempt a where a.job_id = f.id) limit %s""",
        [count],
    )


# -- thresholds


@pytest.mark.rule("STAFF-15.06", "STAFF-15.09", "STAFF-15.10", "STAFF-15.11")
def test_an_alert_begins_right_above_its_threshold_and_never_with_too_few() -> None:
    s = Settings()
    assert [rules.failing(bad, 100, s) for bad in (0, 5, 6, 100)] == [False, False, True, True]
    assert [rules.unsteady(again, 100, s) for again in (0, 20, 21, 100)] == [False, False, True, True]
    assert [rules.unsteady(some, some, s) for some in (0, 1, 19, 20)] == [False, False, False, True]
    assert [rules.failing(1, 20, s), rules.failing(2, 20, s)] == [False, True]
    assert [rules.crowded(dead, s) for dead in (0, 100, 101)] == [False, False, True]
    assert [rules.late(timedelta(seconds=late), s) for late in (0, 300, 301)] == [False, False, True]


@pytest.mark.rule("STAFF-15.06", "STAFF-1.37")
def test_more_than_a_twentieth_of_a_runs_payments_failing_is_told_with_the_causes(town: Town) -> None:
    booking = town.booking().id
    paid(town, booking, 95, 5)
    paid(town, booking, 30, 30, source="manual")  # no part of the run
    paid(town, booking, 0, 4, week=2)
    assert town.wrong("payments_failing") == []

    paid(town, booking, 94, 6, week=1)
    told = [("week of 2026-06-15", "6 of 100 payments failed: insufficient_funds 4, no_card 2")]
    assert town.wrong("payments_failing") == told
    assert dict(town.measured("staffing_payment_failures")) == {"insufficient_funds": 31, "no_card": 14}

    town.mainspring.clock.set(town.now + timedelta(days=1))
    assert town.wrong("payments_failing") == []


@pytest.mark.rule("STAFF-20.19", "STAFF-15.06")
def test_few_payments_that_fail_are_an_alert_from_five_in_a_day_on(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    booking = town.booking().id

    def told() -> list[str]:
        return [text for _, text in town.wrong("payments_failing")]

    paid(town, booking, 0, 4)
    assert told() == []
    town.mainspring.clock.set(town.now + timedelta(days=1))  # those four are out of the day,
    paid(town, booking, 0, 4, week=1)
    assert told() == []
    paid(town, booking, 1, 0, week=1)  # and a fifth is in it
    assert told() == ["4 of 5 payments failed: insufficient_funds 3, no_card 1"]
    paid(town, booking, 0, 19, week=2)
    assert told()[1:] == ["19 of 19 payments failed: insufficient_funds 13, no_card 6"]
    fewer = replace(town.desk.settings, failed_payments_least=20, failed_payments_within=timedelta(days=2))
    monkeypatch.setitem(vars(town.desk), "settings", fewer)
    assert told() == []
    paid(town, booking, 1, 0, week=2)
    assert told() == ["19 of 20 payments failed: insufficient_funds 13, no_card 6"]


@pytest.mark.rule("STAFF-15.09", "STAFF-15.04")
def test_more_than_a_hundred_dead_letters_are_an_alert_and_a_gauge_counts_them(town: Town) -> None:
    metrics = Metrics(town.desk.app.registry, gauges=Reader(town.mainspring.dsn, keep=0))
    ended(town, 100, "dead")
    assert (town.wrong("dead_letter_crowded"), scraped(metrics)["mainspring_deadletter_open", ""]) == ([], 100)

    ended(town, 1, "failed")
    assert town.wrong("dead_letter_crowded") == [("dead letter", "101 jobs wait for somebody to decide")]
    assert scraped(metrics)["mainspring_deadletter_open", ""] == 101


@pytest.mark.rule("STAFF-15.10")
def test_a_due_job_that_is_not_started_after_five_minutes_is_an_alert(town: Town) -> None:
    due = town.now + timedelta(hours=1)
    town.mainspring.client.enqueue(tokens.clean_tokens.job().at(due))
    for seconds, found in ((-60, []), (300, []), (301, ["queue magic-link-cleanup"])):
        town.mainspring.clock.set(due + timedelta(seconds=seconds))
        assert [subject for subject, _ in town.wrong("jobs_late")] == found
    assert town.wrong("jobs_late")[0][1] == "a job is due since 301 s and not started"


@pytest.mark.rule("STAFF-15.11")
def test_more_than_a_fifth_of_an_hours_jobs_retried_is_an_alert(town: Town) -> None:
    ended(town, 100)
    retried(town, 20)
    assert town.wrong("jobs_retried") == []

    retried(town, 1)
    assert town.wrong("jobs_retried") == [("all jobs", "21 of 100 jobs were retried")]

    town.mainspring.clock.set(town.now + timedelta(hours=1))
    assert town.wrong("jobs_retried") == []


# -- what is watched


@pytest.mark.rule("STAFF-15.08", "STAFF-15.13", "STAFF-16.07")
def test_a_job_that_failed_for_good_is_an_alert_about_its_row(town: Town) -> None:
    watched = {
        "charge_failed": ("charge_week", "booking_id", "booking 7"),
        "payment_retry_failed": ("retry_payment", "booking_id", "booking 7"),
        "unknown_payment": ("payment_changed", "event_id", "event 7"),
        "auto_approval_failed": ("auto_approve", "time_log_id", "time_log 7"),
        "release_failed": ("release_shift", "time_log_id", "time_log 7"),
        "transfer_failed": ("pay_lender", "transfer_id", "transfer 7"),
        "refund_failed": ("refund_borrower", "refund_id", "refund 7"),
        "no_show_failed": ("refund_no_show", "time_log_id", "time_log 7"),
        "dispute_timeout_failed": ("dispute_timeout", "dispute_id", "dispute 7"),
        "hard_stop_failed": ("stop_booking", "booking_id", "booking 7"),
        "final_warning_failed": ("warn_unpaid", "booking_id", "booking 7"),
        "refund_event_failed": ("refund_changed", "event_id", "event 7"),
        "refund_unasked": ("charge_refunded", "event_id", "event 7"),
        "chargeback_event_failed": ("chargeback_changed", "event_id", "event 7"),
        "account_event_failed": ("account_changed", "event_id", "event 7"),
        "payout_event_failed": ("payout_failed", "event_id", "event 7"),
        "reversal_failed": ("take_back", "reversal_id", "reversal 7"),
        "payment_unasked": ("reconcile_payment", "payment_id", "payment 7"),
    }
    for name, (task, field, subject) in watched.items():
        assert field in str(town.desk.app.registry.get(task).codec.schema())
        assert town.wrong(name) == []
        town.conn.execute("select mainspring.enqueue(%s, jsonb_build_object(%s::text, 7))", [task, field])
        buried(town, task)
        assert [one for one, _ in town.wrong(name)] == [subject]


@pytest.mark.rule("STAFF-15.13", "STAFF-16.07")
def test_each_alert_of_the_sections_is_declared_with_its_severity_and_has_a_test_of_its_own(
    mainspring_app: Market,
) -> None:
    declared = {one.name: one.severity for one in watches(mainspring_app.desk)}
    assert {name for name, severity in declared.items() if severity == "critical"} == CRITICAL
    assert {name for name, severity in declared.items() if severity == "warning"} >= {"jobs_late", "jobs_retried"}
    tests = "".join(page.read_text() for page in HERE.glob("test_*.py") if page.name != Path(__file__).name)
    for rule, name in NAMED.items():
        assert name in declared
        assert f'"{rule}"' in tests, f"no test shows {rule}"


@pytest.mark.rule("STAFF-15.12", "STAFF-15.10")
def test_an_alert_opens_once_stays_open_and_closes_when_it_is_over(town: Town) -> None:
    town.only("staffing.watch.300s")
    town.mainspring.client.pause("magic-link-cleanup", reason="a test")
    town.mainspring.client.enqueue(tokens.clean_tokens.job())

    town.mainspring.advance(minutes=5)
    assert town.alerts() == []
    town.mainspring.advance(minutes=15)
    (alert,) = town.mainspring.client.alerts.list()
    assert (alert.name, alert.subject, alert.severity, alert.count) == (
        "jobs_late", "queue magic-link-cleanup", "warning", 3,
    )  # fmt: skip

    town.mainspring.client.resume("magic-link-cleanup")
    town.mainspring.advance(minutes=5)
    assert town.alerts() == []
    (over,) = town.mainspring.client.alerts.list(open=False)
    assert (over.id, over.closed_at, over.closed_by) == (alert.id, town.now, "SYSTEM")


@pytest.mark.rule("STAFF-15.08", "STAFF-16.05", "STAFF-15.12")
def test_a_timesheet_that_could_not_be_approved_is_told_until_a_person_has_repaired_it(town: Town) -> None:
    town.only()
    _, shift = submitted(town)
    town.conn.execute("alter table staffing.time_log add constraint broken check (status <> 'Verified') not valid")
    town.mainspring.advance(hours=4, minutes=30, raise_errors=False)  # and five retries
    town.only("staffing.watch.300s")
    town.mainspring.advance(minutes=5)

    (alert,) = [alert for alert in town.alerts() if alert[0] == "auto_approval_failed"]
    assert alert == ("auto_approval_failed", f"time_log {shift}", "critical")
    (letter,) = town.mainspring.client.dead.list()
    case = town.mainspring.client.dead.show(letter.id)
    assert (case.job.payload["time_log_id"], case.job.attempt, case.job.state) == (shift, 6, "dead")
    assert case.job.error is not None
    assert "broken" in case.job.error["message"]

    town.conn.execute("alter table staffing.time_log drop constraint broken")
    with ms.calling(ms.Caller(actor_type="user", actor_id="dora")):
        town.mainspring.client.dead.replay(letter.id, reason="the constraint is gone")
    town.mainspring.advance(minutes=5)
    assert town.shift_status(shift) == "Verified"
    assert [alert for alert in town.alerts() if alert[0] == "auto_approval_failed"] == []
    assert town.rows(
        "select detail ->> 'by', detail ->> 'reason' from mainspring.audit where event = 'job.replayed'"
    ) == [("dora", "the constraint is gone")]


# -- metrics


def scraped(metrics: Metrics) -> dict[tuple[str, str], float]:
    """What Prometheus reads, by name and task."""
    registry = CollectorRegistry()
    registry.register(metrics)
    families = text_string_to_metric_families(generate_latest(registry).decode())
    samples = [sample for family in families for sample in family.samples]
    return {(one.name, one.labels.get("job_type", "")): one.value for one in samples if "le" not in one.labels}


@pytest.mark.rule("STAFF-15.01", "STAFF-15.02", "STAFF-15.03")
def test_every_task_is_counted_timed_and_its_retries_too(town: Town) -> None:
    lender = town.company("Lender")
    policies = [town.insert("insurance_policies", company_id=lender, expiration_date="2027-01-01") for _ in range(11)]
    metrics = Metrics(town.desk.app.registry, aliases=True)
    town.conn.execute("create table public.broken as select unnest(%s::bigint[]) as id", [policies[-2:]])
    town.conn.execute(
        """
        create function public.refuse(policy bigint) returns boolean language plpgsql as $$
        begin
          if exists (select from public.broken b where b.id = policy) then raise exception 'not now'; end if;
          return true;
        end $$;
        alter table staffing.insurance_policies rename to policies;
        create view staffing.insurance_policies as select * from staffing.policies where public.refuse(id)"""
    )

    def work() -> dict[tuple[str, str], float]:
        worker = Worker(
            town.mainspring.dsn,
            town.desk.app.registry,
            observers=[metrics],
            breakers=town.desk.app.breakers,
            hosting=Hosting(housekeeping=False),
        )
        asyncio.run(asyncio.wait_for(worker.drain(), 60))
        return scraped(metrics)

    look = insurance.look_at_policy
    jobs = [look.job(policy_id=policy, instant=town.now) for policy in [*policies[:9], 999, *policies[9:]]]
    town.mainspring.client.enqueue_many(jobs)
    seen = work()
    task = look.name
    assert (seen["jobs_succeeded_total", task], seen["jobs_duration_seconds_count", task]) == (9, 12)
    assert seen["mainspring_jobs_retried_total", task] == 2
    assert town.value("select count(*) from mainspring.dead_letters") == 1
    assert seen["jobs_succeeded_total", task] / (seen["jobs_succeeded_total", task] + 1) == 0.9

    town.conn.execute("delete from staffing.policies where id = %s", [policies[-1]])  # the one fails for good,
    town.conn.execute("delete from public.broken")  # and the other succeeds
    town.mainspring.clock.set(town.now + timedelta(minutes=1))
    seen = work()
    assert (seen["jobs_succeeded_total", task], seen["jobs_attempts_histogram_count", task]) == (10, 12)
    assert town.measured("staffing_retry_success_rate") == [(task, 0.5)]


@pytest.mark.rule("STAFF-15.05", "STAFF-14.11", "STAFF-14.04")
def test_of_nine_messages_sent_and_one_that_failed_the_rate_is_nine_tenths(town: Town) -> None:
    lender = town.company("Lender")
    people = [town.user(lender, "Worker", quiet_hours_start="00:00", quiet_hours_end="00:00") for _ in range(10)]

    def tell(*to: int) -> None:
        with town.conn.transaction():
            town.desk.tell(town.conn, "auto_approved", to, {"time_log_id": 1}, occurrence=town.now)

    town.only()
    tell(*people[:9], town.user(lender, "Worker"))  # the last one sleeps: that message has come to no end
    town.mainspring.drain()
    assert town.measured("staffing_delivery_rate") == [("auto_approved", "sms", 1)]
    town.sandbox.faults.set(Fault(provider="twilio", kind="error"))
    tell(people[9])
    town.mainspring.advance(hours=1, raise_errors=False)

    assert [(*labels, float(rate)) for *labels, rate in town.measured("staffing_delivery_rate")] == [
        ("auto_approved", "sms", 0.9)
    ]
    assert town.value("select count(*) from mainspring.dead_letters where task = 'notify.deliver'") == 1


@pytest.mark.rule("STAFF-15.14", "STAFF-15.05")
def test_every_measure_answers_prometheus(town: Town) -> None:
    shown = {one.measure.name: one.error for one in town.desk.app.measured()}
    assert shown == dict.fromkeys((one.name for one in measures(town.desk.settings)), None)
    assert shown.keys() >= {
        "staffing_payments", "staffing_releases", "staffing_delivery_rate", "staffing_policies_near_expiry",
        "staffing_search_skips", "staffing_search_outage_seconds", "staffing_search_batch_failure_rate",
        "staffing_search_retry_success_rate", "staffing_resolution_to_payment_seconds",
    }  # fmt: skip
