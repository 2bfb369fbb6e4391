"""`mainspring audit`: what people type, what they see, and how the command ends."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.cli.conftest import Cli, cli
from tests.client.audit.conftest import Forge, note
from tests.db.engine import Engine

from mainspring import Client

__all__ = ["cli"]  # the fixture


def test_everything_that_happened_to_a_job_is_listed_in_order(cli: Cli, engine: Engine) -> None:
    job = engine.started(actor_type="user", actor_id="ada").id
    engine.cancel(job, reason="enough")
    events = cli("audit", "list", "--job", job, "--json").json
    assert [event["event"] for event in events] == ["job.enqueued", "job.started", "job.cancel_requested"]
    shown = cli("audit", "list", "--job", job).out
    for part in ("EVENT", "job.cancel_requested", "enough", str(job)):
        assert part in shown


def test_stored_events_are_listed_newest_first_by_filter_and_page(cli: Cli, engine: Engine) -> None:
    first, second = note(engine, n=1), note(engine, n=2)
    engine.clock.advance(hours=1)
    other = note(engine, "other", "mail.sent")
    engine.pause()
    moment = engine.clock.now().isoformat()

    def ids(*arguments: object) -> list[int]:
        return [event["id"] for event in cli("audit", "list", *arguments, "--json").json]

    paid = "select mainspring.record_business('booking.paid', '{}', 'acme', p_subject => 'booking 17')"
    ((about,),) = engine.rows(paid)
    assert ids("--subject", "booking 17") == ids("--subject", "booking 17", "--org", "acme") == [about]
    assert "booking 17" in cli("audit", "list", "--org", "acme").out

    paused = ids("--event", "queue.paused")
    assert ids() == [about, *paused, other, second, first]
    assert ids("--org", "acme") == [about, second, first]
    assert ids("--org", "acme", "--limit", 1) == [about]
    assert ids("--before", second) == [first]
    assert ids("--actor", "ada") == paused
    assert ids("--since", moment) == [about, *paused, other]
    assert ids("--until", moment) == [second, first]
    assert "since: is not a time with a time zone" in cli("audit", "list", "--since", "2026-01-01T00:00:00").err
    assert "job: is given together" in cli("audit", "list", "--job", "0" * 32, "--actor", "ada").err
    assert cli("audit", "list", "--org", "nobody").out == "There are no such events.\n"


def test_seals_are_made_shown_and_checked(cli: Cli, engine: Engine) -> None:
    assert cli("audit", "head").out == "Nothing is sealed yet.\n"
    for n in range(3):
        note(engine, n=n)
    assert cli("audit", "seal").out == "3 events sealed\n"
    note(engine, "other")
    (head,) = cli("audit", "head", "--json").json
    assert head["hash"] in cli("audit", "head").out
    answer = cli("audit", "verify")
    assert (answer.code, "Nothing was changed, removed or put in." in answer.out) == (0, True)
    found = cli("audit", "verify", "--head", head["hash"], "--org", "acme", "--json").json
    assert (found["ok"], found["organisations"][0]["rows"], found["organisations"][0]["waiting"]) == (True, 3, 0)


@pytest.mark.parametrize("json", [[], ["--json"]])
def test_check_that_finds_something_names_it_and_fails(
    cli: Cli, engine: Engine, client: Client, forge: Forge, json: list[str]
) -> None:
    ids = [note(engine, n=n) for n in range(3)]
    client.audit.seal()
    forge("update mainspring.audit set at = at + %s where id = %s", timedelta(days=1), ids[2])
    forge("delete from mainspring.audit where id = %s", ids[0])
    answer = cli("audit", "verify", *json)
    assert answer.code == 1
    if not json:
        assert f"acme: audit row {ids[0]} of seal 1 is missing\n" in answer.out
        assert f"acme: audit row {ids[2]} of seal 1 is changed\n2 findings\n" in answer.out
    kept = cli("audit", "verify", "--head", "f" * 64)
    assert (kept.code, "no seal has this hash" in kept.out) == (1, True)
