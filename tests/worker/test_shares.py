from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.worker.weights import Weights

weights = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 10), min_size=1)


def claim(shares: Weights, total: int, waiting: Counter[str]) -> Counter[str]:
    """What the claim statement does: it goes through the queues in order until the total is reached."""
    queues, limits = shares.ask(total)
    taken: Counter[str] = Counter()
    for queue, limit in zip(queues, limits, strict=True):
        taken[queue] = min(limit, waiting[queue], total - taken.total())
    shares.got(queues, limits, taken, short=taken.total() < total)
    waiting.subtract(taken)
    return taken


@pytest.mark.rule("ENG-10.08")
def test_ten_thousand_critical_jobs_leave_room_for_the_default_queue() -> None:
    shares = Weights({"q:critical": 1, "q:default": 1})
    waiting = Counter({"q:critical": 10_000, "q:default": 100})
    for _ in range(4):  # learns that both are full, then shares
        claim(shares, 100, waiting)

    assert waiting["q:default"] <= 0
    assert waiting["q:critical"] > 9_000


@given(weights=weights, total=st.integers(1, 500))
def test_every_queue_gets_at_least_its_share_of_a_claim_while_all_are_full(weights: dict[str, int], total: int) -> None:
    shares = Weights(weights)
    queues, limits = shares.ask(total)

    assert sorted(queues) == sorted(weights)
    for queue, limit in zip(queues, limits, strict=True):
        assert limit >= total * weights[queue] / sum(weights.values())


@pytest.mark.rule("ENG-10.08")
@given(weights=weights)
def test_claims_of_one_job_turn_through_the_queues_by_weight(weights: dict[str, int]) -> None:
    shares = Weights(weights)
    waiting = Counter(dict.fromkeys(weights, 1_000_000))
    rounds = 3
    taken: Counter[str] = Counter()
    for _ in range(rounds * sum(weights.values())):
        taken += claim(shares, 1, waiting)

    assert taken == Counter({queue: rounds * weight for queue, weight in weights.items()})


@given(weights=weights, total=st.integers(1, 100), jobs=st.integers(1, 500), data=st.data())
def test_the_room_of_empty_queues_goes_to_the_others(
    weights: dict[str, int], total: int, jobs: int, data: st.DataObject
) -> None:
    shares = Weights(weights)
    full = data.draw(st.sampled_from(sorted(weights)))
    waiting = Counter({full: jobs})
    claims = 0
    while waiting[full] > 0:
        claim(shares, total, waiting)
        claims += 1
        assert claims < 10 * (jobs // total + len(weights) + 2)

    # Two claims to learn; then each claim leaves at most one place for each probe of an empty queue.
    assert claims <= 2 + -(-jobs // max(1, total))


def test_a_queue_that_was_empty_is_probed_and_gets_its_share_again() -> None:
    shares = Weights({"a": 1, "b": 1})
    waiting = Counter({"a": 1000})
    claim(shares, 10, waiting)
    claim(shares, 10, waiting)
    waiting["b"] = 1000
    claim(shares, 10, waiting)
    claim(shares, 10, waiting)  # one of two claims begins with it

    assert claim(shares, 10, waiting) == Counter({"a": 5, "b": 5})


def test_a_claim_filled_by_the_first_queues_says_nothing_about_the_others() -> None:
    shares = Weights({"a": 1, "b": 1})
    queues, limits = shares.ask(1)
    shares.got(queues, limits, {queues[0]: 1}, short=False)

    assert shares.ask(10)[1] == [5, 5]


@given(weights=weights, total=st.integers(1, 500), data=st.data())
def test_dry_is_who_gave_less_than_its_share_though_there_was_room(
    weights: dict[str, int], total: int, data: st.DataObject
) -> None:
    shares = Weights(weights)
    for _ in range(3):
        queues, limits = shares.ask(total)
        counts: Counter[str] = Counter()
        for queue, limit in zip(queues, limits, strict=True):
            counts[queue] = min(data.draw(st.integers(0, limit)), total - counts.total())
        dry = shares.got(queues, limits, counts, short=counts.total() < total)

        less = {queue for queue, limit in zip(queues, limits, strict=True) if counts[queue] < limit}
        assert dry == (less if counts.total() < total else set())
