"""Typed payloads: a handler's parameters are its payload.

::

    async def issue(ctx: Context, *, booking_id: int, note: str = "") -> None    {"booking_id": 7, "note": ""}
    async def issue(invoice: Invoice) -> None                                    {"id": 7, "total": 1250}
    async def issue(invoice: Invoice, note: str = "") -> None                    {"id": 7, "total": 1250, "note": ""}

A payload is one flat object: where the first parameter is a model, its fields stand in it, and the other parameters
beside them, so that neither a further parameter nor one that is gone changes what is there. `Invoice` may be a msgspec
Struct, a dataclass, an attrs class, a TypedDict or a pydantic model. Enqueue is strict: what the worker could not read
is refused, and defaults are written out, so that a job means the same after they change. A worker ignores fields that
it does not know: a newer enqueuer may already send them.
"""

from __future__ import annotations

import inspect
from copy import deepcopy
from functools import partial
from typing import Any, Final, NotRequired, TypedDict

import msgspec

from mainspring.declare.model import body_of, from_json, from_python, model_in, schema_of, to_json
from mainspring.declare.refusal import UNWRITABLE, refusal, refuse_unfit, unwritable
from mainspring.declare.signature import TypeShape, aware, parameters_of
from mainspring.errors import DeclarationError, ValidationError

Values = dict[str, Any]

_encode: Final = msgspec.json.Encoder(enc_hook=to_json).encode
_tops: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def codec_for(fn: Any, task: str) -> tuple[Codec, bool]:
    """The codec of a handler, and whether the handler takes the context.

    >>> async def greet(*, name: str, times: int = 1) -> None: ...
    >>> codec, wants_context = codec_for(greet, "greet")
    >>> codec.encode((), {"name": "Ada"})
    b'{"name":"Ada","times":1}'
    """
    parameters, wants_context = parameters_of(fn, task)
    for parameter in parameters:
        model, optional = model_in(parameter.annotation)
        if model is None:
            continue
        where = f"task {task}: parameter {parameter.name}"
        TypeShape(model, where)
        if body_of(schema_of(model)).get("properties") is not None:
            spread = parameter is parameters[0] and not optional
            return ModelCodec(parameters, task, parameter, model, spread=spread), wants_context
        if len(parameters) == 1:
            raise DeclarationError(f"{where}: a payload is an object, not an array or a single value")
    return Codec(parameters, task), wants_context


