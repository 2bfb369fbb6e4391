from __future__ import annotations

import enum
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Literal, NotRequired, TypedDict
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.declare.payload import Codec, codec_for
from mainspring.errors import DeclarationError, ValidationError

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NAIVE = datetime(2026, 1, 1, 12)  # noqa: DTZ001
NAN = float("nan")


class Colour(enum.Enum):
    RED = "red"


class Line(msgspec.Struct):
    name: str
    price: float = 0.0
    at: datetime | None = None


class InvoiceStruct(msgspec.Struct):
    id: int
    lines: list[Line] = []
    amount: float | None = None


@dataclass
class InvoiceDataclass:
    id: int
    lines: list[Line] = field(default_factory=list)
    amount: float | None = None


@attrs.define
class InvoiceAttrs:
    id: int
    lines: list[Line] = attrs.field(factory=list)
    amount: float | None = None


class InvoiceDict(TypedDict):
    id: int
    lines: NotRequired[list[Line]]
    amount: NotRequired[float | None]


class Item(pydantic.BaseModel):
    name: str
    at: datetime | None = None


class InvoicePydantic(pydantic.BaseModel):
    id: int
    lines: list[Item] = []
    amount: float | None = None
    due: date | None = pydantic.Field(default=None, alias="dueDate")


async def issue(*, booking_id: int, note: str = "", ratio: float = 1.0) -> None: ...
async def anything(*, value: Any) -> None: ...
async def by_struct(invoice: InvoiceStruct) -> None: ...
async def by_dataclass(invoice: InvoiceDataclass) -> None: ...
async def by_attrs(invoice: InvoiceAttrs) -> None: ...
async def by_typed_dict(invoice: InvoiceDict) -> None: ...
async def by_pydantic(*, invoice: InvoicePydantic) -> None: ...


async def rich(
    *,
    at: datetime,
    day: date,
    hour: time,
    span: timedelta,
    id: UUID,
    price: Decimal,
    colour: Colour,
    kind: Literal["a", "b"],
    numbers: set[int],
    pair: tuple[int, str],
    by_number: dict[int, str],
    blob: bytes,
    line: Line,
    maybe: int | None = None,
    tags: list[str] = ["x"],  # noqa: B006 (the point: each job gets its own)
) -> None: ...


def codec(fn: Callable[..., Any]) -> Codec:
    return codec_for(fn, fn.__name__)[0]


def refusal(action: Callable[[], object]) -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        action()
    assert str(caught.value).startswith(f"{caught.value.field}: ")
    return caught.value


def test_arguments_become_a_payload_with_the_defaults_written_out() -> None:
    assert codec(issue).encode((), {"booking_id": 7}) == b'{"booking_id":7,"note":"","ratio":1.0}'


def test_positional_arguments_count_in_the_order_of_the_signature() -> None:
    async def handler(booking_id: int, note: str = "") -> None: ...

    assert codec(handler).encode((7, "x"), {}) == codec(handler).encode((7,), {"note": "x"})


def test_a_task_without_parameters_has_an_empty_payload() -> None:
    async def tick() -> None: ...

    assert codec(tick).encode((), {}) == b"{}"
    assert codec(tick).decode("{}") == {}


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {"booking_id": "7"}, "booking_id: expected int, got str"),
        ((), {"booking_id": True}, "booking_id: expected int, got bool"),
        ((), {"booking_id": 7, "note": b"x"}, "note: expected str, got bytes"),
        ((), {"booking_id": 7, "note": None}, "note: expected str, got null"),
        ((), {}, "booking_id: is missing"),
        ((), {"booking_id": 7, "nots": "x"}, "nots: is not a field (did you mean 'note'?)"),
        ((), {"booking_id": 7, "note": "\ud800"}, "note: is not valid Unicode"),
        ((), {"booking_id": 7, "ratio": NAN}, "ratio: nan cannot be written as JSON"),
        ((), {"booking_id": 7, "ratio": float("-inf")}, "ratio: -inf cannot be written as JSON"),
        ((1, "a", 1.0, 2), {}, "payload: 4 values for 3 fields"),
        ((1,), {"booking_id": 7}, "booking_id: is given twice"),
    ],
)
def test_an_argument_that_does_not_fit_is_refused_by_name(
    args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    assert str(refusal(lambda: codec(issue).encode(args, kwargs))) == message


@pytest.mark.parametrize(
    "value",
    [object(), {"a": [object()]}, {(1, 2): 3}, "\ud800", {"\ud800": 1}, {"x": [1.0, NAN]}, [[float("inf")]]],
)
def test_a_value_that_json_cannot_hold_is_refused_by_name(value: Any) -> None:
    assert refusal(lambda: codec(anything).encode((), {"value": value})).field.startswith("value")


def test_null_is_not_mistaken_for_a_number_that_json_cannot_hold() -> None:
    assert codec(anything).encode((), {"value": {"a": None, "b": 1.5}}) == b'{"value":{"a":null,"b":1.5}}'


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)

    assert refusal(lambda: codec(anything).encode((), {"value": loop})).field == "value"


