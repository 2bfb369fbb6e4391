"""The commits of a handler's blocks, as a test sees them: there it can look, or let the worker die."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

from mainspring.job import Claim


class Commit(NamedTuple):
    """A commit of a block of `ctx`, about to be made or just made."""

    job: Claim
    when: Literal["before", "after"]
    ends_job: bool  # whether the job's success is part of it


_told: list[Callable[[Commit], object]] = []  # empty wherever nobody tests


def tell_commit(job: Claim, when: Literal["before", "after"], *, ends_job: bool) -> None:
    """Say that a block commits, to tests that asked for it."""
    for fn in _told:
        fn(Commit(job, when, ends_job))


@contextmanager
def at_commits(fn: Callable[[Commit], object]) -> Iterator[None]:
    """For tests: inside this block `fn` is called before and after each commit of a handler's block in this process.

    ::

        def die(commit: Commit) -> None:
            if commit.when == "after" and not commit.ends_job:
                raise Crash  # what came first is kept, what follows never happened

        with at_commits(die):
            mainspring.drain()

    It is called where the handler runs, in the loop or in a thread. What it raises the handler's block raises: before
    the commit, nothing is committed; after it, all is, and the worker does not know. With a real worker, let it send
    SIGKILL to its own process.
    """
    _told.append(fn)
    try:
        yield
    finally:
        _told.remove(fn)