class Codec:
    """Turns the arguments of a call into a payload, and a payload into the arguments: each parameter is a field."""

    own = ""  # the parameter whose fields stand in the payload itself

    def __init__(self, parameters: list[inspect.Parameter], task: str) -> None:
        self.fields = self._names = tuple(parameter.name for parameter in parameters)
        self._task, self._hints = task, {parameter.name: aware(parameter.annotation) for parameter in parameters}
        shapes = [TypeShape(hint, f"task {task}: parameter {name}") for name, hint in self._hints.items()]
        # msgspec takes an instance of a model as it is: read back what was written
        self._recheck = any(shape.models for shape in shapes)
        self._floats = any(shape.floats for shape in shapes)
        self._naive = any(shape.naive for shape in shapes)
        self._defaults = {p.name: _default(p, self._hints[p.name], task) for p in parameters}
        self._type = self._struct(self._names)
        self._by_name = self._reader(self._names)

    def encode(self, args: tuple[Any, ...], kwargs: Values) -> bytes:
        """The payload of a job; arguments that do not fit are refused by name."""
        given = _named(args, kwargs, self._names) if args else kwargs
        try:
            value = msgspec.convert(given, self._type, dec_hook=from_python)
            raw = self._write(value)
            if self._recheck:
                self._read(raw.decode())
        except msgspec.ValidationError as error:
            raise refusal(error, (*self._names, *self.fields), self.own) from None
        except UNWRITABLE as error:
            raise unwritable(given, error) from None
        if self._naive or (self._floats and b"null" in raw):
            refuse_unfit(value, self.own)
        return raw

    def decode(self, text: str) -> Values:
        """The keyword arguments for the handler."""
        try:
            value = self._read(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise refusal(error, self.fields) from None
        if self._naive:
            refuse_unfit(value, self.own)
        return value

    def held(self, text: str) -> set[str]:
        """The names of the fields that a payload holds."""
        return set(_tops(text))

    def schema(self) -> Values:
        """The payload's JSON Schema."""
        return schema_of(self._type)

    def _write(self, value: Any) -> bytes:
        return _encode(value)

    def _read(self, text: str) -> Values:
        found: Values = self._by_name(text)
        return found

    def _struct(self, names: tuple[str, ...]) -> Any:
        fields = [(name, self._hints[name], self._defaults[name]) for name in names]
        return msgspec.defstruct(self._task, fields, kw_only=True, forbid_unknown_fields=True)

    def _reader(self, names: tuple[str, ...]) -> Any:
        # Measured: reading to a dict takes a third of the time of reading to a Struct and making a dict of it.
        optional = {name for name, default in self._defaults.items() if default is not msgspec.NODEFAULT}
        kinds = {name: NotRequired[self._hints[name]] if name in optional else self._hints[name] for name in names}
        return msgspec.json.Decoder(TypedDict(self._task, kinds), dec_hook=from_json).decode  # type: ignore[operator] # made at run time


class ModelCodec(Codec):
    """The fields of the first parameter, a model, stand in the payload itself, and the other parameters beside them.

    A model that comes later, or may be None, stands under its name, like any parameter (`spread` is False). Either is
    read in both shapes: jobs may be older than the handler.
    """

    def __init__(
        self, parameters: list[inspect.Parameter], task: str, parameter: inspect.Parameter, model: Any, *, spread: bool
    ) -> None:
        super().__init__(parameters, task)
        self._parameter, self._model, self._spread = parameter.name, model, spread
        self._others = tuple(name for name in self._names if name != parameter.name)
        inner = tuple(body_of(schema_of(model))["properties"])
        self._inner = frozenset(inner) - frozenset(() if spread else self._others)
        self._read_model = msgspec.json.Decoder(model, dec_hook=from_json).decode
        self._read_others = self._reader(self._others)
        if not spread:
            return
        for name in self._others:
            if name in self._inner:
                raise DeclarationError(
                    f"task {task}: parameter {name}: is a field of {parameter.name} as well, and a payload holds both: "
                    "give the parameter another name"
                )
        self.fields = (*inner, *self._others)
        self.own = "" if parameter.name in inner else parameter.name

    def held(self, text: str) -> set[str]:
        """The names of the fields that a payload holds, in either shape."""
        top = _tops(text)
        if self._spread and self._named_in(top):
            return set(_tops(top[self._parameter])) | (top.keys() - {self._parameter})
        return set(top)

    def schema(self) -> Values:
        """The payload's JSON Schema."""
        if not self._spread:
            return super().schema()
        schema = schema_of(self._model)
        if not self._others:
            return schema
        both = schema, schema_of(self._struct(self._others))
        bodies = [body_of(one) for one in both]
        defs = {name: body for one in both for name, body in one.get("$defs", {}).items() if body not in bodies}
        return {
            "title": self._task,
            "type": "object",
            "properties": {name: kind for body in bodies for name, kind in body["properties"].items()},
            "required": [name for body in bodies for name in body.get("required", ())],
        } | ({"$defs": defs} if defs else {})

    def _write(self, value: Any) -> bytes:
        if not self._spread:
            return super()._write(value)
        model = getattr(value, self._parameter)
        for name in (getattr(model, "model_extra", None) or {}).keys() & self._others:  # pydantic's `extra="allow"`
            raise ValidationError(f"{name}: is given twice", field=name)
        raw = _encode(model)
        if not self._others:
            return raw
        others = _encode({name: getattr(value, name) for name in self._others})
        return raw[:-1] + (b"," if len(raw) > len(b"{}") else b"") + others[1:]

    def _read(self, text: str) -> Values:
        name = self._parameter
        if self._spread and not self._others and f'"{name}"' not in text:  # what most are
            return {name: self._read_model(text)}
        top = _tops(text)
        if self._named_in(top):
            return super()._read(text)
        rest = {field: value for field, value in top.items() if field not in self._others}
        found: Values = self._read_others(text)
        try:
            found[name] = self._read_model(_encode(rest))
        except msgspec.ValidationError:
            if not self._spread:
                return super()._read(text)  # it only looked like one
            if self._defaults[name] is msgspec.NODEFAULT or self._inner & top.keys():
                raise
        return found  # without the model where nothing of it was given: the handler has a default for it

    def _named_in(self, top: dict[str, msgspec.Raw]) -> bool:
        """Whether a payload holds the model under its parameter's name: then none of its fields stands beside it."""
        name = self._parameter
        if not self._spread:
            return name in top or self._inner.isdisjoint(top)
        return name in top and name not in self._inner and self._inner.isdisjoint(top) and bytes(top[name])[:1] == b"{"


def _default(parameter: inspect.Parameter, hint: Any, task: str) -> Any:
    if parameter.default is parameter.empty:
        return msgspec.NODEFAULT
    try:
        msgspec.convert(parameter.default, hint, dec_hook=from_python)
    except msgspec.ValidationError as error:
        raise DeclarationError(f"task {task}: parameter {parameter.name}: its default: {error}") from None
    if isinstance(parameter.default, list | dict | set) or model_in(hint)[0] is not None:
        return msgspec.field(default_factory=partial(deepcopy, parameter.default))
    return parameter.default


def _named(args: tuple[Any, ...], kwargs: Values, names: tuple[str, ...]) -> Values:
    if len(args) > len(names):
        raise ValidationError(f"payload: {len(args)} values for {len(names)} fields", field="payload")
    named = dict(zip(names, args, strict=False))
    for field in named.keys() & kwargs.keys():
        raise ValidationError(f"{field}: is given twice", field=field)
    return named | kwargs
