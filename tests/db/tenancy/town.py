"""Two organisations in one secured database, and a probe that tries to reach one of them from everywhere else.

The probe is a superuser who takes the part of a login for each attempt, looks at the damage as itself, and rolls back.
What it tries is made from the catalogue, so that a new table, view or function is tried as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql
from tests.databases import Database
from tests.db.conftest import NOON
from tests.db.engine import ERROR, Engine
from tests.db.tenancy.calls import PLAIN, Org, argument, holder
from tests.secured import ROLES, Secured

from mainspring.db.schema.rights import SHARED
from mainspring.job import Claim
from mainspring.uuid7 import uuid7

OURS, THEIRS, SYSTEM = "acme", "globex", "SYSTEM"
SECRETS = {OURS: "blue parrot", THEIRS: "red herring", SYSTEM: "grey goose"}  # in whatever holds text
STATES = {"scheduled", "ready", "retrying", "running", "succeeded", "failed", "dead", "cancelled"}
#: An id of a job is the whole database's: who brings one that is taken learns that, and nothing else (docs/adr/0012).
MAY_COLLIDE = {"enqueue", "enqueue_many", "fix_forward", "write_job"}
#: A view of names and instants: the rows are nobody's, what they say comes of jobs that the reader may see.
NOBODYS = {"queues"}
OTHERWISE = {"uuid7", "wake", "digest", "seal_hash"}  # answers otherwise at other times, or for whatever it is given
#: Queues and their limits are everybody's: what operators do to them is seen by all of them.
COMMON = {
    "pause", "resume", "record_queue", "set_limit", "reset_limit", "drop_limit", "set_fair", "unset_fair", "set_depth",
    "declare_limits", "declare_queues", "put_limit", "put_fair", "record_limit", "reconsider", "count_in",
    "try_sign_in", "take_try",
}  # fmt: skip
#: It writes to the trail of the organisation that it is told, and binds itself to it; verbs ask before whose that is.
BINDS_ITSELF = {"record_access"}
HARMLESS = {f"{table} of SYSTEM" for table in ("queue", "audit", "limit", "bucket", "fair", "access_try")}

#: Who tries: a role, and an organisation to which its transaction is bound.
Part = tuple[str, str | None]
PARTS: list[Part] = [(role, org) for role in ROLES for org in (None, OURS)]
BOUND = [part for part in PARTS if part != ("worker", None)]  # whose claims span organisations

DENIED = "42501 permission denied for function"
Parameters = list[tuple[str, str]]


def settle_in(engine: Engine, org: str) -> Org:
    """Rows in every table: jobs in every state, keys, attempts, steps, decisions and events."""
    here, secret = Org(org), SECRETS[org]
    fields: dict[str, Any] = {"org_id": org, "payload": {"note": secret}, "actor_id": secret, "task": here.task}

    def started(**more: Any) -> Claim:
        engine.enqueue(**fields, **more)
        (claim,) = engine.claim(here.worker, tasks=[here.task])
        return claim

    succeeded = started(key=here.key)
    engine.complete_with(here.worker, {succeeded.epoch: secret})
    ended = [succeeded]
    for verb in ("reject", "bury", "bury", "stop", "fail"):
        ended.append(started())
        move = {"epoch": ended[-1].epoch, "verb": verb, "delay": "1 day", "error": ERROR | {"message": secret}}
        engine.settle(here.worker, move)
    engine.rows("select mainspring.discard(%s, null, 'user', %s, %s)", ended[2].id, secret, secret)
    running = started(key=f"{here.key} 2")
    about = here.worker, running.epoch
    engine.rows("select mainspring.remember(%s, %s, 'step', %s)", *about, json.dumps(secret))
    engine.rows("select mainspring.save_checkpoint(%s, %s, %s)", *about, json.dumps(secret))
    report = [{"epoch": running.epoch, "serial": 1, "done": 1, "note": secret}]
    engine.rows("select mainspring.report(%s, %s)", here.worker, json.dumps(report))
    engine.rows("select mainspring.add_key(%s, %s, %s)", org, uuid7(), secret.encode())
    waiting = [engine.enqueue(**fields, **more) for more in ({}, {"delay": "1 day"}, {"key": f"{here.key} 2"})]
    here.jobs = [*(claim.id for claim in ended), running.id, *(job.id for job in waiting)]
    here.epoch = running.epoch
    engine.rows("select mainspring.receive(%s, 'stripe', %s, 'paid', %s, null)", org, secret, secret)
    engine.rows("select mainspring.open_alert(%s, %s, '', %s)", org, PLAIN["p_name"], secret)
    asked = org, PLAIN["text"], here.key
    engine.rows("select mainspring.begin_request(%s, %s, %s, 'asked')", *asked)
    engine.rows("select mainspring.end_request(%s, %s, %s, 200::smallint, null, %s)", *asked, secret)
    plan(engine, org, secret)
    gather(engine, here, secret)
    shut(engine, here)
    announce(engine, here, secret)
    notify(engine, here, secret)
    return here


def gather(engine: Engine, here: Org, secret: str) -> None:
    """A batch, whose id is that of a job so that calls mean it, a job that waits for another, a leftover."""
    fields = {"org_id": here.name, "task": "t", "payload": {"note": secret}, "delay": "1 day"}
    last, member, parent, child = ({"id": str(uuid7()), **fields} for _ in range(4))
    about = {"id": str(here.jobs[0]), "org_id": here.name, "name": secret, "on_finish": last}
    engine.rows("select from mainspring.enqueue_batch(%s, %s)", json.dumps(about), json.dumps([member]))
    links = [{"child": 1, "parents": [0]}]
    engine.rows("select from mainspring.enqueue_flow(%s, %s)", json.dumps([parent, child]), json.dumps(links))
    leftover = "insert into mainspring.leftover (org_id, kind, what) values (%s, 'job', %s) returning id"
    engine.rows(leftover, here.name, here.jobs[0])


def shut(engine: Engine, here: Org) -> None:
    """A breaker, which the calls name, that is open for a key of the organisation."""
    name = PLAIN["p_name"]
    rule = {"name": name, "failures": 1, "within": "30 s", "pause": "60 s", "longest": "60 s", "probes": 1}
    engine.rows("select mainspring.declare_breakers(%s)", json.dumps([rule]))
    call = {"org_id": here.name, "name": name, "key": here.key, "ages": [0]}
    engine.rows("select mainspring.report_calls(%s)", json.dumps([call]))


def announce(engine: Engine, here: Org, secret: str) -> None:
    """A webhook's endpoint and a delivery, whose ids are those of jobs so that calls mean them."""
    add = "select mainspring.add_endpoint(%s, %s, 'https://example.com/', '{}', %s, 'X-Test', null, %s, 'user', %s)"
    engine.rows(add, here.name, here.jobs[0], secret, secret, secret)
    delivery = "insert into mainspring.webhook_delivery (org_id, id, endpoint, event_id, event_type, aggregate_type,"
    delivery += " aggregate_id, body, job_id, created_at) values (%s, %s, %s, %s, 'a.b', 'A', '1', %s, %s, %s)"
    engine.rows(f"{delivery} returning 1", here.name, here.jobs[1], here.jobs[0], uuid7(), secret, here.jobs[1], NOON)