def test_every_type_comes_back_as_it_went() -> None:
    kwargs: dict[str, Any] = {
        "at": NOON,
        "day": date(2026, 1, 1),
        "hour": time(12, 30),
        "span": timedelta(hours=1),
        "id": UUID(int=7),
        "price": Decimal("0.10"),
        "colour": Colour.RED,
        "kind": "b",
        "numbers": {1, 2},
        "pair": (1, "x"),
        "by_number": {1: "x"},
        "blob": b"\x00\xff",
        "line": Line("x", 1.5, NOON),
    }
    rich_codec = codec(rich)

    assert rich_codec.decode(rich_codec.encode((), kwargs).decode()) == kwargs | {"maybe": None, "tags": ["x"]}


texts = st.text(st.characters(exclude_categories=["Cs"]))


@given(
    st.fixed_dictionaries(
        {"booking_id": st.integers(-(2**63), 2**64)},
        optional={"note": texts, "ratio": st.floats(allow_nan=False, allow_infinity=False)},
    )
)
def test_arguments_make_the_round_trip(kwargs: dict[str, Any]) -> None:
    text = ISSUE.encode((), kwargs).decode()

    assert ISSUE.decode(text) == {"note": "", "ratio": 1.0} | kwargs


ISSUE = codec(issue)


@given(st.dictionaries(st.sampled_from(["booking_id", "note", "ratio", "x"]), st.from_type(type).flatmap(st.from_type)))
def test_arbitrary_arguments_are_refused_or_make_the_round_trip(kwargs: dict[str, Any]) -> None:
    try:
        raw = ISSUE.encode((), kwargs)
    except ValidationError:
        return
    assert ISSUE.decode(raw.decode()).keys() == {"booking_id", "note", "ratio"}


def test_a_default_is_not_shared_between_jobs() -> None:
    async def collect(*, items: list[str] = ["a"]) -> None: ...  # noqa: B006

    made = codec(collect)
    made.decode(made.encode((), {}).decode())["items"].append("b")

    assert made.encode((), {}) == b'{"items":["a"]}'


def test_the_worker_ignores_fields_that_it_does_not_know() -> None:
    assert ISSUE.decode('{"booking_id":7,"sent_by_a_newer_version":true}') == {"booking_id": 7}
    assert codec(by_struct).decode('{"id":7,"newer":1}') == {"invoice": InvoiceStruct(7)}


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('{"booking_id":"7"}', "booking_id"),
        ("{}", "booking_id"),
        ("[]", "payload"),
        ("{", "payload"),
        ("", "payload"),
        ('{"booking_id":' + "[" * 100_000, "booking_id"),
    ],
)
def test_a_corrupted_payload_is_refused_before_the_handler_runs(text: str, field: str) -> None:
    assert refusal(lambda: ISSUE.decode(text)).field in (field, "payload")


# --- models

MODELS = [
    (by_struct, InvoiceStruct),
    (by_dataclass, InvoiceDataclass),
    (by_attrs, InvoiceAttrs),
    (by_typed_dict, InvoiceDict),
    (by_pydantic, InvoicePydantic),
]


@pytest.mark.parametrize(("fn", "model"), MODELS)
def test_the_fields_of_a_model_are_the_payload(fn: Callable[..., Any], model: Any) -> None:
    made = codec(fn)
    invoice = model(id=7, amount=1.5)

    raw = made.encode((invoice,), {})

    assert raw == made.encode((), {"invoice": invoice})
    assert json.loads(raw)["id"] == 7
    assert made.decode(raw.decode()) == {"invoice": invoice}
    assert set(made.fields) >= {"id", "lines", "amount", *json.loads(raw)}


