"""What an operation is asked with: parameters in the path and the query, and a body, each by the type that it says."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, get_args, get_origin

import msgspec
from msgspec.structs import fields
from starlette.datastructures import QueryParams

from mainspring.declare.refusal import refusal
from mainspring.declare.signature import aware
from mainspring.errors import DeclarationError, ValidationError
from mainspring.text.texts import MAX_REASON, did_you_mean, shown, text_problem
from mainspring.web.api.instants import in_utc
from mainspring.web.api.paging import CURSOR, LIMIT, Paging
from mainspring.web.api.slashes import with_slashes
from mainspring.web.api.terms import OrgName

OrgParameter = Annotated[
    OrgName | None,
    msgspec.Meta(description="The organisation; who belongs to one sees no other."),
]
#: NUL, which no text of PostgreSQL holds, as JSON writes it.
_NUL: Final = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


class Inputs:
    """The parameters of a handler, read from a request.

    Those named in the path are its; `body`, a Struct that forbids unknown fields, is the body; `page`, a `Paging` of
    what the list is ordered by, is a limit and a cursor; all others stand in the query, as does `org` everywhere: of
    `only`, a Struct, its fields do. One that may come several times is a tuple: `state: tuple[State, ...] = ()`.
    """

    def __init__(self, handler: Callable[..., Any], path: str, hints: Mapping[str, Any]) -> None:
        names = re.findall(r"{(\w+)}", path)
        _, *parameters = inspect.signature(handler).parameters.values()
        self._where = handler.__name__
        self.body: Any = hints.get("body")
        self.only: Any = hints.get("only")
        self.place: Any = None  # what a list is ordered by
        own: list[Any] = []
        query: list[Any] = [("org", OrgParameter, None)]
        for parameter in parameters:
            hint = aware(hints[parameter.name])
            default = msgspec.NODEFAULT if parameter.default is parameter.empty else parameter.default
            if parameter.name in names:
                own.append((parameter.name, hint))
            elif get_origin(hint) is Paging:
                (self.place,) = get_args(hint)
                query += [("limit", LIMIT, 50), ("cursor", CURSOR, None)]
            elif parameter.name == "only":
                query += [(field.name, aware(field.type), field.default) for field in fields(hint)]
            elif parameter.name != "body":
                query.append((parameter.name, hint, default))
        if {name for name, _ in own} != set(names):
            raise DeclarationError(f"{self._where}: its parameters and its path {path} do not name the same")
        if self.body is not None and not self.body.__struct_config__.forbid_unknown_fields:
            raise DeclarationError(f"{self._where}: its body must forbid unknown fields")
        self.path = msgspec.defstruct(f"{self._where}_path", own, kw_only=True)
        self.query = msgspec.defstruct(f"{self._where}_query", query, kw_only=True)
        self._lists = {name for name, hint, _ in query if get_origin(hint) is tuple}

    def of_path(self, given: Mapping[str, str]) -> dict[str, Any]:
        """The values of the path."""
        return self._read(self.path, {name: with_slashes(value) for name, value in given.items()})

    def of_query(self, given: QueryParams) -> dict[str, Any]:
        """The values of the query; one that is not known, or comes twice, is refused by its name."""
        known: Sequence[str] = self.query.__struct_fields__
        values: dict[str, Any] = {}
        for name, value in given.multi_items():
            if name not in known:
                raise ValidationError(
                    f"{shown(name)}: is not a parameter{did_you_mean(name, known)}", field=shown(name)
                )
            if name in self._lists:
                values.setdefault(name, []).append(value)
            elif name in values:
                raise ValidationError(f"{name}: is given twice", field=name)
            else:
                values[name] = value
        return self._read(self.query, values)

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """As the handler takes them: what `only` has fields for in one."""
        if self.only is None:
            return dict(given)
        meant = {name: given[name] for name in self.only.__struct_fields__}
        return {name: value for name, value in given.items() if name not in meant} | {"only": self.only(**meant)}

    def of_body(self, raw: bytes) -> Any:
        """The body as its type, strictly."""
        if self.body is None:
            if raw.strip() not in (b"", b"{}"):
                raise ValidationError("body: is not taken here", field="body")
            return None
        if _NUL.search(raw):
            raise ValidationError("body: has a NUL character, which cannot be stored", field="body")
        try:
            return in_utc(msgspec.json.decode(raw or b"{}", type=self.body), "body")
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise self._of_body(error) from None

    def _of_body(self, error: Exception) -> ValidationError:
        if isinstance(error, UnicodeDecodeError):
            return ValidationError("body: is not valid UTF-8", field="body")
        ours = refusal(error, self.body.__struct_fields__)
        if ours.field != "payload" or "`$" in str(error) or "field `" in str(error):
            return ours
        return ValidationError(f"body{str(ours).removeprefix('payload')}", field="body")

    def _read(self, kind: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        for name, value in given.items():
            for text in value if isinstance(value, list) else [value]:
                if problem := text_problem(text, MAX_REASON):
                    raise ValidationError(f"{name}: {problem}", field=name)
        try:
            return msgspec.structs.asdict(in_utc(msgspec.convert(given, kind, strict=False), "query"))
        except msgspec.ValidationError as error:
            raise refusal(error, kind.__struct_fields__) from None
