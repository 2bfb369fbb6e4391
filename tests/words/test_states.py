from __future__ import annotations

import pytest

from mainspring.states import FINISHED, TRANSITIONS, WAITING, State, allowed


def test_every_state_can_be_reached_and_left() -> None:
    reached = {state for verb in TRANSITIONS.values() for state in verb.after}
    left = {state for verb in TRANSITIONS.values() for state in verb.before}

    assert reached >= set(State)
    assert left >= set(State)


def test_a_state_is_waiting_running_or_finished() -> None:
    assert WAITING | FINISHED | {State.RUNNING} == set(State)
    assert not WAITING & FINISHED


def test_nothing_but_pruning_touches_a_succeeded_job() -> None:
    assert [verb for verb in TRANSITIONS if allowed(verb, State.SUCCEEDED)] == ["prune"]


@pytest.mark.parametrize("state", [None, *State])
def test_only_a_job_that_does_not_exist_can_be_enqueued(state: State | None) -> None:
    assert allowed("enqueue", state) is (state is None)


@pytest.mark.parametrize("state", State)
def test_cancel_takes_waiting_jobs_and_replay_takes_failed_ones(state: State) -> None:
    assert allowed("cancel", state) is (state in WAITING)
    assert allowed("replay", state) is (state in {State.FAILED, State.DEAD})
