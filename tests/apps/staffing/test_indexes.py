"""Indexes, pages and time-outs: what the ledger's performance rules ask of the catalogue and of the declarations."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from tests.apps.staffing.town import NEXT_WEEK, Town

from mainspring_apps.staffing import store

#: The definition of each, as the catalogue prints it after `USING`; the second is for what has no company or booking.
ASKED = {
    "pending_payments_status": "btree (status, created_at)",
    "insurance_policies_company": "btree (company_id, is_active, expiration_date)",
    "insurance_policies_expiring": "btree (expiration_date, id) WHERE is_active",
    "saved_searches_user": "btree (user_id, is_active)",
    "time_log_booking": "btree (booking_id, status, clock_out_time)",
    "time_log_pending": "btree (auto_approval_time) WHERE (status = 'Pending_Verification'::text)",
    "disputes_booking": "btree (booking_id, status, dispute_filed_at)",
    "disputes_waiting": "btree (dispute_filed_at) WHERE ((status = 'Open'::text) AND (timed_out_at IS NULL)"
    " AND (dispute_option = 'A'::text))",
    "magic_link_tokens_expires": "btree (expires_at, used)",
}


@pytest.mark.rule("STAFF-17.02", "STAFF-17.03", "STAFF-17.04", "STAFF-17.05", "STAFF-17.06")
def test_every_index_that_is_asked_for_is_in_the_catalogue(town: Town) -> None:
    found = dict(
        town.rows("select indexname, split_part(indexdef, ' USING ', 2) from pg_indexes where schemaname = 'staffing'")
    )
    assert {name: found.get(name) for name in ASKED} == ASKED


@pytest.mark.mainspring_new
@pytest.mark.rule("STAFF-17.01")
def test_payments_whose_end_nobody_told_are_found_by_status_and_age(town: Town) -> None:
    booking = town.booking().id
    town.conn.execute(
        """
        insert into staffing.pending_payments (booking_id, period_start, period_end, amount_minor, currency, status,
                                               source, idempotency_key, created_at)
        select %s, %s + n * interval '1 s', %s, 100, 'USD', case when n > 3 then 'Succeeded' else 'Pending' end,
               'weekly', n, mainspring.now() - n * interval '1 h' from generate_series(1, 2000) n""",
        [booking, *NEXT_WEEK],
    )
    town.conn.execute("analyze staffing.pending_payments")
    about = {"stale": town.desk.settings.stale_after, "now": town.now}
    plan = town.conn.execute("explain (format json) " + store.sql["stale_payments"], about).fetchone()
    assert plan is not None
    assert "'Index Name': 'pending_payments_status'" in str(plan[0])
    assert "created_at <= " in str(plan[0]).partition("Index Cond")[2]
    assert len(town.conn.execute(store.sql["stale_payments"], about).fetchall()) == 3


@pytest.mark.rule("STAFF-17.07")
def test_no_index_of_the_marketplace_asks_a_function_that_may_change_its_answer(town: Town) -> None:
    conditions = town.rows(
        """
        select c.relname, concat_ws(' ', pg_get_expr(i.indpred, i.indrelid), pg_get_expr(i.indexprs, i.indrelid))
        from pg_index i join pg_class c on c.oid = i.indexrelid
        where c.relnamespace = 'staffing'::regnamespace"""
    )
    assert "time_log_pending" in {name for name, text in conditions if text}
    asked = {name for _, text in conditions for name in re.findall(r"(\w+)\(", text)}
    assert town.rows("select proname from pg_proc where proname = any(%s) and provolatile <> 'i'", list(asked)) == []
    assert not re.search(r"now|current_|_timestamp\b", " ".join(text for _, text in conditions), re.IGNORECASE)


@pytest.mark.mainspring_new
def test_the_story_of_a_booking_is_found_by_the_engine_s_indexes_and_none_of_ours_stands_on_its_tables(
    town: Town,
) -> None:
    town.booking(shifts=1)
    town.conn.execute(
        """insert into mainspring.audit (org_id, at, event, actor_type, actor_id, subject)
           select 'default', mainspring.now(), 'staffing.clock_in', 'user', '1', 'booking ' || n % 500
           from generate_series(1, 5000) n"""
    )
    town.conn.execute(
        """insert into mainspring.notification (org_id, id, recipient_id, channel, template, class, necessary, subject,
                                                data, payload_hash, bucket, due_at, status, sent_at, job_id, created_at)
           select 'default', gen_random_uuid(), '1', 'email', 'auto_approved', 'normal', false, 'booking ' || n % 500,
                  '{}', n, t.now, t.now, 'sent', t.now, gen_random_uuid(), t.now
           from generate_series(1, 5000) n, (select mainspring.now()) t (now)"""
    )
    town.conn.execute("analyze mainspring.audit, mainspring.notification")
    about = {"subject": "booking 17", "limit": 1000}
    ((plan,),) = town.conn.execute("explain (format json) " + store.sql["what_happened"], about).fetchall()
    assert {"audit_subject", "notification_subject"} <= set(re.findall(r"'Index Name': '(\w+)'", str(plan)))
    assert len(town.conn.execute(store.sql["what_happened"], about).fetchall()) == 20
    foreign = "select indexname from pg_indexes where schemaname = 'mainspring' and indexname like '%%staffing%%'"
    assert town.rows(foreign) == []


@pytest.mark.rule("STAFF-17.08", "STAFF-17.10", "STAFF-17.11", "STAFF-0.05")
def test_runs_are_read_by_page_and_every_job_is_stopped_after_five_minutes(town: Town) -> None:
    registry = town.desk.app.registry
    pages = {one.name: one.page for one in registry.schedules() if one.entities is not None}
    assert pages["weekly-payments"] == 100
    assert pages.keys() >= {"weekly-final-warning", "weekly-hard-cutoff", "insurance-monitoring"}
    assert max(pages.values()) <= 1000
    sweeps = [one for one in registry.schedules() if one.name in ("approval-sweep", "overdue-disputes")]
    assert [one.page <= 1000 for one in sweeps] == [True, True]
    assert {task.timeout for task in registry} == {timedelta(minutes=5)}
