"""The form in which Stripe takes its parameters: `metadata[booking]=7&expand[]=latest_charge`."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qsl

from mainspring_sandbox.stripe.errors import invalid, missing

_NAME = re.compile(r"([^\[\]]+)((?:\[[^\[\]]*\])*)")
_DEEPEST = 6


def pairs(text: str) -> list[tuple[str, str]]:
    """Names and values, as they came."""
    try:
        return parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=1000)
    except ValueError:
        raise invalid("Invalid request: the parameters cannot be read.") from None


def nested(given: list[tuple[str, str]]) -> dict[str, Any]:
    """Names with brackets become dictionaries and lists.

    >>> nested([("amount", "5"), ("metadata[booking]", "7"), ("expand[]", "customer"), ("expand[]", "charge")])
    {'amount': '5', 'metadata': {'booking': '7'}, 'expand': ['customer', 'charge']}
    """
    tree: dict[str, Any] = {}
    for name, value in given:
        match = _NAME.fullmatch(name)
        steps = [match[1], *re.findall(r"\[([^\[\]]*)\]", match[2])] if match else []
        if not steps or len(steps) > _DEEPEST:
            raise invalid(f"Invalid parameter name: {name[:100]}", param=name[:100])
        place = tree
        for step in steps[:-1]:
            place = place.setdefault(step or str(len(place)), {})
            if not isinstance(place, dict):
                raise invalid(f"Invalid hash: {name} and its parent are both given", param=steps[0])
        last = steps[-1] or str(len(place))
        if isinstance(place.get(last), dict):
            raise invalid(f"Invalid hash: {name} and its parts are both given", param=steps[0])
        place[last] = value
    return {name: _listed(name, value) for name, value in tree.items()}


def _listed(name: str, value: Any) -> Any:
    """A dictionary whose keys are numbers is a list; not so metadata, whose keys are the caller's."""
    if not isinstance(value, dict) or name == "metadata":
        return value
    if value and all(key.isdecimal() for key in value):
        return [_listed(key, value[key]) for key in sorted(value, key=int)]
    return {key: _listed(key, part) for key, part in value.items()}


class FormParams:
    """The parameters of a request, each read as what it must be, or refused by name.

    >>> FormParams({"amount": "1250", "confirm": "true"}).integer("amount")
    1250
    """

    def __init__(self, given: dict[str, Any] | None = None) -> None:
        self.given = given or {}

    def __contains__(self, name: str) -> bool:
        return self.given.get(name) not in (None, "")

    def only(self, names: frozenset[str]) -> None:
        """Refuse what nobody knows: a misspelt parameter must not pass here and fail at Stripe."""
        for name in self.given:
            if name not in names:
                raise invalid(f"Received unknown parameter: {name}", param=name, code="parameter_unknown")

    def text(self, name: str) -> str | None:
        """A word."""
        value = self.given.get(name)
        if value is not None and not isinstance(value, str):
            raise invalid(f"Invalid string: {name}", param=name)
        return value or None

    def required(self, name: str) -> str:
        """A word that must be there."""
        value = self.text(name)
        if value is None:
            raise missing(name)
        return value

    def integer(self, name: str) -> int | None:
        """A whole number, not negative."""
        value = self.text(name)
        if value is None:
            return None
        if not re.fullmatch(r"[0-9]{1,15}", value):
            raise invalid(f"Invalid integer: {value[:50]}", param=name, code="parameter_invalid_integer")
        return int(value)

    def flag(self, name: str) -> bool | None:
        """True or false."""
        value = self.text(name)
        if value not in (None, "true", "false"):
            raise invalid(f"Invalid boolean: {value[:50]}", param=name)
        return None if value is None else value == "true"

    def part(self, name: str) -> dict[str, Any]:
        """What stands below a name."""
        value = self.given.get(name, {})
        if not isinstance(value, dict):
            raise invalid(f"Invalid hash: {name}", param=name)
        return value

    def words(self, name: str) -> list[str]:
        """Several words."""
        value = self.given.get(name, [])
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise invalid(f"Invalid array: {name}", param=name)
        return value

    def metadata(self, before: dict[str, str] | None = None) -> dict[str, str]:
        """What the caller writes on an object; an empty value takes a name away."""
        if self.given.get("metadata") == "":
            return {}
        after = dict(before or {})
        for key, value in self.part("metadata").items():
            if not isinstance(value, str):
                raise invalid("Metadata values must be strings", param=f"metadata[{key}]")
            if len(key) > 40 or len(value) > 500:
                raise invalid("Metadata: keys up to 40 characters, values up to 500", param=f"metadata[{key}]")
            after[key] = value
        if len(after) > 50:
            raise invalid("Metadata: up to 50 keys", param="metadata")
        return {key: value for key, value in after.items() if value != ""}
