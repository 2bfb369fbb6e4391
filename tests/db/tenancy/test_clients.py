"""Applications and people on a secured schema: by the client, by their own connection, by the command line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from tests.cli.conftest import Cli, cli  # noqa: F401 (a fixture)
from tests.db.tenancy.town import OURS, THEIRS, Town
from tests.secured import Secured

from mainspring import AsyncClient, Caller, Client, NewJob, calling
from mainspring.client.sync import SyncClientSeam
from mainspring.errors import JobNotFound, NotPermitted
from mainspring.text.document import read_payload

Colour = Callable[..., Any]


def job(org: str | None = None, **fields: Any) -> NewJob:
    return NewJob(task="t", payload=read_payload("{}"), org_id=org, **fields)


@pytest.fixture(params=["sync", "async"])
def ask(request: pytest.FixtureRequest) -> Colour:
    """Do something with a client of either colour: `ask(dsn, lambda client: client.jobs(), **options)`."""
    if request.param == "sync":

        def sync(dsn: str, what: Callable[[Any], Any], **options: Any) -> Any:
            with Client(dsn, **options) as client:
                return what(client)

        return sync

    def aio(dsn: str, what: Callable[[Any], Any], **options: Any) -> Any:
        async def run() -> Any:
            async with AsyncClient(dsn, **options) as client:
                return await what(client)

        return asyncio.run(run())

    return aio


def test_each_statement_is_bound_to_its_organisation(secured: Secured, ask: Colour) -> None:
    api = secured.dsn("api")
    for org in ("acme", "globex", None):
        ask(api, lambda c, org=org: c.enqueue(job(org)), secured=True)
    assert {row[0] for row in secured.do("select org_id from mainspring.job")} == {"acme", "globex", "default"}

    def orgs(**options: Any) -> list[str]:
        org = options.pop("org", None)
        return [found.org_id for found in ask(api, lambda c: c.jobs(org=org), secured=True, **options)]

    assert orgs(org="acme") == ["acme"]
    assert orgs() == ["default"]  # of a team with one tenant, which never types an organisation
    assert orgs(caller=Caller(org_id="globex")) == ["globex"]
    with calling(Caller(org_id="acme")):
        assert orgs() == ["acme"]
    assert ask(api, lambda c: c.depth("q:default"), secured=True, caller=Caller(org_id="acme")) == 1
    assert ask(secured.dsn("api", "globex"), lambda c: c.depth("q:default"), secured=True) == 1


def test_one_batch_may_be_of_many_organisations_and_is_all_or_none(secured: Secured, ask: Colour) -> None:
    wanted = [job(org) for org in ("acme", "globex", "acme", None, "globex")]
    answers = ask(secured.dsn("api"), lambda c: c.enqueue_many(wanted), secured=True)
    found = dict(secured.do("select id, org_id from mainspring.job"))
    assert [found[answer.id] for answer in answers] == ["acme", "globex", "acme", "default", "globex"]

    again = [job("acme"), job("globex", id=answers[1].id)]  # its id is taken
    with pytest.raises(Exception, match="another job has this id"):
        ask(secured.dsn("api"), lambda c: c.enqueue_many(again), secured=True)
    assert secured.do("select count(*) from mainspring.job") == [(5,)]


def test_single_enqueues_that_come_together_may_be_of_many_organisations(secured: Secured) -> None:
    async def run() -> None:
        async with AsyncClient(secured.dsn("api"), secured=True) as client:
            await asyncio.gather(*(client.enqueue(job(org)) for org in ("acme", "globex") * 20))

    asyncio.run(run())
    assert sorted(secured.do("select org_id, count(*) from mainspring.job group by 1")) == [
        ("acme", 20),
        ("globex", 20),
    ]


def test_a_client_that_does_not_know_is_told_what_to_do(secured: Secured, ask: Colour) -> None:
    with pytest.raises(NotPermitted, match=r"secured schema a transaction names its organisation \(mainspring.org\)"):
        ask(secured.dsn("api"), lambda c: c.enqueue(job("acme")))
    assert ask(secured.dsn("api"), lambda c: c.jobs()) == []


@pytest.mark.rule("ENG-29.07")
def test_the_api_may_not_do_what_operators_do(town18: Town, ask: Colour) -> None:
    dead = town18.ours.jobs[2]
    for verb in (
        lambda c: c.replay(dead, org=OURS, reason="x"),
        lambda c: c.prioritize(town18.ours.jobs[-1], 0, org=OURS),
        lambda c: c.pause("q:default", reason="x"),
    ):
        with pytest.raises(NotPermitted):
            ask(town18.dsn("api"), verb, secured=True)


@pytest.mark.rule("ENG-19.08")
def test_an_operator_acts_in_its_organisation_and_in_its_own_name(town18: Town, ask: Colour) -> None:
    dead, theirs = town18.ours.jobs[3], town18.theirs.jobs[3]
    options: dict[str, Any] = {"secured": True, "caller": Caller(org_id=OURS, actor_type="user", actor_id="olga")}
    ask(town18.dsn("operator"), lambda c: c.replay(dead, reason="the supplier is back"), **options)
    with pytest.raises(JobNotFound):
        ask(town18.dsn("operator"), lambda c: c.replay(theirs, reason="x"), **options)
    ask(town18.dsn("operator"), lambda c: c.pause("q:critical", reason="fire"), **options)
    assert [
        q.paused_by for q in ask(town18.dsn("operator"), lambda c: c.queues(), **options) if q.name == "q:critical"
    ] == ["olga"]
    who = "select detail ->> 'by', detail ->> 'by_type' from mainspring.audit where event = %s order by id desc limit 1"
    assert [town18.do(who, event) for event in ("job.replayed", "queue.paused")] == [[("olga", "user")]] * 2


def test_through_the_caller_s_own_connection_their_setting_rules(secured: Secured) -> None:
    with Client(secured.dsn("api"), secured=True) as client, psycopg.connect(secured.dsn("api")) as conn:
        with pytest.raises(NotPermitted):
            client.enqueue(job("acme"), conn=conn)
        conn.rollback()
        conn.execute("select set_config('mainspring.org', 'acme', true)")
        made = client.enqueue(job("acme", key="k"), conn=conn)
        assert client.get(made.id, conn=conn).id == made.id
        assert client.cancel(key="k", org="acme", conn=conn) == "cancelled"
        conn.commit()
        with pytest.raises(JobNotFound):  # the setting was the transaction's
            client.get(made.id, conn=conn)
        conn.execute("select set_config('mainspring.org', 'acme', true)")
        with pytest.raises(NotPermitted):
            client.enqueue(job("globex"), conn=conn)


def test_nothing_stays_in_the_session(secured: Secured) -> None:
    with Client(secured.dsn("api"), secured=True, pool_size=1) as client:
        client.enqueue(job("acme"))
        assert isinstance(client.seam, SyncClientSeam)
        with client.seam.connection() as conn:
            assert conn.execute("select current_setting('mainspring.org', true)").fetchone() in [("",), (None,)]
            assert conn.execute("select count(*) from mainspring.job").fetchone() == (0,)


def test_a_secured_client_works_on_a_schema_that_is_not(database: Any, ask: Colour) -> None:
    ask(database.dsn, lambda c: c.enqueue_many([job("acme"), job("globex")]), secured=True)
    assert len(ask(database.dsn, lambda c: c.jobs(), secured=True)) == 2


def test_the_command_line_is_bound_too(town18: Town, cli: Cli) -> None:  # noqa: F811
    at = ("--dsn", town18.dsn("operator"))
    assert cli("job", "list", *at, "--json").json == []  # of the organisation `default`
    ours = {found["id"] for found in cli("job", "list", *at, "--org", OURS, "--json").json}
    assert ours > set(map(str, town18.ours.jobs))
    assert not ours & set(map(str, town18.theirs.jobs))
    bound = ("--dsn", town18.dsn("operator", OURS))
    assert {found["id"] for found in cli("job", "list", *bound, "--json").json} == ours
    theirs = str(town18.theirs.jobs[-1])
    answer = cli("job", "show", theirs, *bound)
    assert (answer.code, "there is no job" in answer.err) == (3, True)
    assert cli("job", "show", theirs, *at, "--org", THEIRS).code == 0
    enqueued = cli("job", "enqueue", "t", "{}", *at, "--org", OURS, "--json").json
    assert cli("job", "cancel", enqueued["id"], *bound).code == 0
    refused = cli("job", "cancel", enqueued["id"], "--dsn", town18.dsn("worker"), "--org", THEIRS)
    assert refused.code == 3
    answer = cli("queue", "pause", "q:default", "--dsn", town18.dsn("api"), "--reason", "x")
    assert (answer.code, "permission denied for function pause" in answer.err) == (4, True)


def test_an_operator_finds_and_repairs_from_the_command_line(town18: Town, cli: Cli) -> None:  # noqa: F811
    at = ("--dsn", town18.dsn("operator"), "--org", OURS)
    dead = str(town18.ours.jobs[1])
    for command in (
        ("job", "explain", dead),
        ("dead", "list"),
        ("dead", "show", dead),
        ("dead", "replay", dead, "--reason", "x", "--as", "olga"),
        ("audit", "list"),
        ("audit", "verify"),
    ):
        answer = cli(*command, *at)
        assert (answer.code, answer.err) == (0, ""), command
    assert "olga" in cli("audit", "list", *at).out
    assert cli("dead", "replay", "--all", "--yes", "--reason", "x", *at, "--json").json["moved"] == 1
    assert len(cli("dead", "list", "--dsn", town18.dsn("operator"), "--org", THEIRS, "--json").json) == 2
    assert cli("dead", "discard", str(town18.theirs.jobs[1]), "--reason", "x", *at).code == 3


def test_a_lost_answer_is_asked_for_in_the_job_s_organisation(secured: Secured) -> None:
    """After a lost connection the client looks whether its jobs are there: also where nothing else shows them."""
    from mainspring.db.jobs import enqueue_again
    from mainspring.db.wire.bound import bound_door
    from mainspring.db.wire.run import run
    from mainspring.db.wire.sql import Sql
    from mainspring.uuid7 import uuid7

    wanted = [job(org, id=uuid7()) for org in ("acme", "globex", "acme")]
    with secured.connect("api") as conn:
        door = bound_door(conn, lambda: None)
        first = run(door, enqueue_again(Sql(), wanted, by_org=True))
        assert run(door, enqueue_again(Sql(), wanted, by_org=True)) == first
    assert secured.do("select count(*) from mainspring.job") == [(3,)]
