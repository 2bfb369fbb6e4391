"""What changed between two JSON values, as a JSON Patch (RFC 6902) in a stable order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mainspring.text.sanitize import MASK, masked, names_secret


def diff(before: Any, after: Any, path: str = "") -> list[dict[str, Any]]:
    """The operations that turn one value into the other; `old`, which appliers ignore, is for people who read them.

    >>> diff({"cents": 12.5, "to": ["Ada"]}, {"cents": 1250, "to": ["Ada", "Bob"]})
    [{'op': 'replace', 'path': '/cents', 'value': 1250, 'old': 12.5}, {'op': 'add', 'path': '/to/1', 'value': 'Bob'}]
    """
    if isinstance(before, dict) and isinstance(after, dict):
        return _objects(before, after, path)
    if isinstance(before, list) and isinstance(after, list):
        return _arrays(before, after, path)
    if type(before) is type(after) and before == after:  # 1, 1.0 and true are equal in Python, not in JSON
        return []
    return [{"op": "replace", "path": path, "value": after, "old": before}]


def without_secrets(changes: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The changes as they are kept and shown: a field that is named like a secret tells that it changed, no more.

    >>> without_secrets(diff({"token": "a"}, {"token": "b"}))
    [{'op': 'replace', 'path': '/token', 'value': '***', 'old': '***'}]
    """
    return [
        {name: value if name in ("op", "path") else MASK if secret else masked(value) for name, value in change.items()}
        for change in changes
        for secret in (any(map(names_secret, change["path"].split("/"))),)
    ]


def _objects(before: dict[str, Any], after: dict[str, Any], path: str) -> list[dict[str, Any]]:
    found = []
    for name in sorted(before.keys() | after.keys()):
        at = f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
        if name not in after:
            found.append({"op": "remove", "path": at, "old": before[name]})
        elif name not in before:
            found.append({"op": "add", "path": at, "value": after[name]})
        else:
            found += diff(before[name], after[name], at)
    return found


def _arrays(before: list[Any], after: list[Any], path: str) -> list[dict[str, Any]]:
    """Item by item; what is too much goes from the end, so that each index is right when its turn comes."""
    found = []
    for index, (old, new) in enumerate(zip(before, after, strict=False)):
        found += diff(old, new, f"{path}/{index}")
    for index in range(len(before) - 1, len(after) - 1, -1):
        found.append({"op": "remove", "path": f"{path}/{index}", "old": before[index]})
    for index in range(len(before), len(after)):
        found.append({"op": "add", "path": f"{path}/{index}", "value": after[index]})
    return found
