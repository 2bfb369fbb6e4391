from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace
from tests.worker.claims import CLAIM

from mainspring import Registry
from mainspring.outcome import Error, Move
from mainspring.worker.attempt import LiveAttempt
from mainspring.worker.outbox import Outbox, settle_row

tasks = Registry("outbox")


@tasks.task
async def work() -> None: ...


def run(epoch: int) -> LiveAttempt:
    return LiveAttempt(replace(CLAIM, epoch=epoch), work, 0.0, 60.0)


def filled() -> Outbox:
    outbox = Outbox()
    outbox.complete(run(1))
    outbox.complete(run(2), '{"ok":true}')
    outbox.move(run(3), Move("fail", timedelta(seconds=5), Error("TIMEOUT", "retryable", "too slow", "a stack")))
    return outbox


def test_a_taking_holds_everything_that_ended_and_leaves_the_outbox_empty() -> None:
    outbox = filled()
    assert (len(outbox), outbox.epochs()) == (3, {1, 2, 3})

    outcomes = outbox.take()

    assert (len(outcomes), outcomes.epochs(), len(outbox)) == (3, {1, 2, 3}, 0)
    assert [each.claim.epoch for each in outcomes.succeeded] == [1, 2]
    error = {"code": "TIMEOUT", "class": "retryable", "message": "too slow", "stack": "a stack"}
    row = settle_row(*outcomes.moves[0])
    assert row == {"epoch": 3, "verb": "fail", "delay": timedelta(seconds=5), "error": error}


def test_what_could_not_be_sent_goes_out_again_before_what_ended_later() -> None:
    outbox = filled()
    outcomes = outbox.take()
    outbox.complete(run(4))
    outbox.put_back(outcomes)

    assert [each.claim.epoch for each in outbox.done] == [1, 4]
    assert outbox.epochs() == {1, 2, 3, 4}


def test_outcomes_can_be_taken_one_by_one() -> None:
    outbox = filled()

    assert [outbox.take_one().epochs() for _ in range(4)] == [{1}, {2}, {3}, set()]


def test_an_end_that_is_not_a_success_asks_to_be_written() -> None:
    woken: list[int] = []
    outbox = Outbox(lambda: woken.append(1))
    outbox.move(run(1), Move("release"))

    assert woken == [1]
