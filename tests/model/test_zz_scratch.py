import pytest, pathlib, psycopg
from tests.databases import fresh_database
from tests.model.machine import run_machine
from mainspring.db.migrate import engine_line, migrate, Line
from mainspring.testing import clock

HEAD = Line.read("mainspring", pathlib.Path("/tmp/headmig"))
NOW = engine_line()


def patched(line, *pairs):
    from dataclasses import replace

    ms = []
    seen = set()
    for m in line.migrations:
        t = m.text
        for a, b in pairs:
            if a in t:
                seen.add(a)
            t = t.replace(a, b)
        ms.append(replace(m, text=t))
    assert len(seen) == len(pairs), pairs
    return Line("mainspring", tuple(ms))


R = "delete from {schema}.running r where r.epoch = any(p_epochs) and r.worker = p_worker returning r.*"
BUGS = {
    "none": NOW,
    "head": HEAD,
    "complete without worker": patched(NOW, (R, R.replace(" and r.worker = p_worker", ""))),
    "settle without worker": patched(
        NOW, ("where x.epoch = m.epoch and x.worker = p_worker", "where x.epoch = m.epoch")
    ),
    "renew without worker": patched(
        NOW,
        (
            "where r.epoch = any(p_epochs) and r.worker = p_worker\n  returning",
            "where r.epoch = any(p_epochs)\n  returning",
        ),
    ),
    "lease by real clock": patched(
        NOW, ("{schema}.now() + p_lease\n    from d", "clock_timestamp() + p_lease\n    from d")
    ),
    "rescue ignores limit": patched(NOW, ("r.attempt >= max_attempts or ", "")),
    "no crash budget": patched(NOW, (" or r.crashes + 1 >= p_crash_budget", "")),
    "retrying not unique": patched(
        NOW,
        (
            "'dead', 'cancelled', 'running') or was.attempt > 0",
            "'dead', 'cancelled', 'running', 'retrying') or was.attempt > 0",
        ),
        ("if was.state in ('running', 'scheduled', 'ready', 'retrying') then", "if was.state in ('running') then"),
    ),
    "claim ignores pause": patched(
        NOW, ("mq.name = q.name and mq.paused_at is not null", "mq.name = q.name and false")
    ),
    "held not released": patched(
        NOW, ("where w.after = r.id and w.after is not null;\n      perform", "where false;\n      perform")
    ),
    "cancel lost on fail": patched(NOW, ("m.verb := 'stop';", "null;")),
    "snooze burns attempt": patched(
        NOW,
        ("case when m.verb = 'fail' then r.attempt else", "case when m.verb in ('fail', 'snooze') then r.attempt else"),
    ),
    "replay ignores key": patched(
        NOW, ("and s.state in ('scheduled', 'ready', 'retrying', 'running');\n    if found", "and false;\n    if found")
    ),
    "select then insert": patched(
        NOW,
        (
            "on conflict do nothing returning job_id\n",
            "on conflict (org_id, key) do update set job_id = excluded.job_id returning job_id\n",
        ),
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_bug(volatile_cluster, bug):
    with fresh_database(volatile_cluster, migrated=False) as db:
        with db.connect() as conn:
            migrate(conn, line=BUGS[bug])
            clock.install(conn)
        try:
            run_machine(db.dsn, seed=int(__import__("os").environ.get("SEED","7")), max_examples=22, steps=100)
        except AssertionError as e:
            print("CAUGHT", bug, str(e).splitlines()[:1])
        else:
            print("PASSED", bug)
