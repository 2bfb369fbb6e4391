"""What somebody sends back of what they were shown masked: what they left as they saw it is what it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from mainspring.errors import ValidationError
from mainspring.text.document import MAX_DEPTH


def restore(sent: dict[str, Any], kept: dict[str, Any], show: Callable[[Any], Any]) -> dict[str, Any]:
    """The fields as they are meant: a value that still is as `show` masks it is put back; `sent` may be some of them.

    A masked text in another place is refused: nobody means to write it.

    >>> hide = lambda value: {name: text[:1] + "***" for name, text in value.items()}
    >>> restore({"to": "j***", "name": "Bob"}, {"to": "jane", "name": "Ada"}, hide)
    {'to': 'jane', 'name': 'Bob'}
    >>> restore({"name": "j***"}, {"to": "jane", "name": "Ada"}, hide)
    Traceback (most recent call last):
    mainspring.errors.ValidationError: name: is masked, and cannot be written; leave it as it was shown, or out
    """
    shown = show(kept)
    hidden = frozenset(_hidden(shown, kept))
    found: dict[str, Any] = _restored(sent, shown, kept, hidden, ())
    return found


def rewrites(sent: dict[str, Any], kept: dict[str, Any], show: Callable[[Any], Any]) -> bool:
    """Whether something is said where only a mask was shown: who learns if it changed anything learns what was there.

    >>> hide = lambda value: {name: text[:1] + "***" for name, text in value.items()}
    >>> [rewrites({"to": sent}, {"to": "jane"}, hide) for sent in ("j***", "jane", "bob")]
    [False, True, True]
    """
    return _rewrites(sent, show(kept), kept)


def _rewrites(sent: Any, shown: Any, kept: Any) -> bool:
    if isinstance(shown, str) and shown != kept:
        return bool(sent != shown)
    match sent, shown, kept:
        case dict(), dict(), dict():
            parts = {name: (inner, kept[real]) for (name, inner), real in zip(shown.items(), kept, strict=True)}
            masked_names = list(shown) != list(kept)  # then a name that was not shown may be a guess of one
            return any(
                _rewrites(value, *parts[name]) if name in parts else masked_names for name, value in sent.items()
            )
        case list(), list(), list():
            return any(_rewrites(*part) for part in zip(sent, shown, kept, strict=False))
    return False


def _restored(sent: Any, shown: Any, kept: Any, hidden: frozenset[str], path: tuple[str, ...]) -> Any:
    if len(path) > MAX_DEPTH:  # what is checked only once it is restored
        raise ValidationError(f"{path[0]}: is nested deeper than {MAX_DEPTH} levels", field=path[0])
    match sent, shown, kept:
        case dict(), dict(), dict():
            named = _named(shown, kept, path)
            return {
                named.get(name, name): _restored(
                    value, shown.get(name), kept.get(named.get(name)), hidden, (*path, name)
                )
                for name, value in sent.items()
            }
        case list(), list(), list():
            beyond = [(None, None)] * len(sent)  # more were sent than were shown
            places = zip(sent, [*zip(shown, kept, strict=True), *beyond], strict=False)
            return [_restored(value, was, is_, hidden, (*path, str(n))) for n, (value, (was, is_)) in enumerate(places)]
        case str(), str(), _ if sent == shown:
            return kept
        case dict(), _, _:
            return {name: _restored(value, None, None, hidden, (*path, name)) for name, value in sent.items()}
        case list(), _, _:
            return [_restored(value, None, None, hidden, (*path, str(n))) for n, value in enumerate(sent)]
        case str(), _, _ if sent in hidden:
            field = ".".join(path)
            text = f"{field}: is masked, and cannot be written; leave it as it was shown, or out"
            raise ValidationError(text, field=field)
    return sent


def _named(shown: dict[str, Any], kept: dict[str, Any], path: tuple[str, ...]) -> dict[str, str]:
    """The real names of what is shown; two that are masked alike cannot be told apart."""
    if len(shown) != len(kept):
        field = ".".join(path) or "payload"
        raise ValidationError(f"{field}: has names that are masked alike, and cannot be changed here", field=field)
    return dict(zip(shown, kept, strict=True))


def _hidden(shown: Any, kept: Any) -> Iterator[str]:
    """The texts that stand where something is masked."""
    match shown, kept:
        case dict(), dict():
            for inner, real in zip(shown.values(), kept.values(), strict=False):
                yield from _hidden(inner, real)
        case list(), list():
            for inner, real in zip(shown, kept, strict=True):
                yield from _hidden(inner, real)
        case str(), _ if shown != kept:
            yield shown
