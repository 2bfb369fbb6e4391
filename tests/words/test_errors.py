from __future__ import annotations

import pickle
from uuid import UUID

import pytest

from mainspring import errors
from mainspring.errors import JobNotFound, MainspringError, PayloadTooLarge, TransitionRefused, ValidationError


def everything(error: type[MainspringError] = MainspringError) -> list[type[MainspringError]]:
    return [error, *(deeper for sub in error.__subclasses__() for deeper in everything(sub))]


def test_the_tree_in_the_docstring_names_every_error() -> None:
    own = [error for error in everything() if error.__module__ == errors.__name__]

    assert [error.__name__ for error in own if error.__name__ not in (errors.__doc__ or "")] == []


def test_the_docstring_is_the_default_message() -> None:
    assert str(JobNotFound()) == "There is no such job."


def test_an_error_carries_its_data() -> None:
    error = TransitionRefused("cannot cancel", job_id=UUID(int=7), verb="cancel", state="running")

    assert (error.job_id, error.verb, error.state) == (UUID(int=7), "cancel", "running")


@pytest.mark.parametrize(
    "error",
    [
        ValidationError("key: is empty", field="key"),
        PayloadTooLarge("payload: is too large", field="payload"),
        JobNotFound("gone", job_id=UUID(int=7)),
        MainspringError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_survives_the_border_of_its_process(error: MainspringError) -> None:
    copy = pickle.loads(pickle.dumps(error))

    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))
