"""The difference of two payloads: a JSON Patch that says exactly what changed."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.text.diff import diff

SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9, allow_nan=False) | st.text(max_size=3)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "b", "a/b", "~", ""]), inner),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.sampled_from(["a", "b", "c/d", "e~f"]), VALUES)


def apply(value: Any, patch: list[dict[str, Any]]) -> Any:
    """RFC 6902, as far as it is needed here."""
    whole = {"": copy.deepcopy(value)}
    for change in patch:
        *path, last = [part.replace("~1", "/").replace("~0", "~") for part in change["path"].split("/")]
        if not path:
            path, last = [], ""
        place: Any = whole
        for part in path:
            place = place[int(part) if isinstance(place, list) else part]
        at = int(last) if isinstance(place, list) else last
        if change["op"] == "remove":
            assert same(place.pop(at), change["old"])
        elif change["op"] == "add" and isinstance(place, list):
            place.insert(at, change["value"])
        else:
            assert change["op"] == "add" or same(place[at], change["old"])
            place[at] = change["value"]
    return whole[""]


def same(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


@settings(max_examples=150, deadline=None)
@given(OBJECTS, OBJECTS)
def test_the_patch_turns_one_into_the_other_and_says_nothing_when_they_are_the_same(before: Any, after: Any) -> None:
    patch = diff(before, after)
    assert same(apply(before, patch), after)
    assert (patch == []) is same(before, after)
    assert diff(before, before) == []


def test_the_order_is_stable_whatever_the_order_of_the_fields() -> None:
    assert diff({"b": 1, "a": 1}, {"a": 2, "b": 2}) == diff({"a": 1, "b": 1}, {"b": 2, "a": 2})
    assert [change["path"] for change in diff({"b": 1, "a": [1, 2, 3]}, {"a": [2], "c/d": 1})] == [
        "/a/0",
        "/a/2",
        "/a/1",
        "/b",
        "/c~1d",
    ]


def test_numbers_and_truth_are_told_apart() -> None:
    assert [change["path"] for change in diff({"a": 1, "b": 1, "c": 0}, {"a": True, "b": 1.0, "c": False})] == [
        "/a",
        "/b",
        "/c",
    ]
