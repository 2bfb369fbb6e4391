"""Jobs that are encrypted from their enqueue to their end, and what becomes of them without their keys."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from uuid import UUID

import pytest
from tests.databases import Database
from tests.db.engine import Engine
from tests.proofs.chaos.races import Late
from tests.worker import cpu
from tests.worker.stage import SETTINGS, Stage

import mainspring as ms
from mainspring import Cipher, Context, Registry, SyncContext, fixed
from mainspring.db import cipher as keys
from mainspring.db.cipher import Keyring
from mainspring.db.wire.connect import pool
from mainspring.db.wire.sql import Sql
from mainspring.dedupe import by_payload, keep, replacing, reset_failed
from mainspring.errors import KeyReused
from mainspring.worker import Worker

pytestmark = pytest.mark.anyio

CANARY = "canary-71f3"
AT_ONCE = fixed(0, attempts=2)
EVERYTHING = """
select coalesce(string_agg(x, ' '), '') from (
  select to_jsonb(j)::text from mainspring.job j union all select to_jsonb(f)::text from mainspring.finished f
  union all select to_jsonb(a)::text from mainspring.attempt a union all select to_jsonb(s)::text from mainspring.step s
  union all select to_jsonb(c)::text from mainspring.checkpoint c
  union all select to_jsonb(t)::text from mainspring.audit t
  union all select to_jsonb(i)::text from mainspring.idempotency i
) as rows (x)
"""


async def drain(stage: Stage, tasks: Registry, cipher: Cipher | None) -> Worker:
    worker = Worker(stage.dsn, tasks, config=ms.WorkerConfig(**SETTINGS), cipher=cipher)
    async with asyncio.timeout(30):
        await worker.drain()
    return worker


async def test_handler_and_client_see_plain_values_and_the_database_none(
    stage: Stage, tasks: Registry, cipher: Cipher, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Any] = []

    @tasks.task(retry=AT_ONCE)
    async def child(ctx: Context, *, secret_thing: str) -> None:
        seen.append(secret_thing)

    @tasks.task(retry=AT_ONCE)
    async def work(ctx: Context, *, name: str) -> dict[str, str]:
        seen.append((name, ctx.job.payload))
        await ctx.step("greet", lambda: f"step {name}")
        await ctx.checkpoint([name])
        if ctx.attempt == 1:
            raise RuntimeError(f"about {name}")
        seen.append(await ctx.resume_from([""]))
        await ctx.enqueue(child.job(secret_thing=name))
        return {"result": name}

    job = await stage.enqueue(work.job(name=CANARY))
    assert CANARY not in stage.one(EVERYTHING)
    await drain(stage, tasks, cipher)

    assert seen == [
        (CANARY, f'{{"name":"{CANARY}"}}'),
        (CANARY, f'{{"name":"{CANARY}"}}'),
        [CANARY],
        CANARY,
    ]
    found = await stage.job(job)
    assert (found.payload, found.result) == ({"name": CANARY}, {"result": CANARY})
    assert await stage.result(job) == {"result": CANARY}
    (attempt, _) = await stage.client.attempts(job)
    assert attempt.error is not None
    assert attempt.error["message"] == f"RuntimeError: about {CANARY}"
    assert "stack" in attempt.error
    assert [step.result for step in await stage.client.steps(job)] == [f"step {CANARY}"]
    assert {j.task: j.payload for j in await stage.client.jobs()} == {
        "work": {"name": CANARY},
        "child": {"secret_thing": CANARY},
    }
    assert CANARY not in stage.one(EVERYTHING)
    assert CANARY not in caplog.text


async def test_a_plain_handler_and_a_transaction_work_the_same(stage: Stage, tasks: Registry, cipher: Cipher) -> None:
    @tasks.task
    def plain(ctx: SyncContext, *, name: str) -> None:
        ctx.step("s", lambda: name)
        with ctx.complete():
            ctx.result = name

    @tasks.task
    async def in_transaction(ctx: Context, *, name: str) -> None:
        async with ctx.complete():
            ctx.result = name

    jobs = [await stage.enqueue(task.job(name=CANARY)) for task in (plain, in_transaction)]
    await drain(stage, tasks, cipher)

    assert [await stage.result(job) for job in jobs] == [CANARY, CANARY]
    assert CANARY not in stage.one(EVERYTHING)


async def test_a_cpu_bound_handler_gets_its_plain_payload(stage: Stage, cipher: Cipher) -> None:
    job = await stage.enqueue(cpu.double.job(n=21))
    await drain(stage, cpu.tasks, cipher)

    assert await stage.result(job) == 42
    assert stage.rows("select payload ? '$mainspring', result ? '$mainspring' from mainspring.jobs") == [(True, True)]


async def test_a_task_may_stay_readable(stage: Stage, tasks: Registry, cipher: Cipher) -> None:
    @tasks.task(encrypt=False)
    async def work(*, name: str) -> str:
        return name

    job = await stage.enqueue(work.job(name="plain"))
    await drain(stage, tasks, cipher)

    assert stage.rows("select payload, result from mainspring.jobs") == [({"name": "plain"}, "plain")]
    assert stage.one("select count(*) from mainspring.cipher_key") == 0
    assert await stage.result(job) == "plain"


async def test_jobs_from_before_encryption_still_run_where_that_is_said_and_end_encrypted(
    stage: Stage, tasks: Registry
) -> None:
    cipher = Cipher(b"m" * 32, accept_plain=True)

    @tasks.task
    async def work(*, name: str) -> str:
        return name

    async with ms.AsyncClient(stage.dsn) as plain:
        job = (await plain.enqueue(work.job(name=CANARY))).id
    await drain(stage, tasks, cipher)

    assert await stage.result(job) == CANARY
    assert CANARY not in stage.one("select result::text from mainspring.finished")


async def test_a_plain_payload_in_place_of_a_ciphertext_is_refused_and_fails_alone(
    stage: Stage, tasks: Registry, cipher: Cipher
) -> None:
    seen: list[str] = []

    @tasks.task
    async def pay(*, to: str) -> None:
        seen.append(to)

    changed, fine = await stage.enqueue(pay.job(to="Ada")), await stage.enqueue(pay.job(to="Bob"))
    with stage.conn.transaction():
        stage.rows("select set_config('mainspring.verb', 'replace', true)")
        stage.rows("""update mainspring.job set payload = '{"to": "Eve"}' where id = %s""", changed)
    stage.rows("""select mainspring.enqueue('pay', '{"to": "Eve"}')""")
    await drain(stage, tasks, cipher)

    assert seen == ["Bob"]
    assert await stage.state(fine) == "succeeded"
    failed = stage.rows("select error ->> 'code', error ->> 'message' from mainspring.finished where state = 'failed'")
    assert {code for code, _ in failed} == {"PAYLOAD_UNREADABLE"}
    assert len(failed) == 2
    assert "is not encrypted, and what jobs of this task carry has to be" in failed[0][1]


async def test_a_plain_step_or_checkpoint_in_place_of_a_ciphertext_is_refused(
    stage: Stage, tasks: Registry, cipher: Cipher
) -> None:
    seen: list[object] = []

    @tasks.task(retry=AT_ONCE)
    async def step(ctx: Context) -> None:
        seen.append(await ctx.step("one", lambda: "ours"))
        if ctx.attempt == 1:
            stage.rows("""update mainspring.step set result = '"theirs"'""")
            raise RuntimeError

    @tasks.task(retry=AT_ONCE)
    async def resume(ctx: Context) -> None:
        seen.append(await ctx.resume_from("ours"))
        if ctx.attempt == 1:
            await ctx.checkpoint("ours")
            stage.rows("""update mainspring.checkpoint set value = '"theirs"'""")
            raise RuntimeError

    for task in (step, resume):
        job = await stage.enqueue(task.job())
        await drain(stage, tasks, cipher)
        assert (await stage.job(job)).error is not None, task.name
    assert set(seen) == {"ours"}
    codes = "select distinct error ->> 'code' from mainspring.finished"
    assert stage.rows(codes) == [("PAYLOAD_UNREADABLE",)]


# -- keys and their modes ---------------------------------------------------------------------------------------------


async def test_equal_payloads_under_one_key_are_one_job_and_others_are_refused(stage: Stage, tasks: Registry) -> None:
    @tasks.task(dedupe=keep("{n}"))
    async def work(*, n: int, name: str) -> None: ...

    first = await stage.client.enqueue(work.job(n=1, name=CANARY))
    again = await stage.client.enqueue(work.job(n=1, name=CANARY))
    await stage.client.rotate("default", reason="yearly")
    after_rotation = await stage.client.enqueue(work.job(n=1, name=CANARY))

    assert (again.id, again.answer, after_rotation.answer) == (first.id, "existing", "existing")
    with pytest.raises(KeyReused):
        await stage.client.enqueue(work.job(n=1, name="another"))


@pytest.mark.parametrize("dedupe", [reset_failed("{n}"), replacing("{n}")], ids=["reset", "replaced"])
async def test_a_payload_that_is_handed_to_an_older_job_can_be_read_there(
    stage: Stage, tasks: Registry, cipher: Cipher, dedupe: Any
) -> None:
    seen: list[str] = []

    @tasks.task(dedupe=dedupe, retry=fixed(0, attempts=1))
    async def work(*, n: int, name: str) -> None:
        seen.append(name)
        if name == "bad":
            raise RuntimeError("bad")

    job = await stage.enqueue(work.job(n=1, name="bad"))
    if dedupe.mode == "reset_failed":
        await drain(stage, tasks, cipher)
    again = await stage.client.enqueue(work.job(n=1, name="good"))
    await drain(stage, tasks, cipher)

    assert again.id == job
    assert seen[-1] == "good"
    assert (await stage.job(job)).payload == {"n": 1, "name": "good"}


async def test_a_key_made_from_the_payload_does_not_give_it_away(stage: Stage, tasks: Registry) -> None:
    @tasks.task(dedupe=by_payload())
    async def work(*, pin: int) -> None: ...

    first = await stage.client.enqueue(work.job(pin=1234))
    again = await stage.client.enqueue(work.job(pin=1234))
    key = stage.one("select key from mainspring.job")

    assert (again.id, again.answer) == (first.id, "existing")
    async with ms.AsyncClient(stage.dsn) as plain:
        await plain.enqueue(work.job(pin=1234))
    assert key not in {row[0] for row in stage.rows("select key from mainspring.job where id <> %s", first.id)}


# -- without the key --------------------------------------------------------------------------------------------------


async def test_erasing_an_organisation_ends_its_jobs_alone_and_says_so(
    stage: Stage, tasks: Registry, cipher: Cipher
) -> None:
    seen: list[str] = []

    @tasks.task
    async def work(*, name: str) -> None:
        seen.append(name)

    gone = await stage.enqueue(work.job(name=CANARY).for_org("acme"))
    kept = await stage.enqueue(work.job(name="other").for_org("other"))
    count = await stage.client.erase("acme", reason="asked to be forgotten")
    await drain(stage, tasks, cipher)

    assert (count, seen) == (1, ["other"])
    assert await stage.state(kept) == "succeeded"
    found = await stage.job(gone)
    assert found.error is not None
    assert (found.state, found.error["code"], found.payload) == ("failed", "PAYLOAD_ERASED", {"$mainspring": "erased"})
    assert found.error["message"] == "payload: its key no longer exists: organisation acme was erased"
    trail = "select actor_id, detail from mainspring.audit where org_id = 'acme' and event = 'cipher.erased'"
    assert stage.rows(trail) == [("SYSTEM", {"reason": "asked to be forgotten", "keys": 1})]
    assert stage.one("select count(*) from mainspring.cipher_key where org_id = 'acme'") == 0, "reading makes no key"


async def test_erasing_takes_addresses_messages_and_what_providers_sent(stage: Stage) -> None:
    """They are not encrypted: a cipher covers what jobs carry."""
    for org in ("acme", "other"):
        stage.rows("select mainspring.save_recipient(%s, 'r1', %s)", org, f'{{"email": "{CANARY}@example.com"}}')
        stage.rows("select mainspring.receive(%s, 'stripe', 'e1', 'paid', %s, null)", org, CANARY)
        stage.rows(
            "insert into mainspring.notification (org_id, id, recipient_id, channel, template, class, necessary, data,"
            " payload_hash, bucket, due_at, job_id, created_at, status, reserved_at, title, text, html)"
            " values (%s, gen_random_uuid(), 'r1', 'email', 't', 'normal', false, %s, md5('x'), now(), now(),"
            " gen_random_uuid(), now(), 'sending', now(), %s, %s, %s)",
            org, f'{{"name": "{CANARY}"}}', CANARY, CANARY, CANARY,
        )  # fmt: skip
        stage.rows(
            "insert into mainspring.inbox (org_id, id, recipient_id, title, text, created_at)"
            " values (%s, gen_random_uuid(), 'r1', %s, %s, now())", org, CANARY, CANARY,
        )  # fmt: skip
    await stage.client.erase("acme", reason="asked to be forgotten")

    left = """
        select distinct x.org_id from (
          select org_id, to_jsonb(r)::text from mainspring.recipient r
          union all select org_id, to_jsonb(n)::text from mainspring.notification n
          union all select org_id, to_jsonb(i)::text from mainspring.inbox i
          union all select org_id, to_jsonb(b)::text from mainspring.inbound b) x(org_id, row)
        where x.row like %s or x.row like '%%' || md5('x') || '%%'
    """
    assert stage.rows(left, f"%{CANARY}%") == [("other",)]
    again = "select mainspring.receive('acme', 'stripe', 'e1', 'paid', '{}', null)"
    assert stage.rows(again) == [(False,)], "an event that came stays known"
    told = "select detail - 'reason' from mainspring.audit where event = 'cipher.erased'"
    assert stage.rows(told) == [({"keys": 0, "recipients": 1, "messages": 1, "inbound": 1},)]


async def test_an_erased_key_is_used_by_nobody_once_its_life_in_memory_is_over(
    stage: Stage, tasks: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    @tasks.task
    async def work(*, name: str) -> None: ...

    monkeypatch.setattr(keys, "KEYS_LIFE_S", 0.0)
    job = await stage.enqueue(work.job(name=CANARY))
    assert (await stage.job(job)).payload == {"name": CANARY}
    stage.rows("delete from mainspring.cipher_key")  # by another process

    assert (await stage.job(job)).payload == {"$mainspring": "erased"}
    assert keys.KEYS_LIFE_S < 60


async def test_a_rotated_key_stays_readable_and_new_writes_use_the_new_one(
    stage: Stage, tasks: Registry, cipher: Cipher
) -> None:
    seen: list[str] = []

    @tasks.task
    async def work(*, name: str) -> None:
        seen.append(name)

    used = "select distinct payload #>> '{$mainspring,key}' from mainspring.job"
    await stage.enqueue(work.job(name="before"))
    (before,) = stage.rows(used)
    await stage.client.rotate("default", reason="yearly")
    await stage.enqueue(work.job(name="after"))
    await drain(stage, tasks, cipher)

    assert sorted(seen) == ["after", "before"]
    assert len(stage.rows(used)) == 2
    assert before in stage.rows("select id::text from mainspring.cipher_key where retired_at is not null")
    assert stage.rows("select detail ->> 'reason' from mainspring.audit where event = 'cipher.rotated'") == [
        ("yearly",)
    ]


@pytest.mark.parametrize("swapped", ["rows", "organisations"])
async def test_swapped_payloads_are_refused_and_fail_alone(
    stage: Stage, tasks: Registry, cipher: Cipher, swapped: str
) -> None:
    seen: list[str] = []

    @tasks.task
    async def work(*, name: str) -> None:
        seen.append(name)

    orgs = ("acme", "acme" if swapped == "rows" else "other")
    jobs = [await stage.enqueue(work.job(name=name).for_org(org)) for name, org in zip("ab", orgs, strict=True)]
    fine = await stage.enqueue(work.job(name="c"))
    with stage.conn.transaction():
        stage.rows("select set_config('mainspring.verb', 'replace', true)")
        stage.rows(
            "update mainspring.job j set payload = o.payload from mainspring.job o "
            "where j.id = any(%s) and o.id = any(%s) and j.id <> o.id", jobs, jobs,
        )  # fmt: skip
    await drain(stage, tasks, cipher)

    codes = (
        {"PAYLOAD_UNREADABLE"} if swapped == "rows" else {"PAYLOAD_ERASED"}
    )  # its key is none of this organisation's
    assert seen == ["c"]
    assert await stage.state(fine) == "succeeded"
    assert {
        row[0] for row in stage.rows("select error ->> 'code' from mainspring.finished where state = 'failed'")
    } == codes
    assert (await stage.job(jobs[0])).payload != {"name": "b"}


async def test_an_unknown_key_fails_that_job_only(stage: Stage, tasks: Registry, cipher: Cipher) -> None:
    seen: list[str] = []

    @tasks.task
    async def work(*, name: str = "default") -> None:
        seen.append(name)

    fine = [await stage.enqueue(work.job(name=name)) for name in "ab"]
    forged = '{"$mainspring": {"v": 1, "key": "unknown", "nonce": "AAAAAAAAAAAAAAAA", "data": "AAAA"}}'
    stage.rows("select mainspring.enqueue('work', %s::jsonb)", forged)
    stage.rows("""select mainspring.enqueue('work', '{"$mainspring": "nonsense"}')""")
    await drain(stage, tasks, cipher)

    assert sorted(seen) == ["a", "b"]
    assert {await stage.state(job) for job in fine} == {"succeeded"}
    failed = stage.rows("select error ->> 'code' from mainspring.finished where state = 'failed' order by 1")
    assert failed == [("PAYLOAD_ERASED",), ("PAYLOAD_UNREADABLE",)]


async def test_a_worker_without_the_cipher_leaves_encrypted_jobs_to_others(
    stage: Stage, tasks: Registry, cipher: Cipher
) -> None:
    seen: list[str] = []

    @tasks.task(retry=AT_ONCE)
    async def work(*, name: str = "its default") -> None:
        seen.append(name)

    job = await stage.enqueue(work.job(name=CANARY))
    await drain(stage, tasks, None)
    found = await stage.job(job)
    assert (found.state, seen) == ("dead", []), "tried again, never run with what it could not read"
    assert found.error is not None
    assert "there is no cipher" in found.error["message"]
    await stage.client.replay(job, reason="the worker has its key now")
    await drain(stage, tasks, cipher)

    assert seen == [CANARY]


async def test_a_client_without_the_cipher_sees_that_a_job_is_encrypted_or_erased(
    stage: Stage, tasks: Registry, cipher: Cipher
) -> None:
    @tasks.task(retry=fixed(0, attempts=1))
    async def work(*, name: str) -> None:
        raise RuntimeError(name)

    job = await stage.enqueue(work.job(name=CANARY))
    await drain(stage, tasks, cipher)

    def look() -> tuple[Any, Any]:
        with ms.Client(stage.dsn) as client:
            found = client.get(job)
            return found.payload, found.error and found.error["message"]

    assert look() == ({"$mainspring": "encrypted"}, "(encrypted)")
    await stage.client.erase("default", reason="gone")
    assert look() == ({"$mainspring": "erased"}, "(erased)")


async def test_the_wrong_master_key_is_a_mistake_of_the_settings(stage: Stage, tasks: Registry) -> None:
    @tasks.task(retry=AT_ONCE)
    async def work(*, name: str) -> None: ...

    job = await stage.enqueue(work.job(name=CANARY))
    await drain(stage, tasks, Cipher(b"w" * 32))
    found = await stage.job(job)

    assert found.state == "dead", "tried again: not the job's fault"
    assert found.error is not None
    assert "master key: does not open the keys of this database" in found.error["message"]


# -- around -----------------------------------------------------------------------------------------------------------


async def test_secrets_are_refused_before_they_are_encrypted(stage: Stage, tasks: Registry) -> None:
    @tasks.task
    async def work(*, about: dict[str, str]) -> None: ...

    with pytest.raises(ms.ValidationError, match="looks like a secret"):
        await stage.client.enqueue(work.job(about={"api_key": "x"}))


async def test_two_first_writers_of_an_organisation_share_its_key(
    stage: Stage, tasks: Registry, cipher: Cipher
) -> None:
    @tasks.task
    async def work(*, n: int) -> int:
        return n

    def write(n: int) -> UUID:
        with ms.Client(stage.dsn, cipher=cipher) as client:
            return client.enqueue(work.job(n=n)).id

    jobs = await asyncio.gather(*(asyncio.to_thread(write, n) for n in range(6)))
    await drain(stage, tasks, cipher)

    assert stage.one("select count(*) from mainspring.cipher_key") == 1
    assert sorted([await stage.result(job) for job in jobs]) == list(range(6))


async def test_a_caller_s_rollback_does_not_take_the_key_with_it(stage: Stage, tasks: Registry, cipher: Cipher) -> None:
    @tasks.task
    async def work(*, n: int) -> int:
        return n

    with ms.Client(stage.dsn, cipher=cipher) as client:
        with stage.conn.transaction(force_rollback=True):
            client.enqueue(work.job(n=1), conn=stage.conn)
        job = client.enqueue(work.job(n=2)).id
    await drain(stage, tasks, cipher)

    assert await stage.result(job) == 2


async def test_without_a_cipher_nothing_asks_for_keys(stage: Stage, tasks: Registry) -> None:
    @tasks.task
    async def work(*, n: int) -> int:
        return n

    async with ms.AsyncClient(stage.dsn) as plain:
        jobs = await plain.enqueue_many([work.job(n=n) for n in range(10)])
        await drain(stage, tasks, None)
        assert (await plain.get(jobs[0].id)).payload == {"n": 0}
        here = "datname = current_database()"  # other tests, who ask for keys, share the server
        sessions = f"select count(*) from pg_stat_activity where application_name = 'mainspring keys' and {here}"
        assert stage.one(sessions) == 0
    scans = "select coalesce(idx_scan, 0) + seq_scan from pg_stat_user_tables where relname = 'cipher_key'"
    assert stage.one(scans) == 0


@pytest.mark.parametrize("first", ["rotate_key(%s, %s, '\\x01', 'user', 'ada', 'why')", "add_key(%s, %s, '\\x01')"])
async def test_a_rotation_that_meets_another_or_a_first_writer_waits_and_succeeds(
    database: Database, stage: Stage, first: str
) -> None:
    rotate = "select mainspring.rotate_key('acme', %s, '\\x02', 'user', 'ada', 'why') is null"
    with database.connect() as watching, stage.conn.transaction():
        stage.rows(f"select mainspring.{first} is null", "acme", UUID(int=1))
        late = Late(database, lambda engine: engine.rows(rotate, UUID(int=2)))
        assert late.waits(Engine(watching))
    assert late.end() == [(False,)]
    assert stage.rows("select id from mainspring.cipher_key where retired_at is null") == [(UUID(int=2),)]
    assert stage.one("select count(*) from mainspring.cipher_key") == 2


async def test_threads_that_need_their_first_key_at_once_share_one_connection(
    stage: Stage, cipher: Cipher, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []

    def slow(*args: Any, **options: Any) -> Any:
        time.sleep(0.05)
        made.append(pool(*args, **options))
        return made[-1]

    monkeypatch.setattr(keys, "pool", slow)
    ring = Keyring(cipher, stage.dsn, Sql())
    found = await asyncio.gather(*(asyncio.to_thread(ring.to_write, "acme") for _ in range(4)))
    ring.close()

    assert {one.current for one in found} == {found[0].current}
    assert len(made) == 1
