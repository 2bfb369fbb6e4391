"""Securing a schema: roles with least privilege, and row-level security by organisation, forced for the owner too.

The organisation of a transaction is its local setting `mainspring.org`; policies read it once a statement. They depend
on the setting alone, never on a membership that may change while a plan is cached. `rights` says who may do what; which
tables and functions there are, the catalogue says.
"""

from __future__ import annotations

import re
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

from mainspring.db.rights import CALLS, PARTS, ROLES, SEQUENCES, SHARED, TABLES, VERBS, VIEWS, WRITTEN, rights
from mainspring.db.schema import DEFAULT_SCHEMA, render
from mainspring.errors import ConfigurationError, SchemaMissing

T = TypeVar("T")

#: The organisation that the transaction is bound to, or null: evaluated once a statement.
ORG: LiteralString = "(select nullif(current_setting('mainspring.org', true), ''))"
#: A policy for each role, by the role's short name, and one for the owner.
POLICIES = (*ROLES, "owner")
TRIES = 5


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


def unsecure(conn: psycopg.Connection[Any], *, schema: str = DEFAULT_SCHEMA) -> dict[str, str]:
    """Undo `secure` whole; answers what became of each role, which other databases may still use."""
    _again(lambda: _Schema(conn, schema).unsecure())
    return {role: _drop(conn, role) for role in role_names(schema)}


def cover(conn: psycopg.Connection[Any], *, schema: str = DEFAULT_SCHEMA) -> Cover:
    """Look whether a schema is secured, and whether something in it is not."""
    with conn.transaction():
        found = _Schema(conn, schema)
        secured = is_secured(conn, schema=schema)
        return Cover(secured, found.gaps() if secured else [])


def is_secured(conn: psycopg.Connection[Any], *, schema: str = DEFAULT_SCHEMA) -> bool:
    """Whether a schema is secured."""
    query = "select relforcerowsecurity from pg_catalog.pg_class where oid = to_regclass(%s)"
    with conn.cursor(row_factory=tuple_row) as cursor:
        return cursor.execute(query, [render("{schema}.job", schema)]).fetchone() == (True,)


def role_names(schema: str = DEFAULT_SCHEMA) -> list[str]:
    """The group roles of a schema.

    >>> role_names()
    ['mainspring_worker', 'mainspring_api', 'mainspring_operator']
    """
    return [f"{schema}_{role}" for role in ROLES]


def _again(act: Callable[[], T]) -> T:
    """Do it once more where another database dropped a role meanwhile, or a worker's locks were in the way."""
    for _ in range(TRIES - 1):
        try:
            return act()
        except (UndefinedObject, DeadlockDetected):
            pass
    return act()


