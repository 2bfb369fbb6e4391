"""Fallback sweeps: a query of what should have happened, and the jobs for what no timer covers.

A timer may be missing: its enqueue failed, or the rows came by another way. A sweep looks for what is due by the rows
themselves, page by page, and enqueues a job for each, unless one waits or runs under the same key. Each page is a job
of its own: what it enqueues, the next page and its own success commit together.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from types import SimpleNamespace
from typing import Any, Final

from msgspec.structs import replace

from mainspring.checks import check_number
from mainspring.declare.context import Context
from mainspring.errors import DeclarationError, ValidationError
from mainspring.job import DEFAULT_ORG, SYSTEM, NewJob
from mainspring.text.params import QueryParams, check_params, params_now
from mainspring.text.texts import MAX_NAME, text_problem

LARGEST_SWEEP_PAGE: Final = 1000
#: What the engine gives each page: its time, the last row's place, and how many rows.
SWEEP_PARAMS: Final = ("now", "after", "limit")

#: Reads the rows after a bound: given the text of a page's query, or of the first one.
PAGE_QUERY: Final = "select * from ({query}) swept {bound} order by {by} limit %(limit)s"


def sweeper(
    name: str,
    query: str,
    job: Callable[[Any], NewJob],
    *,
    params: QueryParams,
    by: str,
    limit: int,
    following: Callable[[Any], NewJob],
) -> Callable[..., Any]:
    """The handler of a sweep's task; `following` makes the job of the page after a bound."""
    _check(name, query, job, params, by, limit)
    quoted = '"{}"'.format(by.replace('"', '""').replace("%", "%%"))
    query = query.strip().rstrip(";")
    first = PAGE_QUERY.format(query=query, bound="", by=quoted)
    later = PAGE_QUERY.format(query=query, bound=f"where {quoted} > %(after)s", by=quoted)

    async def sweep(ctx: Context, *, after: Any = None) -> None:
        async with ctx.complete() as conn:
            text = first if after is None else later
            bounds = {"now": ctx.job.claimed_at, "after": after, "limit": limit}
            cursor = await conn.execute(text.encode(), params_now(query, params, SWEEP_PARAMS) | bounds)
            columns = [column.name for column in cursor.description or ()]
            rows = [SimpleNamespace(**dict(zip(columns, row, strict=True))) for row in await cursor.fetchall()]
            await ctx.enqueue(*(_swept(name, job(row), ctx.job.org_id) for row in rows))
            if len(rows) == limit:
                await ctx.enqueue(following(_bound(name, by, getattr(rows[-1], by))))
            ctx.result = {"rows": len(rows)}

    sweep.__doc__ = f"Enqueue what is due and not under way: {name}."
    return sweep


def _check(name: str, query: object, job: object, params: object, by: object, limit: object) -> None:
    if problem := text_problem(name, MAX_NAME):
        raise DeclarationError(f"sweep: name: {problem}")
    if not isinstance(query, str) or not query.strip():
        raise DeclarationError(f"sweep {name}: query: is not a query")
    if not callable(job):
        raise DeclarationError(f"sweep {name}: job: is not a function that makes a job from a row")
    if not isinstance(by, str) or text_problem(by, 63):
        raise DeclarationError(f"sweep {name}: by: is not the name of a column")
    try:
        check_params(query, params, SWEEP_PARAMS)
        check_number("limit", limit, 1, LARGEST_SWEEP_PAGE)
    except ValidationError as error:
        raise DeclarationError(f"sweep {name}: {error}") from None


def _swept(name: str, job: object, org: str) -> NewJob:
    if not isinstance(job, NewJob):
        raise ValidationError(f"job: what sweep {name} makes of a row is not a job", field="job")
    if job.key is None:
        raise ValidationError(f"key: is missing: sweep {name} asks by it what is under way", field="key")
    # A sweep itself belongs to no organisation, and its jobs to the one that jobs without a name belong to.
    own = DEFAULT_ORG if org == SYSTEM else org
    return replace(job, unless_live=True, org_id=own if job.org_id is None else job.org_id)


def _bound(name: str, by: str, value: object) -> Any:
    """The last row's place as a payload can carry it; the database reads a text as what its column is."""
    if value is None:
        raise ValidationError(f"{by}: is null in a row of sweep {name}, so no page can follow", field=by)
    if isinstance(value, datetime | date):
        return value.isoformat()
    return value if isinstance(value, int | str) else str(value)
