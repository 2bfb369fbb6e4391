from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Optional, TypedDict

import attrs
import msgspec
import pydantic
import pytest

from mainspring.declare.context import Context, SyncContext
from mainspring.declare.signature import TypeShape, aware, is_model, is_pydantic, parameters_of
from mainspring.errors import DeclarationError

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForTypeCheckers

    import mainspring.declare.context as ms

AWARE = Annotated[datetime, msgspec.Meta(tz=True)]


class AStruct(msgspec.Struct):
    at: datetime


@dataclass
class ADataclass:
    amount: float


@attrs.define
class AnAttrs:
    name: str


class ATypedDict(TypedDict):
    name: str


class ANamedTuple(NamedTuple):
    name: str


class APydantic(pydantic.BaseModel):
    name: str


class Tree(msgspec.Struct):
    left: Tree | None = None
    right: Tree | None = None


class MyContext(Context):
    pass


def names(fn: Any) -> tuple[list[str], bool]:
    parameters, wants_context = parameters_of(fn, "t")
    return [parameter.name for parameter in parameters], wants_context


def test_the_context_comes_first_and_is_no_part_of_the_payload() -> None:
    async def with_context(ctx: Context, *, a: int, b: str = "") -> None: ...
    def in_a_thread(ctx: SyncContext, a: int) -> None: ...
    async def of_our_own(ctx: MyContext) -> None: ...
    async def imported_for_types_only(ctx: ms.Context, a: int) -> None: ...
    async def without(a: int) -> None: ...
    async def empty() -> None: ...

    assert names(with_context) == (["a", "b"], True)
    assert names(in_a_thread) == (["a"], True)
    assert names(of_our_own) == ([], True)
    assert names(imported_for_types_only) == (["a"], True)
    assert names(without) == (["a"], False)
    assert names(empty) == ([], False)


def test_the_context_has_the_colour_of_the_function() -> None:
    def plain(ctx: Context) -> None: ...
    async def in_the_loop(ctx: SyncContext) -> None: ...
    async def imported_for_types_only(ctx: ms.SyncContext) -> None: ...

    with pytest.raises(
        DeclarationError, match=r"parameter ctx: Context is for async functions; a plain one takes ms.S"
    ):
        names(plain)
    for wrong in (in_the_loop, imported_for_types_only):
        with pytest.raises(
            DeclarationError, match="parameter ctx: SyncContext is for plain functions; an async one ta"
        ):
            names(wrong)


def test_what_a_handler_returns_need_not_exist_at_run_time() -> None:
    async def handler(a: int) -> OnlyForTypeCheckers: ...  # type: ignore[empty-body]

    assert names(handler) == (["a"], False)


def test_a_parameter_that_cannot_be_a_field_is_refused_by_name() -> None:
    async def star(*numbers: int) -> None: ...
    async def stars(**numbers: int) -> None: ...
    async def positional(number: int, /) -> None: ...
    async def bare(number) -> None: ...  # type: ignore[no-untyped-def]
    async def unknown(number: OnlyForTypeCheckers) -> None: ...
    async def late(number: int, ctx: Context) -> None: ...

    for fn, parameter in [
        (star, "numbers"),
        (stars, "numbers"),
        (positional, "number"),
        (bare, "number"),
        (unknown, "number"),
        (late, "ctx"),
    ]:
        with pytest.raises(DeclarationError, match=f"^task t: parameter {parameter}: "):
            parameters_of(fn, "t")


@pytest.mark.parametrize("model", [AStruct, ADataclass, AnAttrs, ATypedDict])
def test_models_are_known(model: type) -> None:
    assert is_model(model)
    assert not is_pydantic(model)


@pytest.mark.parametrize("other", [int, dict, dict[str, int], list[AStruct], AStruct | None, Any, "x", ANamedTuple])
def test_other_types_are_no_models(other: Any) -> None:
    assert not is_model(other)
    assert not is_pydantic(other)


def test_a_pydantic_model_is_known() -> None:
    assert is_pydantic(APydantic)
    assert not is_model(APydantic)


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (datetime, AWARE),
        (datetime | None, AWARE | None),
        (Optional[datetime], Optional[AWARE]),  # noqa: UP045
        (list[datetime], list[AWARE]),
        (dict[str, list[datetime]], dict[str, list[AWARE]]),
        (tuple[datetime, ...], tuple[AWARE, ...]),
        (Annotated[datetime, "x"], Annotated[AWARE, "x"]),
        (Annotated[datetime, msgspec.Meta(tz=False)], Annotated[datetime, msgspec.Meta(tz=False)]),
        (int, int),
        (Literal["a"], Literal["a"]),
        (list[int], list[int]),
        (Any, Any),
    ],
)
def test_every_time_in_a_type_demands_a_zone(hint: Any, expected: Any) -> None:
    assert aware(hint) == expected


def test_a_shape_knows_what_must_be_looked_at() -> None:
    def seen(hint: Any) -> tuple[bool, bool, bool]:
        shape = TypeShape(hint, "here")
        return shape.floats, shape.naive, shape.models

    assert seen(int | None) == (False, False, False)
    assert seen(list[float]) == (True, False, False)
    assert seen(dict[str, Any]) == (True, False, False)
    assert seen(AWARE) == (False, False, False)
    assert seen(list[AStruct]) == (False, True, True)
    assert seen(ADataclass) == (True, False, True)
    assert seen(Tree) == (False, False, True)


class NotJson: ...


@pytest.mark.parametrize(
    "hint",
    [NotJson, list[NotJson], dict[str, NotJson | None], complex, type, msgspec.Raw, AStruct | ADataclass],
)
def test_a_type_that_json_cannot_hold_is_refused(hint: Any) -> None:
    with pytest.raises(DeclarationError, match=r"^here: "):
        TypeShape(hint, "here")
