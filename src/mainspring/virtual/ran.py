"""What a test learns from running jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mainspring.job import Job


class Crash(BaseException):
    """Raise it in a handler, or in what it calls, to die there as by SIGKILL: nothing is written, the lease remains.

    ::

        monkeypatch.setattr(payments, "charge", crash)  # def crash(*_): raise Crash
        mainspring.drain()
        mainspring.expire_leases()
        mainspring.drain()  # the rescued job runs again
    """


@dataclass(frozen=True, slots=True)
class Ran:
    """One attempt: the job as it stands afterwards, when it ran, and what its handler raised."""

    job: Job
    attempt: int
    at: datetime
    error: BaseException | None = None

    @property
    def task(self) -> str:
        """Of what kind the job is."""
        return self.job.task

    @property
    def state(self) -> str:
        """Where the attempt left the job: `succeeded`, `retrying`, `failed`, `dead`, `scheduled` or `cancelled`."""
        return self.job.state

    @property
    def result(self) -> Any:
        """What the handler returned."""
        return self.job.result


@dataclass(frozen=True, slots=True)
class Drained:
    """The attempts of one `drain` or `advance`, in the order in which they ran."""

    runs: Sequence[Ran] = ()

    @property
    def counts(self) -> Counter[str]:
        """How many attempts left their job in which state."""
        return Counter(run.state for run in self.runs)

    @property
    def jobs(self) -> list[Job]:
        """The jobs that ran, each as its last attempt left it."""
        return list({run.job.id: run.job for run in self.runs}.values())

    def __iter__(self) -> Iterator[Ran]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.runs)
