"""Dead letters that are encrypted: shown to who has the keys, and fixed forward without a plain word left behind."""

from __future__ import annotations

import pytest
from tests.db.cipher.test_jobs import CANARY, EVERYTHING, drain
from tests.worker.stage import Stage

import mainspring as ms
from mainspring import Cipher, Registry, fixed
from mainspring.dedupe import keep

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("keyed", [False, True], ids=["id", "key"])
async def test_a_dead_letter_is_shown_and_fixed_forward(
    stage: Stage, tasks: Registry, cipher: Cipher, keyed: bool
) -> None:
    seen: list[str] = []

    @tasks.task(retry=fixed(0, attempts=1), dedupe=keep("{n}") if keyed else None)
    async def work(*, n: int, name: str) -> None:
        seen.append(name)
        if name == CANARY:
            raise RuntimeError(f"no {name}")

    job = await stage.enqueue(work.job(n=1, name=CANARY))
    await drain(stage, tasks, cipher)
    case = await stage.client.dead.show(job)
    assert (case.job.payload, case.job.error and case.job.error["message"]) == (
        {"n": 1, "name": CANARY},
        f"RuntimeError: no {CANARY}",
    )
    assert [letter.message for letter in await stage.client.dead.list()] == ["(encrypted)"]
    fix = await stage.client.dead.fix(job, set={"name": "better"}, task=work, reason="a wrong name")
    await drain(stage, tasks, cipher)

    assert seen == [CANARY, "better"]
    assert fix.diff == [{"op": "replace", "path": "/name", "value": "better", "old": CANARY}]
    assert fix.successor is not None
    assert (await stage.job(fix.successor)).payload == {"n": 1, "name": "better"}
    assert CANARY not in stage.one(EVERYTHING)
    assert '"better"' not in stage.one(EVERYTHING)


async def test_without_the_cipher_it_cannot_be_fixed(stage: Stage, tasks: Registry, cipher: Cipher) -> None:
    @tasks.task(retry=fixed(0, attempts=1))
    async def work(*, name: str) -> None:
        raise RuntimeError

    job = await stage.enqueue(work.job(name=CANARY))
    await drain(stage, tasks, cipher)
    with (
        ms.Client(stage.dsn) as client,
        pytest.raises(ms.ValidationError, match="payload: is encrypted, and cannot be read here"),
    ):
        client.dead.fix(job, set={"name": "better"}, reason="a wrong name")
