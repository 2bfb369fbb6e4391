"""Typed payloads: a handler's parameters are its payload.

::

    async def issue_invoice(ctx: Context, *, booking_id: int, note: str = "") -> None    {"booking_id": 7, "note": ""}
    async def issue_invoice(invoice: Invoice) -> None                                    the fields of Invoice

`Invoice` may be a msgspec Struct, a dataclass, an attrs class, a TypedDict or a pydantic model. Enqueue is strict: what
the worker could not read is refused, and defaults are written out, so that a job means the same after they change. A
worker ignores fields that it does not know: a newer enqueuer may already send them.
"""

from __future__ import annotations

import inspect
import math
import re
from abc import ABC, abstractmethod
from copy import deepcopy
from datetime import datetime
from functools import partial
from typing import Any, Final, NotRequired, TypedDict

import msgspec

from mainspring.declare.signature import TypeShape, aware, is_model, is_pydantic, parameters_of
from mainspring.errors import DeclarationError, ValidationError
from mainspring.text.texts import did_you_mean

Values = dict[str, Any]

_encode: Final = msgspec.json.Encoder().encode
_ERROR: Final = re.compile(r"(?P<problem>.*?)(?: - at `\$\.?(?P<path>.*)`)?", re.DOTALL)
_FIELD: Final = re.compile(r"Object (missing required|contains unknown) field `(.*)`")
_UNWRITABLE: Final = (TypeError, ValueError, OverflowError, RecursionError)


class Codec(ABC):
    """Turns the arguments of a call into a payload, and a payload into the arguments of a call."""

    fields: tuple[str, ...]

    @abstractmethod
    def encode(self, args: tuple[Any, ...], kwargs: Values) -> bytes:
        """The payload of a job; arguments that do not fit are refused by name."""

    @abstractmethod
    def decode(self, text: str) -> Values:
        """The keyword arguments for the handler."""

    @abstractmethod
    def schema(self) -> Values:
        """The payload's JSON Schema."""


def codec_for(fn: Any, task: str) -> tuple[Codec, bool]:
    """The codec of a handler, and whether the handler takes the context.

    >>> async def greet(*, name: str, times: int = 1) -> None: ...
    >>> codec, wants_context = codec_for(greet, "greet")
    >>> codec.encode((), {"name": "Ada"})
    b'{"name":"Ada","times":1}'
    """
    parameters, wants_context = parameters_of(fn, task)
    if len(parameters) == 1 and is_pydantic(parameters[0].annotation):
        return _Pydantic(parameters[0]), wants_context
    if len(parameters) == 1 and is_model(parameters[0].annotation):
        return _Model(parameters[0], task), wants_context
    return _Fields(parameters, task), wants_context


