"""What commands of applications share: a desk and a connection, tables, JSON, and the command that shows settings."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pkgutil import resolve_name
from typing import Annotated, Any, Protocol, TypeVar
from zoneinfo import ZoneInfo

import msgspec
import psycopg
from cyclopts import App, Parameter

from mainspring.errors import ConfigurationError, DatabaseUnavailable
from mainspring_apps.frame.desk import BaseDesk
from mainspring_apps.frame.settings import Choices, shown
from mainspring_apps.frame.store import Conn

B_co = TypeVar("B_co", bound=BaseDesk, covariant=True)
D = TypeVar("D", bound=BaseDesk)
FLAG = Parameter(negative="", show_default=False)


class Commanded(Protocol[B_co]):
    """An application that commands act on."""

    @property
    def desk(self) -> B_co:
        """What its handlers are handed."""

    @property
    def dsn(self) -> str:
        """Its database."""


class HasSettings(Protocol):
    """What a desk is to the command that shows settings."""

    @property
    def settings(self) -> Choices:
        """What holds."""


@contextmanager
def connected(app: Commanded[D]) -> Iterator[tuple[D, Conn]]:
    """The desk of an application, and a connection whose transaction commits at the end of the block."""
    try:
        with psycopg.connect(app.dsn) as conn:
            yield app.desk, conn
    except psycopg.OperationalError as error:
        raise DatabaseUnavailable(str(error).strip().partition("\n")[0]) from None
    except psycopg.errors.UndefinedTable:
        name = app.desk.NAME
        raise ConfigurationError(f"{name} has no tables here: mainspring schema migrate --app {name}") from None
    finally:
        app.desk.close()


def command_settings(app: App, kind: type, make: Callable[[], Any]) -> None:
    """Add the command `settings` to those of an application, of a class that the environment makes."""

    @app.command(name="settings")
    def list_settings(
        *, application: Annotated[str | None, Parameter(name="--app")] = None, json: Annotated[bool, FLAG] = False
    ) -> None:
        """Show every setting: its value, its default, what has set it, and what it is.

        Args:
            application: The application, as module:name; else MAINSPRING_APP, or the one that the environment makes.
            json: Print one JSON document and nothing else.
        """
        found: HasSettings = _found(application or os.environ.get("MAINSPRING_APP"), kind, make).desk
        said = shown(found.settings)
        if json:
            print_json(said)
            return
        rows = [(one.name, one.value, one.default, one.source, one.about) for one in said]
        print("\n".join(table(("NAME", "VALUE", "DEFAULT", "FROM", "WHAT IT IS"), rows)))


def _found(place: str | None, kind: type, make: Callable[[], Any]) -> Any:
    """An application that somebody has made in code, or one as the environment says."""
    if place is None or ":" not in place:
        return make()
    sys.path.insert(0, os.getcwd())
    try:
        found = resolve_name(place)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"app: {place}: {error}") from None
    if not isinstance(found, kind):
        raise ConfigurationError(f"app: {place} is a {type(found).__name__}, not a {kind.__name__}")
    return found


def print_json(value: Any) -> None:
    """Print a value as one JSON document."""
    print(msgspec.json.format(msgspec.json.encode(value)).decode())


def both(at: datetime, zone: str) -> str:
    """An instant by the clock of a zone, and by UTC."""
    return f"{at.astimezone(ZoneInfo(zone)):%a %Y-%m-%d %H:%M} ({at.astimezone(ZoneInfo('UTC')):%Y-%m-%d %H:%M}Z)"


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Columns as wide as they need to be."""
    whole = [tuple(head), *(tuple(map(str, row)) for row in rows)]
    widths = [max(len(row[place]) for row in whole) for place in range(len(head))]
    for row in whole:
        yield "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
    if len(whole) == 1:
        yield "nothing"
