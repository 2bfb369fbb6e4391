"""Chunks: lists of items that one job works through, and how a list that fails is halved until one item is left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

import msgspec

from mainspring.errors import ValidationError
from mainspring.outcome import Failed, Move, Outcome

T = TypeVar("T")
#: What `ctx.each` saves as a checkpoint: so many items are done.
EACH_CHECKPOINT: Final = "each"
_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_items: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_encode: Final = msgspec.json.Encoder().encode


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Items in lists of at most `size`.

    >>> list(chunks(range(5), 2))
    [[0, 1], [2, 3], [4]]
    """
    if size < 1:
        raise ValidationError("size: is not positive", field="size")
    some: list[T] = []
    for item in items:
        some.append(item)
        if len(some) == size:
            yield some
            some = []
    if some:
        yield some


def halved(payload: str, field: str, done: int) -> tuple[bytes, bytes] | None:
    """The payloads of two jobs, each with half of the items that are not done; None where there are not two.

    >>> halved('{"rows": [1, 2, 3, 4], "day": "mon"}', "rows", 1)
    (b'{"rows":[2,3],"day":"mon"}', b'{"rows":[4],"day":"mon"}')
    """
    try:
        fields = _fields(payload)
        left = _items(fields[field])[done:]
    except (msgspec.DecodeError, KeyError):  # not a list: nothing that could be halved
        return None
    middle = (len(left) + 1) // 2
    if middle == len(left):
        return None
    first, second = (_encode(fields | {field: some}) for some in (left[:middle], left[middle:]))
    return first, second


def fails(outcome: Outcome, move: Move, moved_on: bool) -> bool:
    """Whether an attempt's end means that the rest of its chunk is halved, rather than tried again as it is.

    It is not where a provider said when to come back, nor where it ran out of time but got further: the next attempt
    goes on from there. What would fail for good or die is always halved.
    """
    if not isinstance(outcome, Failed):
        return False
    as_it_is = outcome.after is not None or (outcome.error.code == "TIMEOUT" and moved_on)
    return move.verb in ("reject", "bury") or (move.verb == "fail" and not as_it_is)
