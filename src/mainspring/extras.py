"""Extras: libraries that only some processes need, and the sentence for whoever lacks one."""

from __future__ import annotations

from importlib.util import find_spec

from mainspring.errors import ConfigurationError


def installed(*libraries: str) -> bool:
    """Whether all of these can be imported.

    >>> installed("json"), installed("json", "no_such_library")
    (True, False)
    """
    return all(find_spec(library) is not None for library in libraries)


def needs(who: str, extra: str, *libraries: str) -> None:
    """Say what to install, unless these are there.

    >>> needs("a worker needs", "worker", "no_such_library")
    Traceback (most recent call last):
    mainspring.errors.ConfigurationError: a worker needs an extra: pip install 'mainspring[worker]'
    """
    if not installed(*libraries):
        raise ConfigurationError(f"{who} an extra: pip install 'mainspring[{extra}]'")