class _Schema:
    """One schema: what the catalogue says of it, and the statements that change it."""

    def __init__(self, conn: psycopg.Connection[Any], schema: str) -> None:
        render("{schema}", schema)  # refuses a name that cannot be quoted
        self._conn, self._name = conn, schema
        self._schema = sql.Identifier(schema)
        self._roles = dict(zip(ROLES, map(sql.Identifier, role_names(schema)), strict=True))

    # -- the two verbs

    def secure(self) -> Secured:
        with self._conn.transaction():
            self._lock()
            owner = self._owner()
            self._check_columns()
            created = self._create_roles()
            everyone = sql.SQL(", ").join(self._roles.values())
            self._do("revoke create on schema {schema} from public, {roles}", roles=everyone)
            self._do("grant usage on schema {schema} to {roles}", roles=everyone)
            tables, functions = self._tables(), self._functions()
            for table in tables:
                self._cover_table(table, owner)
            self._grant("table", TABLES, tables)
            self._grant("sequence", SEQUENCES, self._sequences())
            for view in VIEWS:
                self._do("revoke all on {schema}.{name} from public", name=sql.Identifier(view))
                self._do("grant select on {schema}.{name} to {roles}", name=sql.Identifier(view), roles=everyone)
            for name, signature in functions:
                self._cover_function(name, signature)
        return Secured(owner, role_names(self._name), created, tables, sorted({name for name, _ in functions}))

    def unsecure(self) -> None:
        with self._conn.transaction():
            self._lock()
            self._owner()
            for table in self._tables():
                self._uncover_table(table)
            for name, signature in self._functions():
                if name in VERBS:
                    self._do("alter function {f} security invoker", f=signature)
                    self._do("alter function {f} reset search_path", f=signature)
                self._do("grant execute on function {f} to public", f=signature)
            known = self._column("select rolname from pg_roles where rolname = any(%s)", role_names(self._name))
            for role in map(sql.Identifier, known):
                for kind in ("tables", "sequences", "functions"):
                    self._do("revoke all on all {kind} in schema {schema} from {role}", kind=sql.SQL(kind), role=role)
                self._do("revoke all on schema {schema} from {role}", role=role)

    def gaps(self) -> list[str]:
        """What of a secured schema is not covered, for a person to read."""
        found = [f"table {name} has no organisation" for name in self._without_org()]
        for name, forced, policies in self._rows(
            """
            select c.relname, c.relrowsecurity and c.relforcerowsecurity,
                   array(select p.polname::text from pg_catalog.pg_policy p
                         where p.polrelid = c.oid and p.polpermissive)
            from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
            where n.nspname = %s and c.relkind in ('r', 'p') order by 1
            """
        ):
            if not forced or not set(POLICIES) <= set(policies):
                found.append(f"table {name} has no row-level security for everybody")
            more = sorted(set(policies) - set(POLICIES)) if name in TABLES else []
            found += [f"table {name} has a policy {policy}, which admits more than ours: drop it" for policy in more]
        for name, definer, public, pinned in self._rows(
            """
            select p.proname, p.prosecdef, has_function_privilege('public', p.oid, 'execute'),
                   coalesce(p.proconfig @> array['search_path=pg_catalog, pg_temp'], false)
            from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
            where n.nspname = %s order by 1
            """
        ):
            if public:
                found.append(f"function {name} may be called by everybody")
            elif definer is not (name in VERBS):
                found.append(f"function {name} runs by the rights of the wrong role")
            elif name in VERBS and not pinned:
                found.append(f"function {name} takes names from who calls it")
        return found + self._bad_rights() + self._bad_roles() + self._bad_owners()

    # -- tables

    def _cover_table(self, table: str, owner: str) -> None:
        name = sql.Identifier(table)
        self._do("alter table {schema}.{name} enable row level security, force row level security", name=name)
        for policy, role in [*self._roles.items(), ("owner", sql.Identifier(owner))]:
            seen = written = f"org_id = {ORG}"
            if policy in SHARED.get(table, ()):
                seen += " or org_id = 'SYSTEM'"
                written += f" or (org_id = 'SYSTEM' and {WRITTEN.get(table, 'true')})"
            if policy == "worker":  # claims span organisations; a job's own transaction is bound to its one
                seen, written = f"{seen} or {ORG} is null", f"{written} or {ORG} is null"
            about = {"name": name, "policy": sql.Identifier(policy), "role": role}
            self._do("drop policy if exists {policy} on {schema}.{name}", **about)
            self._do(
                "create policy {policy} on {schema}.{name} to {role} using ({seen}) with check ({written})",
                seen=sql.SQL(seen), written=sql.SQL(written), **about,
            )  # fmt: skip

    def _uncover_table(self, table: str) -> None:
        name = sql.Identifier(table)
        for policy in POLICIES:
            self._do("drop policy if exists {policy} on {schema}.{name}", name=name, policy=sql.Identifier(policy))
        others = "select polname from pg_catalog.pg_policy where polrelid = to_regclass(%s)"
        if not self._column(others, sql.SQL("{}.{}").format(self._schema, name).as_string(self._conn)):
            self._do("alter table {schema}.{name} no force row level security, disable row level security", name=name)

    def _grant(self, kind: LiteralString, known: dict[str, tuple[str, str, str]], names: Iterable[str]) -> None:
        for name in filter(known.__contains__, names):
            about = {"kind": sql.SQL(kind), "name": sql.Identifier(name)}
            self._do("revoke all on {kind} {schema}.{name} from public", **about)  # no policy speaks of truncate
            for role, may in rights(known, name).items():
                about = {"kind": sql.SQL(kind), "name": sql.Identifier(name), "role": self._roles[role]}
                self._do("revoke all on {kind} {schema}.{name} from {role}", **about)
                if may:
                    self._do("grant {may} on {kind} {schema}.{name} to {role}", may=sql.SQL(may), **about)

    # -- functions

    def _cover_function(self, name: str, signature: sql.SQL) -> None:
        self._do("revoke all on function {f} from public", f=signature)
        if name in VERBS:  # a verb runs as the owner: nothing of the caller's may come before the system's own names
            self._do("alter function {f} security definer set search_path = pg_catalog, pg_temp", f=signature)
        if name not in VERBS and name not in CALLS and name not in PARTS:
            return  # an application's own
        may = VERBS.get(name, ()) + CALLS.get(name, ())
        for role, identifier in self._roles.items():
            change = "grant execute on function {f} to {r}" if role in may else "revoke all on function {f} from {r}"
            self._do(change, f=signature, r=identifier)

    # -- what the catalogue says

    def _tables(self) -> list[str]:
        return self._of_kind("rp")

    def _sequences(self) -> list[str]:
        return self._of_kind("S")

    def _of_kind(self, kinds: str) -> list[str]:
        query = """
            select c.relname from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
            where n.nspname = %s and strpos(%s, c.relkind::text) > 0 order by 1
        """
        return self._column(query, self._name, kinds)

    def _functions(self) -> list[tuple[str, sql.SQL]]:
        query = """
            select p.proname, p.oid::regprocedure::text
            from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
            where n.nspname = %s order by 2
        """
        return [(name, sql.SQL(signature)) for name, signature in self._rows(query)]  # quoted by PostgreSQL

    def _without_org(self) -> list[str]:
        query = """
            select c.relname from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
            where n.nspname = %s and c.relkind in ('r', 'p') and not exists (
              select from pg_catalog.pg_attribute a where a.attrelid = c.oid and a.attname = 'org_id' and a.attnotnull)
            order by 1
        """
        return self._column(query, self._name)

    def _check_columns(self) -> None:
        if found := self._without_org():
            raise ConfigurationError(
                f"schema: {', '.join(found)}: a table without a column org_id (not null) cannot be secured; "
                "give it one, or move it to another schema"
            )

    def _owner(self) -> str:
        """The one role that owns everything: verbs run as it, so row-level security must bind it."""
        owners = self._column(
            """
            select distinct pg_get_userbyid(o.owner) from pg_catalog.pg_namespace n
            cross join lateral (
              select n.nspowner as owner
              union all select c.relowner from pg_catalog.pg_class c where c.relnamespace = n.oid and c.relkind <> 'c'
              union all select p.proowner from pg_catalog.pg_proc p where p.pronamespace = n.oid) o
            where n.nspname = %s
            """,
            self._name,
        )
        if not owners or not self._tables():
            raise SchemaMissing
        if len(owners) > 1:
            raise ConfigurationError(
                f"schema: {self._name} belongs to {' and '.join(sorted(owners))}; give all of it to one role "
                "(alter … owner to, or reassign owned)"
            )
        if bad := self._bad_owners():
            raise ConfigurationError(f"schema: {'; '.join(bad)}")
        return owners[0]

    def _bad_rights(self) -> list[str]:
        """What our roles, or everybody, may do with the engine's own besides what is theirs."""
        known = TABLES | SEQUENCES | dict.fromkeys(VIEWS, ("select", "select", "select"))
        rows = self._rows(
            """
            select c.relname, coalesce(r.rolname, 'public'), lower(a.privilege_type)
            from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
            cross join lateral aclexplode(c.relacl) a left join pg_catalog.pg_roles r on r.oid = a.grantee
            where n.nspname = %s and (a.grantee = 0 or r.rolname = any(%s)) order by 1, 2, 3
            """,
            self._name,
            role_names(self._name),
        )
        own = dict(zip(role_names(self._name), ROLES, strict=True))

        def fits(name: str, role: str, privilege: str) -> bool:
            may = rights(known, name)[own[role]] if role in own else ""
            return privilege in re.sub(r"\w+ \([^)]*\)", "", may).split(", ")  # not where it is of some columns

        return [
            f"{role} may {privilege} {name}"
            for name, role, privilege in rows
            if name in known and not fits(name, role, privilege)
        ]

    def _bad_roles(self) -> list[str]:
        """Why a role of ours would be more than it should."""
        query = """
            select r.rolname, r.rolsuper or r.rolbypassrls,
                   array(select g.rolname::text from pg_catalog.pg_roles g
                         where g.rolname = any(%s) and g.oid <> r.oid and not r.rolsuper
                           and pg_has_role(r.oid, g.oid, 'member') order by 1)
            from pg_catalog.pg_roles r where r.rolname = any(%s) order by 1
        """
        found = []
        for name, free, groups in self._rows(query, role_names(self._name), role_names(self._name)):
            if free:
                found.append(f"{name} is a superuser or bypasses row-level security")
            found += [f"{name} is a member of {group}: revoke {group} from {name}" for group in groups]
        return found

    def _bad_owners(self) -> list[str]:
        """Why row-level security would not bind the owner, or would bind it too loosely."""
        rows = self._rows(
            """
            select distinct r.rolname, r.rolsuper or r.rolbypassrls,
                   array(select g.rolname::text from pg_catalog.pg_roles g
                         where g.rolname = any(%s) and not r.rolsuper and pg_has_role(r.oid, g.oid, 'usage'))
            from pg_catalog.pg_namespace n join pg_catalog.pg_class c on c.relnamespace = n.oid
            join pg_catalog.pg_roles r on r.oid in (c.relowner, n.nspowner)
            where n.nspname = %s
            """,
            role_names(self._name),
            self._name,
        )
        found = [
            f"its owner {name} is a superuser or bypasses row-level security; give it to an ordinary role"
            for name, free, _ in rows
            if free
        ]
        for name, _, groups in rows:
            found += [f"its owner {name} is a member of {group}: revoke {group} from {name}" for group in groups]
        return found

    # -- roles

    def _create_roles(self) -> list[str]:
        created = []
        for role in role_names(self._name):
            if self._column("select rolname from pg_catalog.pg_roles where rolname = %s", role):
                continue
            try:
                with self._conn.transaction():
                    self._do("create role {role} nologin", role=sql.Identifier(role))
            except (DuplicateObject, UniqueViolation):  # another database was faster: roles are the cluster's
                continue
            except InsufficientPrivilege:
                wanted = " ".join(f'create role "{name}" nologin;' for name in role_names(self._name))
                raise ConfigurationError(
                    f"roles: {role} is missing and you may not create roles: run this as a role with CREATEROLE, "
                    f"or let an administrator say once: {wanted}"
                ) from None
            created.append(role)
        return created

    # -- talking

    def _lock(self) -> None:
        self._conn.execute(
            "select pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"mainspring migrate {self._name}"]
        )
        self._conn.execute("set local client_min_messages = warning")  # "does not exist, skipping" is no news
        self._conn.execute("set local search_path = pg_catalog")  # so that PostgreSQL writes out every name

    def _do(self, text: LiteralString, **parts: sql.Composable) -> None:
        self._conn.execute(sql.SQL(text).format(schema=self._schema, **parts))

    def _rows(self, query: LiteralString, *params: Any) -> list[Any]:
        with self._conn.cursor(row_factory=tuple_row) as cursor:
            return cursor.execute(query, params or [self._name]).fetchall()

    def _column(self, query: LiteralString, *params: Any) -> list[str]:
        return [row[0] for row in self._rows(query, *params)]


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