@pytest.mark.parametrize(("fn", "model"), MODELS)
def test_a_model_may_be_given_as_a_plain_dict(fn: Callable[..., Any], model: Any) -> None:
    made = codec(fn)

    assert made.decode(made.encode(({"id": 7},), {}).decode()) == {"invoice": model(id=7)}


@pytest.mark.parametrize(("fn", "model"), MODELS[:-1])
def test_an_instance_that_lies_about_its_types_is_refused(fn: Callable[..., Any], model: Any) -> None:
    made = codec(fn)

    assert refusal(lambda: made.encode((model(id="7"),), {})).field == "id"
    assert refusal(lambda: made.encode((model(id=7, lines=[Line(5)]),), {})).field == "lines[0].name"  # type: ignore[arg-type]


@pytest.mark.parametrize(("fn", "model"), MODELS)
def test_a_model_holds_no_nan_and_no_time_without_a_zone(fn: Callable[..., Any], model: Any) -> None:
    made = codec(fn)
    line = Item if model is InvoicePydantic else Line

    assert refusal(lambda: made.encode((model(id=7, amount=NAN),), {})).field == "amount"
    assert refusal(lambda: made.encode((model(id=7, lines=[line(name="x", at=NAIVE)]),), {})).field == "lines[0].at"
    made.encode((model(id=7, lines=[line(name="x", at=NOON)]),), {})


@pytest.mark.parametrize(("fn", "_model"), MODELS)
def test_a_wrong_call_with_a_model_is_refused_by_name(fn: Callable[..., Any], _model: Any) -> None:
    made = codec(fn)

    assert refusal(lambda: made.encode((), {})).field == "invoice"
    assert refusal(lambda: made.encode((), {"invoise": {}})).field == "invoise"
    assert refusal(lambda: made.encode(({},), {})).field == "id"
    assert refusal(lambda: made.encode((7,), {})).field in ("payload", "invoice")
    assert refusal(lambda: made.decode('{"id":"x"}')).field == "id"
    assert refusal(lambda: made.decode("{")).field in ("payload", "invoice")


def test_a_pydantic_model_keeps_its_aliases() -> None:
    made = codec(by_pydantic)
    invoice = InvoicePydantic(id=7, dueDate=date(2026, 1, 1))

    assert json.loads(made.encode((invoice,), {}))["dueDate"] == "2026-01-01"
    assert made.decode(made.encode((invoice,), {}).decode()) == {"invoice": invoice}


def test_an_array_is_no_payload() -> None:
    class Row(msgspec.Struct, array_like=True):
        id: int

    async def handler(row: Any) -> None: ...

    handler.__annotations__["row"] = Row

    with pytest.raises(DeclarationError, match="object"):
        codec(handler)


def test_a_time_without_a_zone_is_refused_on_both_sides() -> None:
    async def remind(*, at: datetime, others: list[datetime | None] | None = None) -> None: ...

    made = codec(remind)
    text = made.encode((), {"at": NOON, "others": [NOON, None]}).decode()

    assert made.decode(text) == {"at": NOON, "others": [NOON, None]}
    assert refusal(lambda: made.encode((), {"at": NAIVE})).field == "at"
    assert refusal(lambda: made.encode((), {"at": NOON, "others": [NAIVE]})).field == "others[0]"
    assert refusal(lambda: made.decode('{"at":"2026-01-01T12:00:00"}')).field == "at"


def test_a_time_without_a_zone_is_refused_inside_a_model_too() -> None:
    text = '{"id":1,"lines":[{"name":"x","at":"2026-01-01T00:00:00"}]}'

    assert refusal(lambda: codec(by_struct).decode(text)).field == "lines[0].at"


def test_a_default_that_does_not_fit_is_a_mistake_of_the_declaration() -> None:
    async def handler(*, number: int = "7") -> None: ...  # type: ignore[assignment]

    with pytest.raises(DeclarationError, match="parameter number: its default"):
        codec(handler)


@pytest.mark.rule("ENG-2.13")
@pytest.mark.parametrize("fn", [issue, *(fn for fn, _ in MODELS)])
def test_a_payload_has_a_json_schema(fn: Callable[..., Any]) -> None:
    schema = codec(fn).schema()
    body = schema["$defs"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema

    assert body["type"] == "object"
    assert tuple(body["properties"]) == codec(fn).fields
    json.dumps(schema)


def test_pydantic_is_never_imported_by_us() -> None:
    code = "import mainspring.declare.registry, sys; sys.exit('pydantic' in sys.modules)"

    subprocess.run([sys.executable, "-c", code], check=True)
