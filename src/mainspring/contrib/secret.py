"""A secret that shows nothing of itself: not in logs, errors, tracebacks or pickles."""

from __future__ import annotations

from typing import NoReturn

from mainspring.text.sanitize import MASK


class Secret:
    """A key or password, which only `reveal` gives away.

    >>> Secret("hunter2")
    ***
    >>> f"the key is {Secret('hunter2')}"
    'the key is ***'
    """

    __slots__ = ("_value",)

    def __init__(self, value: str | Secret) -> None:
        self._value: str = value.reveal() if isinstance(value, Secret) else value

    def reveal(self) -> str:
        """The secret, for whom it is meant."""
        return self._value

    def __bool__(self) -> bool:
        return bool(self._value)

    def __repr__(self) -> str:
        return MASK

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not written down")