class _Native(Codec):
    """A payload of types that msgspec knows."""

    _type: Any  # what is written
    _read: Any  # reads it back
    _recheck = True  # msgspec takes an instance of a model as it is: read back what was written
    _floats: bool
    _naive: bool

    def _write(self, given: Any) -> bytes:
        try:
            value = msgspec.convert(given, self._type)
            raw = _encode(value)
            if self._recheck:
                self._read(raw)
        except msgspec.ValidationError as error:
            raise _refusal(error, self.fields) from None
        except _UNWRITABLE as error:
            raise _unwritable(given, error) from None
        if self._naive or (self._floats and b"null" in raw):
            _refuse_unfit(value)
        return raw

    def decode(self, text: str) -> Values:
        try:
            value: Values = self._read(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise _refusal(error, self.fields) from None
        if self._naive:
            _refuse_unfit(value)
        return value

    def schema(self) -> Values:
        return msgspec.json.schema(self._type)


class _Fields(_Native):
    """Each parameter is a field."""

    def __init__(self, parameters: list[inspect.Parameter], task: str) -> None:
        self.fields = tuple(parameter.name for parameter in parameters)
        hints = {parameter.name: aware(parameter.annotation) for parameter in parameters}
        shapes = [TypeShape(hint, f"task {task}: parameter {name}") for name, hint in hints.items()]
        self._recheck = any(shape.models for shape in shapes)
        self._floats = any(shape.floats for shape in shapes)
        self._naive = any(shape.naive for shape in shapes)
        fields = [(p.name, hints[p.name], _default(p, hints[p.name], task)) for p in parameters]
        self._type = msgspec.defstruct(task, fields, kw_only=True, forbid_unknown_fields=True)
        # Measured: reading to a dict takes a third of the time of reading to a Struct and making a dict of it.
        optional = {p.name for p in parameters if p.default is not p.empty}
        kwargs = {name: NotRequired[hint] if name in optional else hint for name, hint in hints.items()}
        self._read = msgspec.json.Decoder(TypedDict(task, kwargs)).decode  # type: ignore[operator] # made at run time

    def encode(self, args: tuple[Any, ...], kwargs: Values) -> bytes:
        return self._write(_named(args, kwargs, self.fields) if args else kwargs)


class _Model(_Native):
    """The one parameter is a model, whose fields are the payload's."""

    def __init__(self, parameter: inspect.Parameter, task: str) -> None:
        where = f"task {task}: parameter {parameter.name}"
        shape = TypeShape(parameter.annotation, where)
        if getattr(shape.info, "array_like", False):
            raise DeclarationError(f"{where}: a payload is an object, not an array")
        self._parameter, self._type = parameter.name, parameter.annotation
        self._floats, self._naive = shape.floats, shape.naive
        self._read = msgspec.json.Decoder(self._type).decode
        self.fields = tuple(field.encode_name for field in shape.info.fields)

    def encode(self, args: tuple[Any, ...], kwargs: Values) -> bytes:
        return self._write(_one(args, kwargs, self._parameter))

    def decode(self, text: str) -> Values:
        return {self._parameter: super().decode(text)}


class _Pydantic(Codec):
    """The one parameter is a pydantic model. We never import pydantic: the model brings it."""

    def __init__(self, parameter: inspect.Parameter) -> None:
        self._parameter, self._type = parameter.name, parameter.annotation
        self.fields = tuple(self.schema().get("properties", ()))

    def encode(self, args: tuple[Any, ...], kwargs: Values) -> bytes:
        given = _one(args, kwargs, self._parameter)
        try:
            value = given if isinstance(given, self._type) else self._type.model_validate(given)
            raw: bytes = value.model_dump_json(by_alias=True).encode()
            self._type.model_validate_json(raw)
        except ValueError as error:
            raise self._refusal(error) from None
        _refuse_unfit(value.model_dump())
        return raw

    def decode(self, text: str) -> Values:
        try:
            return {self._parameter: self._type.model_validate_json(text)}
        except ValueError as error:
            raise self._refusal(error) from None

    def schema(self) -> Values:
        schema: Values = self._type.model_json_schema(by_alias=True)
        return schema

    def _refusal(self, error: Any) -> ValidationError:
        if not hasattr(error, "errors"):
            return ValidationError(f"{self._parameter}: cannot be written as JSON", field=self._parameter)
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or self._parameter
        return ValidationError(f"{field}: {first['msg'][:200]}", field=field)


def _default(parameter: inspect.Parameter, hint: Any, task: str) -> Any:
    if parameter.default is parameter.empty:
        return msgspec.NODEFAULT
    try:
        msgspec.convert(parameter.default, hint)
    except msgspec.ValidationError as error:
        raise DeclarationError(f"task {task}: parameter {parameter.name}: its default: {error}") from None
    if isinstance(parameter.default, list | dict | set):
        return msgspec.field(default_factory=partial(deepcopy, parameter.default))
    return parameter.default


def _named(args: tuple[Any, ...], kwargs: Values, fields: tuple[str, ...]) -> Values:
    if len(args) > len(fields):
        raise ValidationError(f"payload: {len(args)} values for {len(fields)} fields", field="payload")
    named = dict(zip(fields, args, strict=False))
    for field in named.keys() & kwargs.keys():
        raise ValidationError(f"{field}: is given twice", field=field)
    return named | kwargs


def _one(args: tuple[Any, ...], kwargs: Values, parameter: str) -> Any:
    given = _named(args, kwargs, (parameter,))
    for field in given.keys() - {parameter}:
        raise ValidationError(f"{field}: is not a field{did_you_mean(field, (parameter,))}", field=field)
    if parameter not in given:
        raise ValidationError(f"{parameter}: is missing", field=parameter)
    return given[parameter]


def _refusal(error: Exception, fields: tuple[str, ...]) -> ValidationError:
    """Msgspec's error in our words: ``Expected `int`, got `str` - at `$.id` `` becomes `id: expected int, got str`."""
    match = _ERROR.fullmatch(str(error))
    assert match
    problem, path = match["problem"], match["path"] or ""
    if about := _FIELD.fullmatch(problem):
        path = f"{path}.{about[2]}" if path else about[2]
        missing = about[1] == "missing required"
        problem = "is missing" if missing else f"is not a field{did_you_mean(about[2], fields)}"
    problem = problem.replace("`", "")
    field = path or "payload"
    return ValidationError(f"{field}: {problem[:1].lower()}{problem[1:200]}", field=field)


def _unwritable(given: Any, error: Exception) -> ValidationError:
    """Name the value that JSON cannot hold."""
    field = "payload"
    for name, value in given.items() if isinstance(given, dict) else ():
        try:
            _encode(value)
        except _UNWRITABLE as its_error:
            field, error = str(name), its_error
            break
    problem = "is not valid Unicode" if isinstance(error, UnicodeError) else str(error)[:200]
    return ValidationError(f"{field}: {problem}", field=field)


def _refuse_unfit(value: Any) -> None:
    """Refuse NaN and times without a zone, wherever they are."""
    rest: list[tuple[str, Any]] = [("", msgspec.to_builtins(value, builtin_types=(datetime,), str_keys=True))]
    while rest:
        path, node = rest.pop()
        if isinstance(node, dict):
            rest.extend((f"{path}.{key}" if path else str(key), item) for key, item in node.items())
        elif isinstance(node, list | tuple):
            rest.extend((f"{path}[{index}]", item) for index, item in enumerate(node))
        elif isinstance(node, float) and not math.isfinite(node):
            raise ValidationError(f"{path}: {node} cannot be written as JSON", field=path)
        elif isinstance(node, datetime) and node.tzinfo is None:
            raise ValidationError(f"{path}: has no time zone", field=path)
