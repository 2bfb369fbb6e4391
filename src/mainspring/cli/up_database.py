"""The database of `mainspring up`: its schema, its logins, and its time, which may run faster than ours."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from mainspring.config import DEFAULT_SCHEMA
from mainspring.errors import ConfigurationError

if TYPE_CHECKING:
    import psycopg

    from mainspring.app import App
    from mainspring.cli.demo_access import DemoAccess
    from mainspring.embedded import Cluster
    from mainspring.virtual.speed import Course

LOGINS = {
    "worker": "shop_worker",
    "api": "shop_web",
    "operator": "shop_operator",
}  # what the example's parts connect as, on a secured schema


class UpDatabase:
    """The embedded PostgreSQL as an application finds it: migrated, secured for the example, at its own time."""

    def __init__(self, cluster: Cluster, *, speed: float, start: datetime | None, virtual: bool, secured: bool) -> None:
        self._cluster, self._speed, self._start = cluster, speed, start
        self._virtual, self._secured = virtual, secured
        self._schema = DEFAULT_SCHEMA
        self.course: Course | None = None  # of virtual time; None: time is real

    def dsn(self, role: str) -> str:
        """Where a part of the application connects to."""
        return self._cluster.dsn(user=LOGINS[role]) if self._secured else self._cluster.dsn()

    def settings(self) -> dict[str, str]:
        """How programs connect, as they read it from the environment."""
        roles = {f"MAINSPRING_{role.upper()}_DSN": self.dsn(role) for role in ("api", "operator")}
        return {"MAINSPRING_DSN": self.dsn("api")} | roles

    def halt(self) -> None:
        """Let virtual time run no faster than ours."""
        if self.course is not None:
            self._tend(lambda conn: self._drive(conn, 1))

    def migrate(self, app: App) -> None:
        """Bring the schema, the logins and the demo data of an application."""
        import psycopg

        from mainspring.db.schema.migrate import migrate, migrate_all
        from mainspring.embedded import SUPERUSER

        self._schema = app.schema
        with (
            psycopg.connect(self._cluster.dsn(), autocommit=True) as conn,
            psycopg.connect(self._cluster.dsn(user=SUPERUSER), autocommit=True) as top,
        ):
            self._set_clock(top, again=True)  # before anything asks what time it is
            migrate(conn, schema=app.schema)
            self._set_clock(conn, again=False)  # its table belongs to whom the others belong
            migrate_all(conn, app.migrations, schema=app.schema)
            self._secure(top)
            _prepare(conn, app)

    def let_in(self, access: DemoAccess, app: App, url: str) -> str:
        """Let whoever runs this come in over HTTP; gives a link that signs in once."""
        import psycopg

        with psycopg.connect(self._cluster.dsn(), autocommit=True) as conn:
            return access.give(conn, self._schema, url, app.demo_people)

    def _set_clock(self, conn: psycopg.Connection[Any], *, again: bool) -> None:
        """Let virtual time go on where there is some, or begin where it is wished for."""
        from mainspring.virtual.speed import begin, stood

        data = self._cluster.path.parent
        known = stood(conn, schema=self._schema) is not None
        if self.course is None and known is again and (again or self._virtual):
            try:
                self.course = begin(conn, self._speed, self._start, schema=self._schema)
            except ConfigurationError as error:
                why = str(error) if again else f"speed: in {data} time is real"
                raise ConfigurationError(f"{why}; keep it apart, such as by --data {data / 'speed'}") from None

    def _tend(self, act: Callable[[psycopg.Connection[Any]], object]) -> None:
        """Do something with virtual time; whatever role it needs, and if the database is away it must do without."""
        import psycopg

        from mainspring.embedded import SUPERUSER

        with suppress(psycopg.Error), psycopg.connect(self._cluster.dsn(user=SUPERUSER), autocommit=True) as conn:
            act(conn)

    async def keep_time(self, course: Course) -> None:
        """Let time run once a worker is there, and write down every second where it stands, should we be killed."""
        from mainspring.virtual.speed import mark, staffed

        def begin(conn: psycopg.Connection[Any]) -> None:
            if staffed(conn, course.base, schema=self._schema):
                self._drive(conn, self._speed)

        while self.course is course:
            await asyncio.sleep(0.1)
            await asyncio.to_thread(self._tend, begin)
        while True:
            await asyncio.to_thread(self._tend, lambda conn: mark(conn, schema=self._schema))
            await asyncio.sleep(1)

    def _drive(self, conn: psycopg.Connection[Any], pace: float) -> None:
        from mainspring.virtual.speed import drive, mark

        assert self.course is not None
        self.course = drive(conn, self.course, pace, schema=self._schema)
        mark(conn, schema=self._schema)

    def now(self) -> datetime:
        """What time it is there."""
        return self.course.now() if self.course is not None else datetime.now(UTC)

    def _secure(self, conn: psycopg.Connection[Any]) -> None:
        """Run the example as it should be in production; an application of yours by its one role, to begin with."""
        from psycopg import errors, sql

        from mainspring.db.schema.secure import is_secured, secure, unsecure

        if not self._secured:
            if is_secured(conn):
                unsecure(conn)
            return
        secure(conn)
        for role, login in LOGINS.items():
            with suppress(errors.DuplicateObject):
                conn.execute(sql.SQL("create role {} login").format(sql.Identifier(login)))
            conn.execute(sql.SQL("grant {} to {}").format(sql.Identifier(f"mainspring_{role}"), sql.Identifier(login)))


def _prepare(conn: psycopg.Connection[Any], app: App) -> None:
    """Make the demo data of an application, all of them or none."""
    from mainspring.virtual.databases import take

    try:
        with conn.transaction():
            take(conn, app.prepare, schema=app.schema)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        what = " ".join(str(error).split())
        raise ConfigurationError(
            f"app: its prepare failed: {type(error).__name__}: {what} ({where.filename}:{where.lineno})"
        ) from error