def notify(engine: Engine, here: Org, secret: str) -> None:
    """A recipient, whom the calls name, and notifications to them, whose ids are those of jobs."""
    engine.rows("select mainspring.save_recipient(%s, %s, %s)", here.name, here.key, json.dumps({"email": secret}))
    note = "insert into mainspring.notification (org_id, id, recipient_id, channel, template, class, necessary, data,"
    note += " payload_hash, bucket, due_at, job_id, created_at, status, sent_at) values (%s, %s, %s, 'in_app', %s,"
    note += " 'normal', false, %s, %s, %s, %s, %s, %s, %s, %s) returning 1"
    data, key = json.dumps({"note": secret}), here.key
    for n, (status, at) in enumerate((("sent", NOON), ("pending", None))):
        about = (key, secret, data, str(n), NOON, NOON, here.jobs[n], NOON, status, at)
        engine.rows(note, here.name, here.jobs[n], *about)
    shown = "insert into mainspring.inbox (org_id, id, recipient_id, title, text, created_at)"
    shown += " values (%s, %s, %s, %s, %s, %s) returning 1"
    engine.rows(shown, here.name, here.jobs[0], key, secret, secret, NOON)


def plan(engine: Engine, org: str, secret: str) -> None:
    """A schedule, which the calls name, its fire and its fan-out."""
    name, job, fire = PLAIN["p_name"], {"id": str(uuid7()), "org_id": org, "task": "t", "payload": {}}, uuid7()
    create = "select mainspring.create_schedule(%s, 't', '0 10 * * *', payload => %s, org_id => %s, reason => %s)"
    engine.rows(create, name, json.dumps({"note": secret}), org, secret)
    run = "select mainspring.run_schedule(%s, %s, '', %s, %s, %s, 'user', %s, %s)"
    engine.rows(run, org, name, fire, json.dumps(job), secret, secret, secret)
    fan_out = "insert into mainspring.fan_out (org_id, fire_id, schedule, zone, instant, begun_at, look_at, problem)"
    engine.rows(
        f"{fan_out} values (%s, %s, %s, '', %s, %s, %s, %s) returning 1", org, fire, name, NOON, NOON, NOON, secret
    )


