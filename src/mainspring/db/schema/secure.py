"""Securing a schema: roles with least privilege, and row-level security by organisation, forced for the owner too.

The organisation of a transaction is its local setting `mainspring.org`; policies read it once a statement. They depend
on the setting alone, never on a membership that may change while a plan is cached. `rights` says who may do what; which
tables and functions there are, the catalogue says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg import sql
from psycopg.errors import (
    DeadlockDetected,
    DependentObjectsStillExist,
    DuplicateObject,
    InsufficientPrivilege,
    UndefinedObject,
    UniqueViolation,
)
from psycopg.rows import tuple_row

from mainspring.config import DEFAULT_SCHEMA
from mainspring.db.schema.catalogue import Catalogue, role_names
from mainspring.db.schema.gaps import gaps
from mainspring.db.schema.policy import policies
from mainspring.db.schema.rights import (
    CALLS,
    PARTS,
    POLICIES,
    ROLES,
    SEQUENCES,
    TABLE_RIGHTS,
    VERB_RIGHTS,
    VIEWS,
    rights,
)
from mainspring.db.wire.sql import render
from mainspring.errors import ConfigurationError

T = TypeVar("T")

SECURE_TRIES = 5


@dataclass(frozen=True, slots=True)
class Secured:
    """What `secure` did."""

    owner: str
    roles: list[str]
    created: list[str]
    tables: list[str]
    functions: list[str]


@dataclass(frozen=True, slots=True)
class Cover:
    """Whether a schema is secured, and what of it is not; after an upgrade `secure` closes such gaps."""

    secured: bool
    gaps: list[str]


def secure(conn: psycopg.Connection[Any], *, schema: str = DEFAULT_SCHEMA) -> Secured:
    """Secure a schema; a second run changes nothing but what an upgrade has added."""
    return _again(lambda: _Schema(conn, schema).secure())


def secure_new(conn: psycopg.Connection[Any], *, schema: str = DEFAULT_SCHEMA) -> None:
    """Secure what a migration has brought, in its transaction: no table that was covered before is locked.

    A function that was replaced has lost what made it a verb: that it runs as the owner, with the system's names only.
    """
    _Schema(conn, schema).secure(only_new=True)


def unsecure(conn: psycopg.Connection[Any], *, schema: str = DEFAULT_SCHEMA) -> dict[str, str]:
    """Undo `secure` whole; answers what became of each role, which other databases may still use."""
    _again(lambda: _Schema(conn, schema).unsecure())
    return {role: _drop(conn, role) for role in role_names(schema)}


def cover(conn: psycopg.Connection[Any], *, schema: str = DEFAULT_SCHEMA) -> Cover:
    """Look whether a schema is secured, and whether something in it is not."""
    with conn.transaction():
        secured = is_secured(conn, schema=schema)
        return Cover(secured, gaps(Catalogue(conn, schema)) if secured else [])


def is_secured(conn: psycopg.Connection[Any], *, schema: str = DEFAULT_SCHEMA) -> bool:
    """Whether a schema is secured."""
    query = "select relforcerowsecurity from pg_catalog.pg_class where oid = to_regclass(%s)"
    with conn.cursor(row_factory=tuple_row) as cursor:
        return cursor.execute(query, [render("{schema}.job", schema)]).fetchone() == (True,)


def _again(act: Callable[[], T]) -> T:
    """Do it once more where another database dropped a role meanwhile, or a worker's locks were in the way."""
    for _ in range(SECURE_TRIES - 1):
        try:
            return act()
        except (UndefinedObject, DeadlockDetected):
            pass
    return act()


