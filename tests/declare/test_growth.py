"""Payloads outlive the handlers that they were written for: each shape that was ever stored is read, one is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pydantic
import pytest
from tests.declare.test_payload import (
    MODELS,
    NAIVE,
    NOON,
    InvoicePydantic,
    InvoiceStruct,
    Item,
    by_attrs,
    by_dataclass,
    by_pydantic,
    by_struct,
    by_typed_dict,
    codec,
    refusal,
)

from mainspring import Registry
from mainspring.dedupe import keep
from mainspring.errors import DeclarationError, ValidationError

FLAT = '{"id":7,"lines":[],"amount":1.5}'
KINDS = [model for _, model in MODELS]


def handler(**hints: Any) -> Callable[..., Any]:
    """A handler with such parameters; (type, default) is one with a default."""
    made = {name: hint if isinstance(hint, tuple) else (hint,) for name, hint in hints.items()}
    namespace = {f"_{name}": parts for name, parts in made.items()}
    said = (f"{name}: _{name}[0]" + (f" = _{name}[1]" if len(parts) > 1 else "") for name, parts in made.items())
    exec(f"async def issue({', '.join(said)}) -> None: ...", namespace)
    return namespace["issue"]  # type: ignore[return-value] # made at run time


@pytest.mark.parametrize("model", KINDS)
def test_a_further_parameter_stands_beside_what_was_there(model: Any) -> None:
    alone, grown = codec(handler(invoice=model)), codec(handler(invoice=model, note=(str, "")))
    invoice = model(id=7, amount=1.5)

    before, after = (json.loads(made.encode((invoice,), {})) for made in (alone, grown))

    assert after == before | {"note": ""}
    assert grown.fields == (*alone.fields, "note")
    assert grown.decode(json.dumps(after | {"note": "x"})) == {"invoice": invoice, "note": "x"}
    assert grown.decode(json.dumps(before)) == {"invoice": invoice}, "a job from before it was added"
    assert alone.decode(json.dumps(after)) == {"invoice": invoice}, "a worker from before it was added"


@pytest.mark.parametrize("model", KINDS)
@pytest.mark.parametrize("note", [{}, {"note": "x"}], ids=["alone", "with another"])
def test_a_payload_with_the_model_under_its_name_is_read_as_well(model: Any, note: dict[str, str]) -> None:
    text = json.dumps({"invoice": json.loads(FLAT)} | note)
    invoice = model(id=7, lines=[], amount=1.5)

    assert codec(handler(invoice=model)).decode(text) == {"invoice": invoice}
    assert codec(handler(invoice=model, note=(str, ""))).decode(text) == {"invoice": invoice} | note


@pytest.mark.parametrize("model", KINDS)
def test_a_model_that_became_optional_or_went_to_the_end_is_still_found(model: Any) -> None:
    invoice = model(id=7, lines=[], amount=1.5)
    optional = codec(handler(invoice=(model | None, None)))
    behind = codec(handler(note=str, invoice=model))

    assert optional.decode(FLAT) == {"invoice": invoice}
    assert optional.decode("{}") == {}
    assert optional.decode('{"invoice":null}') == {"invoice": None}
    assert json.loads(optional.encode((), {"invoice": invoice})).keys() == {"invoice"}
    assert behind.decode(FLAT[:-1] + ',"note":"x"}') == {"invoice": invoice, "note": "x"}
    assert behind.decode(behind.encode((), {"invoice": invoice, "note": "x"}).decode()) == {
        "invoice": invoice,
        "note": "x",
    }


def test_a_field_of_a_newer_release_is_not_taken_for_the_model() -> None:
    """A release that drops `line` and adds `price` sends what an older worker must not take for a line."""
    older = codec(handler(id=int, line=(InvoiceStruct | None, None)))

    assert older.decode('{"id":7,"amount":2.5}') == {"id": 7}


def test_a_field_of_a_newer_release_that_is_called_like_the_parameter_is_ignored() -> None:
    for made in (codec(handler(invoice=InvoiceStruct)), codec(handler(invoice=InvoiceStruct, note=(str, "")))):
        assert made.decode('{"id":7,"invoice":{"id":8}}') == {"invoice": InvoiceStruct(7)}
        assert made.held('{"id":7,"invoice":{"id":8}}') == {"id", "invoice"}


def test_a_field_called_like_the_parameter_is_the_models() -> None:
    class Message(msgspec.Struct):
        message: dict[str, int]
        to: str = "all"

    made = codec(handler(message=Message, note=(str, "")))

    assert json.loads(made.encode((Message({"a": 1}),), {})) == {"message": {"a": 1}, "to": "all", "note": ""}
    assert made.decode('{"message":{"a":1}}') == {"message": Message({"a": 1})}


def test_a_parameter_called_like_a_field_of_the_model_is_refused_at_the_declaration() -> None:
    with pytest.raises(DeclarationError, match=r"parameter amount: is a field of invoice as well.*another name"):
        codec(handler(invoice=InvoiceStruct, amount=(float, 0.0)))


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")

    id: int


class Open(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")

    id: int


class Closed(msgspec.Struct, forbid_unknown_fields=True):
    id: int


@pytest.mark.parametrize("model", [Strict, Closed, Open])
def test_a_model_sees_its_own_fields_only(model: Any) -> None:
    made = codec(handler(invoice=model, note=(str, "")))

    assert made.decode('{"id":7,"note":"x"}') == {"invoice": model(id=7), "note": "x"}


def test_what_a_model_would_carry_besides_is_not_lost_in_silence() -> None:
    made = codec(handler(invoice=Open, note=(str, "")))

    assert json.loads(made.encode((Open(id=7, more=1),), {}))["more"] == 1  # type: ignore[call-arg] # it is open
    assert refusal(lambda: made.encode((Open(id=7, note="lost"),), {})).field == "note"  # type: ignore[call-arg] # the same


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (Item, Item(name="x", at=NOON)),
        (list[Item], [Item(name="x"), Item(name="y", at=NOON)]),
        (dict[str, Item], {"a": Item(name="x")}),
        (Item | None, Item(name="x")),
        (Item | None, None),
        (InvoicePydantic, InvoicePydantic(id=7, lines=[Item(name="x")])),
    ],
)
def test_pydantic_models_stand_beside_other_parameters_and_inside_of_them(hint: Any, value: Any) -> None:
    made = codec(handler(booking_id=int, thing=hint))

    text = made.encode((7, value), {}).decode()

    assert made.decode(text) == {"booking_id": 7, "thing": value}
    assert set(made.schema()["$defs"]["issue"]["properties"]) == {"booking_id", "thing"}
    json.dumps(made.schema())


def test_what_is_wrong_inside_of_a_pydantic_model_is_named_by_its_place() -> None:
    made = codec(handler(booking_id=int, things=list[Item]))

    assert refusal(lambda: made.encode((7, [{"name": 7}]), {})).field == "things[0].name"
    assert refusal(lambda: made.encode((7, [Item(name="x", at=NAIVE)]), {})).field == "things[0].at"
    assert refusal(lambda: made.decode('{"booking_id":7,"things":[{}]}')).field == "things[0].name"
    assert "hunter2" not in str(refusal(lambda: made.decode('{"booking_id":7,"things":["hunter2"]}')))


def test_a_date_of_a_strict_pydantic_model_survives_json() -> None:
    class Stay(pydantic.BaseModel, strict=True):
        at: pydantic.AwareDatetime

    made = codec(handler(stay=Stay, note=(str, "")))

    assert made.decode(made.encode((Stay(at=NOON),), {}).decode()) == {"stay": Stay(at=NOON), "note": ""}


@pytest.mark.parametrize("fn", [by_struct, by_dataclass, by_attrs, by_typed_dict, by_pydantic])
def test_the_schema_is_that_of_what_is_written(fn: Callable[..., Any]) -> None:
    (model,) = (hint for name, hint in fn.__annotations__.items() if name == "invoice")
    model = next(kind for kind in KINDS if kind.__name__ == model)
    made = codec(handler(invoice=model, note=(str, "")))

    schema = made.schema()

    assert tuple(schema["properties"]) == made.fields
    assert schema["required"] == ["id"]
    assert schema["properties"]["note"] == {"type": "string", "default": ""}


def test_keys_subjects_and_what_a_person_types_name_the_fields_of_the_model() -> None:
    tasks = Registry("shop")

    def issue(invoice: InvoiceStruct, note: str = "") -> None: ...

    issue.__annotations__ = {"invoice": InvoiceStruct, "note": str}
    task = tasks.task(dedupe=keep("{id}"), strand="invoice:{id}:{note}", subject="id", halve="lines")(issue)

    job = task.job(InvoiceStruct(7), note="x")
    assert (job.key, job.strand) == ("issue:7", "invoice:7:x")
    for typed in ('{"id":7,"note":"x"}', '{"invoice":{"id":7},"note":"x"}'):
        assert task.typed(typed) == job
    for wrong in ('{"id":7,"nose":"x"}', '{"invoice":{"id":7,"nose":1}}'):
        with pytest.raises(ValidationError, match="nose: is not a field"):
            task.typed(wrong)


def test_a_model_with_a_default_may_be_left_out() -> None:
    default = InvoiceStruct(1)
    made = codec(handler(invoice=(InvoiceStruct, default), note=(str, "")))

    assert json.loads(made.encode((), {})) == {"id": 1, "lines": [], "amount": None, "note": ""}
    assert made.decode('{"note":"x"}') == {"note": "x"}
    assert refusal(lambda: made.decode('{"amount":1.5}')).field == "id"


def test_a_model_that_is_no_object_is_no_payload() -> None:
    class Rows(pydantic.RootModel[list[int]]): ...

    with pytest.raises(DeclarationError, match="a payload is an object"):
        codec(handler(rows=Rows))
    beside = codec(handler(rows=Rows, note=(str, "")))
    assert beside.encode((Rows([1]),), {}) == b'{"rows":[1],"note":""}'
