"""Which database and which application a command works with, and who acts."""

from __future__ import annotations

import getpass
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from cyclopts import Parameter

from mainspring.config import DEFAULT_SCHEMA, answered_within, database
from mainspring.errors import ConfigurationError, MainspringError

if TYPE_CHECKING:
    import psycopg

    from mainspring.app import App
    from mainspring.client import Client
    from mainspring.db.jobs import Who
    from mainspring.db.wire.sql import Sql
    from mainspring.db.wire.statement import Dialogue

T = TypeVar("T")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run under a number that has no name
        return str(os.getuid())


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ConnectionOptions:
    """The options that every command shares."""

    dsn: str | None = None
    """The database; else the application's, MAINSPRING_DSN, DATABASE_URL, or the one of `mainspring up` here."""

    schema: str | None = None
    """The database schema; else the application's, or `mainspring`."""

    app: str | None = None
    """The application, as module:name; else MAINSPRING_APP."""

    user: Annotated[str | None, Parameter(name="--as")] = None
    """Who acts, for the audit trail; else your user name."""

    json: Annotated[bool, Parameter(negative="", show_default=False)] = False
    """Print one JSON document and nothing else."""

    def application(self) -> App | None:
        """The application, where one is named."""
        place = self.app or os.environ.get("MAINSPRING_APP")
        return load(place) if place else None

    def needed_application(self) -> App:
        """The application, or an error that says how to name one."""
        found = self.application()
        if found is None:
            raise ConfigurationError("app: give --app module:name, or set MAINSPRING_APP")
        return found

    def running_application(self) -> App:
        """The application, to be run: in its own schema, which its blocks and its clean-up were made for."""
        app = self.needed_application()
        if self.schema is not None and self.schema != app.schema:
            raise ConfigurationError(f"schema: the application's is {app.schema}: say another by App(schema=…)")
        return app

    def address(self, app: App | None) -> str:
        """The database: named by an option, the application or the environment, or the embedded one that runs here."""
        if self.dsn:
            return self.dsn
        with suppress(ConfigurationError):  # nobody has named one
            if app:
                return app.dsn
        found = database() or _here()
        if found is None:
            raise ConfigurationError("dsn: give --dsn, or set MAINSPRING_DSN, or run `mainspring up` in this directory")
        return found

    def schema_of(self, app: App | None) -> str:
        """The schema's name."""
        return self.schema or (app.schema if app else DEFAULT_SCHEMA)

    @contextmanager
    def connect(self, *, long: bool = False) -> Iterator[tuple[psycopg.Connection[Any], str]]:
        """A connection of our own, which says at once why it cannot be made, and the schema's name.

        `long` is what may rightly take longer than an answer: as long as the server works on it.
        """
        import psycopg

        from mainspring.db.wire.answer import taking_long
        from mainspring.db.wire.connect import Connection, options
        from mainspring.db.wire.translate import unavailable

        app = self.application()
        dsn = self.address(app)
        with unavailable():
            try:
                given = options(dsn, "mainspring cli") | {"answered_within": _limit(app)}
                conn: psycopg.Connection[Any] = Connection.connect(dsn, **given)
            except psycopg.ProgrammingError as error:
                raise ConfigurationError(f"dsn: {error}") from None
            with conn, taking_long(conn) if long else nullcontext():
                yield conn, self.schema_of(app)

    @contextmanager
    def client(self, app: App | None = None) -> Iterator[Client]:
        """A client that acts in the user's name; a schema that does not fit is refused first."""
        from mainspring.client import Client
        from mainspring.db.schema.secure import is_secured
        from mainspring.db.schema.status import check, status
        from mainspring.declare.caller import Caller

        app = app or self.application()
        with self.connect() as (conn, schema):
            check(status(conn, schema=schema))
            secured = is_secured(conn, schema=schema)
        caller = Caller(actor_type="user", actor_id=self.user or _user())
        about: dict[str, Any] = {"schema": schema, "caller": caller, "cipher": app.cipher if app else None}
        about["answered_within"] = _limit(app)
        with Client(self.address(app), pool_size=1, secured=secured, **about) as client:
            yield client

    def ask(self, question: Callable[[Sql, Who], Dialogue[T]]) -> T:
        """The answer to one question that no client asks, in the user's name."""
        from mainspring.db.jobs import Who
        from mainspring.db.schema.status import check, status
        from mainspring.db.wire.bound import bound
        from mainspring.db.wire.run import psycopg_door, run
        from mainspring.db.wire.sql import Sql
        from mainspring.job import DEFAULT_ORG, SYSTEM

        with self.connect() as (conn, schema):
            check(status(conn, schema=schema))
            who = Who(actor_type="user", actor_id=self.user or _user())
            ((named,),) = conn.execute("select nullif(current_setting('mainspring.org', true), '')").fetchall()
            # It concerns all organisations, unless the DSN names one; that of teams that have one only is no name.
            with bound(conn, SYSTEM if named in (None, DEFAULT_ORG) else named):
                return run(psycopg_door(conn), question(Sql(schema), who))


def _limit(app: App | None) -> float:
    """How long a command waits for an answer of the database."""
    return app.patience() if app else answered_within()


#: Nothing said: the environment decides.
UNSAID_CONNECTION = ConnectionOptions()


def place_of(app: str) -> str:
    """Where an application is: `module:name`, or what an installed package calls it by the group `mainspring.apps`."""
    if ":" in app:
        return app
    from importlib.metadata import entry_points

    return next((point.value for point in entry_points(group="mainspring.apps", name=app)), app)


def load(place: str) -> App:
    """Import an application, `module:name` or its name, from the current directory or the installed packages."""
    module, _, name = place_of(place).partition(":")
    if not module or not name:
        from importlib.metadata import entry_points

        known = ", ".join(sorted({point.name for point in entry_points(group="mainspring.apps")}))
        beside = f", nor an installed application: {known}" if known else ""
        raise ConfigurationError(f"app: {place!r} is not of the form module:name{beside}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        loaded = importlib.import_module(module)
    except MainspringError:
        raise
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == module.partition(".")[0]:
            places = f"neither in {os.getcwd()} nor installed"
            raise ConfigurationError(f"app: there is no module {module}, {places}") from None
        where = traceback.extract_tb(error.__traceback__)[-1]
        at = "" if where.filename.startswith("<frozen") else f" ({where.filename}:{where.lineno})"
        raise ConfigurationError(f"app: cannot import {module}: {type(error).__name__}: {error}{at}") from error
    from mainspring.app import App

    found = getattr(loaded, name, None)
    if not isinstance(found, App):
        others = [other for other, value in vars(loaded).items() if isinstance(value, App)]
        what = f"{name} is a {type(found).__name__}, not an App" if found is not None else f"has no App named {name}"
        raise ConfigurationError(f"app: {module}: {what}{f'; use {module}:{others[0]}' if others else ''}")
    return found


def _here() -> str | None:
    from mainspring.embedded.home import local_dsn

    return local_dsn()