class Town(Secured):
    """A secured database with two organisations and the engine's own rows."""

    def __init__(self, database: Database) -> None:
        with database.connect() as conn:
            engine = Engine(conn)
            engine.clock.set(NOON)  # answers that name a time are comparable
            self.ours, self.theirs = settle_in(engine, OURS), settle_in(engine, THEIRS)
            engine.enqueue("housekeeping", org_id=SYSTEM, payload={"note": SECRETS[SYSTEM]})
            engine.pause("q:exports", reason=SECRETS[SYSTEM])
            user = "select mainspring.create_user(%s, 'viewer', %s, true, null, null, 'user', %s, null)"
            engine.rows(user, PLAIN["p_name"], THEIRS, SECRETS[THEIRS])
            for org in (OURS, THEIRS, SYSTEM):
                engine.rows("select mainspring.seal(%s, 1000)", org)
            states = engine.rows("select distinct state from mainspring.jobs where org_id = %s", OURS)
            assert {row[0] for row in states} == STATES
        super().__init__(database)

    @contextmanager
    def acting(self, role: str, org: str | None) -> Iterator[None]:
        """Take the part of a login, in a transaction of an organisation; the transaction is rolled back."""
        with self.conn.transaction(force_rollback=True):
            self.do("select set_config('mainspring.org', %s, true)", org or "")
            self.do(f'set local session authorization "{self.logins[role]}"')
            yield

    def attempt(self, text: str, *params: Any, undone: bool = False) -> list[Any] | str:
        """What a statement answers: rows, how many rows it changed, or how it was refused."""
        try:
            with self.conn.transaction(force_rollback=undone):
                cursor = self.conn.execute(text.encode(), params or None)
                return cursor.fetchall() if cursor.description else [(cursor.rowcount,)]
        except psycopg.Error as error:
            return f"{error.sqlstate} {error.diag.message_primary}"

    # -- the catalogue

    def relations(self, kinds: str) -> list[str]:
        """Tables (rp) and views (v)."""
        query = "select relname, relkind::text from pg_class where relnamespace = 'mainspring'::regnamespace"
        return sorted(name for name, kind in self.do(query) if kind in kinds)

    def functions(self) -> list[tuple[str, Parameters]]:
        """Every function that can be called: its name, and its parameters with their types."""
        query = """
            select p.proname, coalesce(p.proargnames, '{}'), coalesce(p.proargmodes::text[], '{}'),
                   array(select format_type(t, null)
                         from unnest(coalesce(p.proallargtypes, p.proargtypes)) with ordinality a(t, n) order by n)
            from pg_proc p where p.pronamespace = 'mainspring'::regnamespace and p.prorettype <> 'trigger'::regtype
            order by 1
        """
        found = []
        for name, names, modes, types in self.do(query):
            every = zip(names, modes or ["i"] * len(types), types, strict=True)
            found.append((name, [(parameter, kind) for parameter, mode, kind in every if mode in "ib"]))
        return found

    # -- the probe

    def leaks(self, callers: Collection[Part]) -> Iterator[str]:
        """Everything that somebody could read or write of an organisation that is not theirs; these call functions."""
        before = self._others()
        for role, org in PARTS:
            yield from self._reads(role, org)
        for role, org in BOUND:
            yield from self._writes(role, org, before)
        for role, org in callers:
            yield from self._calls(role, org, before)

    def _may_see(self, role: str, org: str | None, table: str) -> set[str]:
        """The organisations whose rows a role may see."""
        if role == "worker" and org is None:
            return {OURS, THEIRS, SYSTEM}
        return ({org} if org else set()) | ({SYSTEM} if role in SHARED.get(table, ()) else set())

    def _others(self) -> dict[str, Any]:
        """What belongs to anybody but us: asked as a superuser, by table and organisation, in one statement."""
        one = """
            select %s, org_id, md5(string_agg(x::text, '' order by x::text)) from mainspring.{} x
            where org_id <> 'acme' group by 2
        """
        tables = self.relations("rp")
        query = sql.SQL(" union all ").join(sql.SQL(one).format(sql.Identifier(table)) for table in tables)
        return {f"{table} of {org}": digest for table, org, digest in self.conn.execute(query, tables)}

    def _damage(self, before: dict[str, Any]) -> set[str]:
        """What is no longer as it was; a transaction without a number has written nothing, and is believed."""
        ((number,),) = self.do("select pg_current_xact_id_if_assigned()::text")
        return set() if number is None else differences(before, self._others())

    def _reads(self, role: str, org: str | None) -> Iterator[str]:
        for relation in self.relations("rpv"):
            if relation in NOBODYS:
                continue
            allowed = self._may_see(role, org, "audit" if relation == "trail" else relation)
            with self.acting(role, org):
                rows = self.attempt(f"select distinct org_id from mainspring.{relation}")
            if isinstance(rows, str):
                continue
            seen = {row[0] for row in rows}
            if seen - allowed:
                yield f"{role} of {org} reads {relation} of {sorted(seen - allowed)}"
            if org and org not in seen and tenants_have(relation):
                yield f"{role} of {org} does not see its own {relation}"

    def _writes(self, role: str, org: str | None, before: dict[str, Any]) -> Iterator[str]:
        for table in self.relations("rp"):
            ((row,),) = self.do(f"select to_jsonb(x) from mainspring.{table} x limit 1") or [({},)]
            fresh = [name for name in ("id", "job_id", "key", "name") if isinstance(row.get(name), str)]
            theirs = row | {name: str(uuid7()) for name in fresh} | {"org_id": THEIRS}
            record = f"select * from jsonb_populate_record(null::mainspring.{table}, %s)"
            with self.acting(role, org):
                said = [
                    self.attempt(f"update mainspring.{table} set org_id = org_id"),
                    self.attempt(f"update mainspring.{table} set org_id = %s", THEIRS),
                    self.attempt(
                        f"insert into mainspring.{table} overriding system value {record}", json.dumps(theirs)
                    ),
                    self.attempt("select set_config('mainspring.verb', 'prune', true)"),
                    self.attempt(f"delete from mainspring.{table} where org_id = %s", THEIRS),
                    # To own a table is the right to empty or drop it: policies do not speak of that.
                    role == "owner" or self.attempt(f"truncate mainspring.{table}"),
                ]
                self.do("reset session authorization")
                harmless = {f"{table} of {known}" for known in self._may_see(role, org, table)}
                if damage := self._damage(before) - harmless:
                    yield f"{role} of {org} writes to {sorted(damage)}: {said}"

    def _calls(self, role: str, org: str | None, before: dict[str, Any]) -> Iterator[str]:
        nobody, somebody = self.theirs.unknown(), self.theirs.unknown()
        for name, parameters in self.functions():
            with self.acting(role, org):
                if self.call(name, parameters, somebody, 0, True).startswith(DENIED):
                    continue
                for n, scoped in self.variants(parameters):
                    # It must answer as about things that do not exist: first these, and nothing comes of it.
                    nowhere = self.call(name, parameters, nobody, n, scoped, undone=True)
                    there = self.call(name, parameters, self.theirs, n, scoped)
                    if SECRETS[THEIRS] in there:
                        yield f"{role} of {org} is told a secret by {name}: {there}"
                    elif there != nowhere and name not in MAY_COLLIDE | OTHERWISE:
                        yield f"{role} of {org} learns by {name} what exists: {there}, else {nowhere}"
                self.do("reset session authorization")
                harmless = HARMLESS if name in COMMON else set()
                if name in BINDS_ITSELF:
                    continue
                if damage := self._damage(before) - harmless:
                    yield f"{role} of {org} changes {sorted(damage)} by {name}"

    def variants(self, parameters: Parameters) -> list[tuple[int, bool]]:
        """Which job is meant, and whether its organisation is named; once where that makes no difference."""
        jobs = any(kind == "uuid" or kind.startswith("mainspring.") for _, kind in parameters)
        orgs = any(name == "p_org" for name, _ in parameters)
        return [(n, scoped) for n in range(len(self.ours.jobs) if jobs else 1) for scoped in (True, False)[: 1 + orgs]]

    def call(self, name: str, parameters: Parameters, org: Org, n: int, scoped: bool, *, undone: bool = False) -> str:
        """What a function answers that is called with what is an organisation's, with placeholders for names."""
        values = [argument(parameter, kind, org, n, scoped) for parameter, kind in parameters]
        holders = ", ".join(holder(kind) for _, kind in parameters)
        call = f"select x::text from mainspring.{name}({holders}) x"
        answer = org.masked(str(self.attempt(call, *values, undone=undone)))
        return re.sub(r"\b\d\d:\d\d:\d\d\.\d+(?=[)\"])", "<time>", answer)  # how long a call took tells nothing


def tenants_have(relation: str) -> bool:
    """Whether organisations have rows in it; the others are the engine's own."""
    return relation not in SHARED.keys() | NOBODYS or relation == "audit"


def differences(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
