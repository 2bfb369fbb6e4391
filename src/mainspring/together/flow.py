"""Flows: jobs that wait for others. A chain runs one after another, a group side by side."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mainspring.errors import ValidationError
from mainspring.job import NewJob

#: So many times may one job of a flow wait for another.
MOST_FLOW_LINKS = 100_000


class FlowLink(msgspec.Struct, frozen=True):
    """A job waits for others, all named by their places in the flow; `anyway`: however they end."""

    child: int
    parents: tuple[int, ...]
    anyway: bool = False


class Flow(msgspec.Struct, frozen=True):
    """Jobs and who waits for whom, to be enqueued in one transaction."""

    jobs: tuple[NewJob, ...]
    links: tuple[FlowLink, ...] = ()

    def then(self, *parts: NewJob | Flow, anyway: bool = False) -> Flow:
        """What comes when all of this has succeeded; with `anyway`, when all of it has ended.

        >>> job = NewJob(task="t", payload=msgspec.Raw(b"{}"))
        >>> group(job, job).then(job).links
        (FlowLink(child=2, parents=(0, 1), anyway=False),)
        """
        flow = self
        for part in parts:
            flow = _after(flow, _flow(part), anyway)
        return flow

    @property
    def heads(self) -> tuple[int, ...]:
        """The jobs that wait for nobody."""
        children = {link.child for link in self.links}
        return tuple(place for place in range(len(self.jobs)) if place not in children)

    @property
    def tails(self) -> tuple[int, ...]:
        """The jobs that nobody waits for."""
        parents = {parent for link in self.links for parent in link.parents}
        return tuple(place for place in range(len(self.jobs)) if place not in parents)


def chain(*parts: NewJob | Flow) -> Flow:
    """One after another: each starts when all before it has succeeded.

    ::

        client.enqueue(ms.chain(fetch.job(day=1), ms.group(parse.job(page=1), parse.job(page=2)), publish.job(day=1)))
    """
    first, *rest = parts or (Flow(()),)
    return _flow(first).then(*rest)


def group(*parts: NewJob | Flow) -> Flow:
    """Side by side; `then` waits for all of them."""
    jobs: list[NewJob] = []
    links: list[FlowLink] = []
    for part in map(_flow, parts):
        links += _moved(part.links, len(jobs))
        jobs += part.jobs
    return Flow(tuple(jobs), tuple(links))


def _after(before: Flow, part: Flow, anyway: bool) -> Flow:
    start, tails = len(before.jobs), before.tails
    links = [FlowLink(start + head, tails, anyway) for head in part.heads] if tails else []
    flow = Flow(before.jobs + part.jobs, (*before.links, *_moved(part.links, start), *links))
    if sum(len(link.parents) for link in flow.links) > MOST_FLOW_LINKS:
        times = f"more than {MOST_FLOW_LINKS} times"
        text = f"flow: its jobs wait for each other {times}: put one job between two large groups"
        raise ValidationError(text, field="flow")
    return flow


def _moved(links: Sequence[FlowLink], by: int) -> list[FlowLink]:
    return [FlowLink(link.child + by, tuple(parent + by for parent in link.parents), link.anyway) for link in links]


def _flow(part: NewJob | Flow) -> Flow:
    if isinstance(part, Flow):
        return part
    if isinstance(part, NewJob):
        return Flow((part,))
    raise ValidationError(f"flow: {type(part).__name__} is neither a job nor a flow", field="flow")
