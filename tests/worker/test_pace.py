from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest
from msgspec.structs import replace
from tests.worker.claims import CLAIM, NOW

from mainspring import WorkerConfig
from mainspring.worker.crew import Crew
from mainspring.worker.pace import Pace
from mainspring.worker.rates import Rates
from mainspring.worker.statements import Claimed

QUEUES = dict.fromkeys(("a", "b", "c", "d", "e", "f"), 1)
LATER = NOW + timedelta(minutes=1)


def backlog(pace: Pace, crew: Crew, due: list[int], at: float) -> list[int]:
    """One claim of a backlog in queue `c`, as the statement answers it; what it took, in seconds since `NOW`."""
    queues, limits = crew.weights.ask(crew.want())
    low, bounded = crew.bounds.of(queues, at)
    found = Claimed(crew, crew.want(), queues, limits, bounded)
    place = queues.index("c")
    seen = [second for second in due if NOW + timedelta(seconds=second) >= low[2][place]][: limits[place]]
    found.jobs = [
        replace(CLAIM, queue="c", due_at=NOW + timedelta(seconds=second), claimed_at=LATER) for second in seen
    ]
    crew.wants_more = pace.learn(found, (None, LATER), at, at + 0.1)
    return seen


@pytest.mark.anyio
async def test_a_backlog_in_one_of_several_queues_is_seen_from_the_first_claim_on() -> None:
    crew = Crew(["work"], 100, QUEUES, 1000, Rates(), lambda run: None)
    pace = Pace(WorkerConfig(), [crew])
    due = list(range(-2000, 0))
    taken: Counter[int] = Counter()
    for turn in range(1, 40):
        assert crew.wants_more, "there is more, and the next claim asks for it at once"
        seen = backlog(pace, crew, due, turn * 0.2)
        assert seen, f"{len(due)} jobs are hidden from claim {turn}"
        taken.update(seen)
        due = due[len(seen) :]
        if not due:
            break

    assert len(taken) == 2000
    assert turn <= 2 + 2000 // crew.want(), (
        "one claim splits its room over all queues, the next ones give it to this one"
    )


@pytest.mark.rule("ENG-16.02")
@pytest.mark.anyio
async def test_with_defaults_the_next_poll_is_never_much_more_than_a_second_away() -> None:
    pace = Pace(WorkerConfig(), [])
    for _ in range(50):
        pace.asked(polling=True, alone=False)
        pace.rest([], None, 100.0)
        assert 100.0 < pace.poll_at <= 101.2
    assert pace.poll == 1.0


@pytest.mark.anyio
async def test_nobody_polls_or_asks_for_a_lone_job_while_an_answer_is_on_its_way() -> None:
    pace = Pace(WorkerConfig(), [])
    pace.solitude.look(True, 0.0)

    pace.asked(polling=True, alone=True)
    assert (pace.poll_at, pace.solitude.asks(polling=True)) == (float("inf"), False)

    pace.unanswered(alone=True)
    assert (pace.poll_at, pace.solitude.asks(polling=True)) == (0.0, True)


@pytest.mark.anyio
async def test_every_crew_is_the_first_to_ask_in_its_turn() -> None:
    crews = [Crew([name], 10, QUEUES, 100, Rates(), lambda run: None) for name in ("async", "thread", "process")]
    pace = Pace(WorkerConfig(), crews)
    first: Counter[str] = Counter()
    for _ in range(6):
        pace.rotate()
        first[pace.asks(0.0, enough=False)[0][0].tasks[0]] += 1
        first[pace.reporters()[0][0].tasks[0]] += 1
    assert first == {"async": 4, "thread": 4, "process": 4}
