"""A handler's signature, read once at declaration: its parameters with real types, and what those types can hold."""

from __future__ import annotations

import dataclasses
import inspect
from datetime import datetime
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

import msgspec
from msgspec import inspect as shapes

from mainspring.declare.context import Context, SyncContext
from mainspring.errors import DeclarationError

_CONTEXTS: Final = (Context, SyncContext)


def parameters_of(fn: Any, task: str) -> tuple[list[inspect.Parameter], bool]:
    """The parameters that make the payload, and whether the context comes before them.

    >>> async def greet(ctx: Context, *, name: str) -> None: ...
    >>> parameters_of(greet, "greet")
    ([<Parameter "name: str">], True)
    """
    parameters = [_resolved(parameter, fn, task) for parameter in inspect.signature(fn).parameters.values()]
    wants_context = bool(parameters) and parameters[0].annotation in _CONTEXTS
    if wants_context and inspect.isfunction(fn):
        _check_colour(fn, parameters[0], task)
    parameters = parameters[wants_context:]
    for parameter in parameters:
        if parameter.annotation in _CONTEXTS:
            raise DeclarationError(f"task {task}: parameter {parameter.name}: the context must come first")
        if parameter.name == "conn":
            raise DeclarationError(f"task {task}: parameter conn: is the connection in {task}.enqueue(conn=...)")
    return parameters, wants_context


def _check_colour(fn: Any, context: inspect.Parameter, task: str) -> None:
    """Refuse an async function with the context of plain ones, and the other way round."""
    where = f"task {task}: parameter {context.name}"
    if inspect.iscoroutinefunction(fn):
        if context.annotation is SyncContext:
            raise DeclarationError(f"{where}: SyncContext is for plain functions; an async one takes ms.Context")
    elif context.annotation is Context:
        raise DeclarationError(f"{where}: Context is for async functions; a plain one takes ms.SyncContext")


def _resolved(parameter: inspect.Parameter, fn: Any, task: str) -> inspect.Parameter:
    """The parameter with a type for an annotation, also where the module has string annotations."""
    where = f"task {task}: parameter {parameter.name}"
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        raise DeclarationError(f"{where}: is {parameter.kind.description}; a payload's field has one name")
    if parameter.annotation is parameter.empty:
        raise DeclarationError(f"{where}: has no annotation")
    holder = SimpleNamespace(__annotations__={"it": parameter.annotation})
    try:
        hint = get_type_hints(holder, inspect.unwrap(fn).__globals__, include_extras=True)["it"]
    except NameError as error:
        # An import under TYPE_CHECKING is not there at run time; for the context its name is enough.
        named = [kind for kind in _CONTEXTS if kind.__name__ == str(parameter.annotation).rpartition(".")[2]]
        if not named:
            raise DeclarationError(f"{where}: {error}; the types of a payload are needed at run time") from None
        hint = named[0]
    for kind in _CONTEXTS:
        if isinstance(hint, type) and issubclass(hint, kind):
            hint = kind
    return parameter.replace(annotation=hint)


def is_pydantic(hint: Any) -> bool:
    """Whether a type is a pydantic model; asked without importing pydantic."""
    return isinstance(hint, type) and hasattr(hint, "__pydantic_validator__") and hasattr(hint, "model_validate_json")


def is_model(hint: Any) -> bool:
    """Whether a type is a Struct, a dataclass, an attrs class or a TypedDict."""
    cls = get_origin(hint) or hint
    if not isinstance(cls, type):
        return False
    known = dataclasses.is_dataclass(cls) or is_typeddict(cls) or hasattr(cls, "__attrs_attrs__")
    return known or issubclass(cls, msgspec.Struct)


def aware(hint: Any) -> Any:
    """The type, with every `datetime` in it demanding a time zone.

    >>> aware(list[int])
    list[int]
    """
    if hint is datetime:
        return Annotated[datetime, msgspec.Meta(tz=True)]
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        if any(getattr(meta, "tz", None) is not None for meta in hint.__metadata__):
            return hint
        return Annotated[(aware(hint.__origin__), *hint.__metadata__)]
    changed = tuple(aware(arg) for arg in args)
    if origin is Literal or changed == args:
        return hint
    return Union[changed] if origin in (Union, UnionType) else origin[changed]  # noqa: UP007 (built at run time)


class TypeShape:
    """What a type can hold that msgspec does not check by itself when a value of it is written."""

    def __init__(self, hint: Any, where: str) -> None:
        self.floats = False  # NaN, which JSON does not have and msgspec writes as null
        self.naive = False  # a time without a zone
        self.models = False  # an instance of a model, which is taken as it is
        try:
            msgspec.json.Decoder(hint)  # refuses unions that it could not tell apart
            self.info: Any = shapes.type_info(hint)
        except (TypeError, NameError, ValueError) as error:
            raise DeclarationError(f"{where}: {error}") from None
        seen: set[int] = set()
        rest: list[Any] = [self.info]
        while rest:
            node = rest.pop()
            if isinstance(node, tuple):
                rest.extend(node)
            elif isinstance(node, shapes.CustomType) and is_pydantic(node.cls):
                self.floats = self.naive = self.models = True  # what is in it, pydantic knows
            elif isinstance(node, shapes.CustomType | shapes.RawType | shapes.ExtType):
                raise DeclarationError(f"{where}: {getattr(node, 'cls', type(node))} cannot be written as JSON")
            elif isinstance(node, shapes.Type | shapes.Field) and id(node) not in seen:
                seen.add(id(node))  # a tree type contains itself
                self.floats |= isinstance(node, shapes.FloatType | shapes.AnyType)
                self.naive |= isinstance(node, shapes.DateTimeType) and node.tz is not True
                self.models |= isinstance(node, shapes.StructType | shapes.DataclassType | shapes.NamedTupleType)
                rest.extend(getattr(node, name) for name in node.__struct_fields__ if "default" not in name)