class _Schema(Catalogue):
    """One schema, and the statements that secure it."""

    def __init__(self, conn: psycopg.Connection[Any], schema: str) -> None:
        super().__init__(conn, schema)
        self._roles = dict(zip(ROLES, map(sql.Identifier, role_names(schema)), strict=True))

    # -- the verbs

    def secure(self, *, only_new: bool = False) -> Secured:
        """Cover every table, or those that nothing covers yet, and state all rights."""
        with self.conn.transaction():
            self._lock()
            owner = self.owner()
            self._check_columns()
            created = self._create_roles()
            everyone = sql.SQL(", ").join(self._roles.values())
            self.do("revoke create on schema {schema} from public, {roles}", roles=everyone)
            self.do("grant usage on schema {schema} to {roles}", roles=everyone)
            tables, functions = self.tables(), self.functions()
            for table in self.bare() if only_new else tables:
                self._cover_table(table, owner)
            self._grant("table", TABLE_RIGHTS, tables)
            self._grant("sequence", SEQUENCES, self.sequences())
            for view in VIEWS:
                self.do("revoke all on {schema}.{name} from public", name=sql.Identifier(view))
                self.do("grant select on {schema}.{name} to {roles}", name=sql.Identifier(view), roles=everyone)
            for name, signature in functions:
                self._cover_function(name, signature)
        return Secured(owner, role_names(self.name), created, tables, sorted({name for name, _ in functions}))

    def unsecure(self) -> None:
        """Take it all back."""
        with self.conn.transaction():
            self._lock()
            self.owner()
            for table in self.tables():
                self._uncover_table(table)
            for name, signature in self.functions():
                if name in VERB_RIGHTS:
                    self.do("alter function {f} security invoker", f=signature)
                    self.do("alter function {f} reset search_path", f=signature)
                self.do("grant execute on function {f} to public", f=signature)
            known = self.column("select rolname from pg_roles where rolname = any(%s)", role_names(self.name))
            for role in map(sql.Identifier, known):
                for kind in ("tables", "sequences", "functions"):
                    self.do("revoke all on all {kind} in schema {schema} from {role}", kind=sql.SQL(kind), role=role)
                self.do("revoke all on schema {schema} from {role}", role=role)

    # -- tables

    def _cover_table(self, table: str, owner: str) -> None:
        name = sql.Identifier(table)
        self.do("alter table {schema}.{name} enable row level security, force row level security", name=name)
        for policy, (role, seen, written) in policies(table, self.name, owner).items():
            about = {"name": name, "policy": sql.Identifier(policy), "role": sql.Identifier(role)}
            self.do("drop policy if exists {policy} on {schema}.{name}", **about)
            self.do(
                "create policy {policy} on {schema}.{name} to {role} using ({seen}) with check ({written})",
                seen=sql.SQL(seen), written=sql.SQL(written), **about,
            )  # fmt: skip

    def _uncover_table(self, table: str) -> None:
        name = sql.Identifier(table)
        for policy in POLICIES:
            self.do("drop policy if exists {policy} on {schema}.{name}", name=name, policy=sql.Identifier(policy))
        others = "select polname from pg_catalog.pg_policy where polrelid = to_regclass(%s)"
        if not self.column(others, sql.SQL("{}.{}").format(self._schema, name).as_string(self.conn)):
            self.do("alter table {schema}.{name} no force row level security, disable row level security", name=name)

    def _grant(self, kind: LiteralString, known: dict[str, tuple[str, str, str]], names: Iterable[str]) -> None:
        for name in filter(known.__contains__, names):
            about = {"kind": sql.SQL(kind), "name": sql.Identifier(name)}
            self.do("revoke all on {kind} {schema}.{name} from public", **about)  # no policy speaks of truncate
            for role, may in rights(known, name).items():
                about = {"kind": sql.SQL(kind), "name": sql.Identifier(name), "role": self._roles[role]}
                self.do("revoke all on {kind} {schema}.{name} from {role}", **about)
                if may:
                    self.do("grant {may} on {kind} {schema}.{name} to {role}", may=sql.SQL(may), **about)

    # -- functions

    def _cover_function(self, name: str, signature: sql.SQL) -> None:
        self.do("revoke all on function {f} from public", f=signature)
        if (
            name in VERB_RIGHTS
        ):  # a verb runs as the owner: nothing of the caller's may come before the system's own names
            self.do("alter function {f} security definer set search_path = pg_catalog, pg_temp", f=signature)
        if name not in VERB_RIGHTS and name not in CALLS and name not in PARTS:
            return  # an application's own
        may = VERB_RIGHTS.get(name, ()) + CALLS.get(name, ())
        for role, identifier in self._roles.items():
            change = "grant execute on function {f} to {r}" if role in may else "revoke all on function {f} from {r}"
            self.do(change, f=signature, r=identifier)

    def _check_columns(self) -> None:
        if found := self.without_org():
            raise ConfigurationError(
                f"schema: {', '.join(found)}: a table without a column org_id (not null) cannot be secured; "
                "give it one, or move it to another schema"
            )

    # -- roles

    def _create_roles(self) -> list[str]:
        created = []
        for role in role_names(self.name):
            if self.column("select rolname from pg_catalog.pg_roles where rolname = %s", role):
                continue
            try:
                with self.conn.transaction():
                    self.do("create role {role} nologin", role=sql.Identifier(role))
            except (DuplicateObject, UniqueViolation):  # another database was faster: roles are the cluster's
                continue
            except InsufficientPrivilege:
                wanted = " ".join(f'create role "{name}" nologin;' for name in role_names(self.name))
                raise ConfigurationError(
                    f"roles: {role} is missing and you may not create roles: run this as a role with CREATEROLE, "
                    f"or let an administrator say once: {wanted}"
                ) from None
            created.append(role)
        return created

    # -- talking

    def _lock(self) -> None:
        self.conn.execute("select pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"mainspring migrate {self.name}"])
        self.conn.execute("set local client_min_messages = warning")  # "does not exist, skipping" is no news
        self.conn.execute("set local search_path = pg_catalog")  # so that PostgreSQL writes out every name


def _drop(conn: psycopg.Connection[Any], role: str) -> str:
    """Drop a role that nothing uses; say what became of it."""
    members = """
        select count(*) filter (where u.rolname <> current_user) from pg_catalog.pg_auth_members m
        join pg_catalog.pg_roles r on r.oid = m.roleid join pg_catalog.pg_roles u on u.oid = m.member
        where r.rolname = %s
    """
    if conn.execute("select from pg_catalog.pg_roles where rolname = %s", [role]).fetchone() is None:
        return "not there"
    found = conn.execute(members, [role]).fetchone()
    if found and found[0]:
        return "kept: it has members"
    try:
        conn.execute(sql.SQL("drop role if exists {}").format(sql.Identifier(role)))
    except DependentObjectsStillExist:
        return "kept: another database or schema uses it"
    except InsufficientPrivilege:
        return "kept: you may not drop it"
    return "dropped"
