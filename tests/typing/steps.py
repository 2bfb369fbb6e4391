"""Read by mypy only: a step has the type of its function, whose arguments are checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_type

from mainspring.declare.context import Context, SyncContext


@dataclass
class Invoice:
    id: int


async def post(booking: int, *, key: str = "") -> Invoice:
    return Invoice(booking)


def total(*values: int) -> int:
    return sum(values)


async def handler(ctx: Context) -> None:
    assert_type(await ctx.step("a", post, 7, key="k"), Invoice)
    assert_type(await ctx.step("b", lambda: post(7)), Invoice)
    assert_type(await ctx.step("c", total, 1, 2), int)
    assert_type(await ctx.step("d", lambda: {"id": 7}, type=Invoice), Invoice)
    assert_type(await ctx.resume_from(1), int)
    await ctx.step("e", post, "7")  # type: ignore[call-overload]
    await ctx.step("f", post, 7, kye="k")  # type: ignore[call-arg]


def plain_handler(ctx: SyncContext) -> None:
    assert_type(ctx.step("a", total, 1), int)
    assert_type(ctx.step("b", lambda: {"id": 7}, type=Invoice), Invoice)
    assert_type(ctx.resume_from("start"), str)
    ctx.step("c", total, "1")  # type: ignore[call-overload]
