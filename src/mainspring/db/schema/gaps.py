"""What of a secured schema is not covered: by row-level security, by rights, or because somebody may too much."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mainspring.db.schema.catalogue import Catalogue, role_names
from mainspring.db.schema.line import engine_line
from mainspring.db.schema.members import bad_members
from mainspring.db.schema.policy import RowPolicy, policies
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


def gaps(schema: Catalogue) -> list[str]:
    """What of a secured schema is not covered, for a person to read."""
    found = [f"table {name} has no organisation" for name in schema.without_org()]
    for look in (_bad_tables, _bad_functions, _bad_views, _bad_triggers, _bad_rights, bad_members):
        found += look(schema)
    return found + schema.bad_owners()


def _bad_tables(schema: Catalogue) -> Iterator[str]:
    """Tables that row-level security does not bind, or not by our policies alone."""
    rows = schema.rows(
        """
        select c.relname, c.relrowsecurity and c.relforcerowsecurity, pg_get_userbyid(c.relowner),
               array(select p.polname::text from pg_catalog.pg_policy p where p.polrelid = c.oid and p.polpermissive)
        from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
        where n.nspname = %s and c.relkind in ('r', 'p') order by 1
        """
    )
    stored = _policies(schema)
    for name, forced, owner, names in rows:
        if not forced or not set(POLICIES) <= set(names):
            yield f"table {name} has no row-level security for everybody"
        more = sorted(set(names) - set(POLICIES)) if name in TABLE_RIGHTS else []
        yield from (f"table {name} has a policy {policy}, which admits more than ours: drop it" for policy in more)
        for policy, ours in policies(name, schema.name, owner).items():
            theirs = stored.get((name, policy))
            if theirs is not None and theirs != _plain(ours):
                yield f"table {name} has a policy {policy} that is not as we made it"


def _policies(schema: Catalogue) -> dict[tuple[str, str], RowPolicy]:
    """The policies as they stand; of nobody's role where they are not of one role and for every command."""
    rows = schema.rows(
        """
        select c.relname, p.polname, p.polcmd = '*' and cardinality(p.polroles) = 1,
               coalesce(pg_get_userbyid(nullif(p.polroles[1], 0)), 'public'),
               coalesce(pg_get_expr(p.polqual, p.polrelid), ''), coalesce(pg_get_expr(p.polwithcheck, p.polrelid), '')
        from pg_catalog.pg_policy p join pg_catalog.pg_class c on c.oid = p.polrelid
        join pg_catalog.pg_namespace n on n.oid = c.relnamespace where n.nspname = %s
        """
    )
    return {
        (table, name): _plain(RowPolicy(role if simple else "", seen, written))
        for table, name, simple, role, seen, written in rows
    }


def _plain(policy: RowPolicy) -> RowPolicy:
    """A policy in the words that PostgreSQL prints and in ours: without what it adds, and without brackets.

    Our conditions are joined by "or", and what "and" joins narrows them: other brackets would admit less, not more.
    """
    return RowPolicy(policy.role, *(_words(text) for text in policy[1:]))


def _words(text: str) -> str:
    text = re.sub(r"::\w+|\bas \"?\w+\"?|\bpg_catalog\.|[()\s]", " ", text.lower())
    return " ".join(text.replace(",", " , ").split())


def _bad_functions(schema: Catalogue) -> Iterator[str]:
    """Functions that run by the wrong rights, or that somebody may call to whom they were not given."""
    roles = dict(zip(role_names(schema.name), ROLES, strict=True))
    rows = schema.rows(
        """
        select p.proname, p.prosecdef, has_function_privilege('public', p.oid, 'execute'),
               coalesce(p.proconfig @> array['search_path=pg_catalog, pg_temp'], false),
               pg_get_userbyid(p.proowner), pg_get_userbyid(n.nspowner),
               array(select distinct pg_get_userbyid(a.grantee)::text from aclexplode(p.proacl) a
                     where a.grantee not in (0, p.proowner) order by 1)
        from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
        where n.nspname = %s order by 1
        """
    )
    for name, definer, public, pinned, owner, should, callers in rows:
        if public:
            yield f"function {name} may be called by everybody"
        elif definer is not (name in VERB_RIGHTS):
            yield f"function {name} runs by the rights of the wrong role"
        elif name in VERB_RIGHTS and not pinned:
            yield f"function {name} takes names from who calls it"
        if owner != should:
            yield f"function {name} belongs to {owner}, not to {should}"
        if name in VERB_RIGHTS or name in CALLS or name in PARTS:
            may = VERB_RIGHTS.get(name, ()) + CALLS.get(name, ())
            wrong = (caller for caller in callers if roles.get(caller) not in may)
            yield from (f"{caller} may execute {name}" for caller in wrong)


def _bad_views(schema: Catalogue) -> Iterator[str]:
    """Views that read by the rights of their owner."""
    rows = schema.rows(
        """
        select c.relname from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
        where n.nspname = %s and c.relkind = 'v'
          and not coalesce(c.reloptions && array['security_invoker=true', 'security_invoker=on'], false) order by 1
        """
    )
    yield from (f"view {name} reads by the rights of its owner: set its security_invoker" for (name,) in rows)


def _bad_triggers(schema: Catalogue) -> Iterator[str]:
    """Guards that are gone or do nothing."""
    rows = schema.rows(
        """
        select t.tgname || ' on ' || c.relname from pg_catalog.pg_trigger t
        join pg_catalog.pg_class c on c.oid = t.tgrelid join pg_catalog.pg_namespace n on n.oid = c.relnamespace
        where n.nspname = %s and t.tgenabled in ('O', 'A')
        """
    )
    wanted = {
        verb.name.replace("{schema}.", "").replace('"', "") for verb in engine_line().verbs if verb.kind == "trigger"
    }
    yield from (f"trigger {name} is disabled or gone" for name in sorted(wanted - {name for (name,) in rows}))


def _bad_rights(schema: Catalogue) -> Iterator[str]:
    """What anybody but the owner may do with the engine's own besides what is theirs."""
    known = TABLE_RIGHTS | SEQUENCES | dict.fromkeys(VIEWS, ("select", "select", "select"))
    own = dict(zip(role_names(schema.name), ROLES, strict=True))
    rows = schema.rows(
        """
        select c.relname, x.attname, coalesce(r.rolname, 'public'), lower(a.privilege_type)
        from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
        cross join lateral (
          select null::text as attname, c.relacl as acl
          union all select t.attname, t.attacl from pg_catalog.pg_attribute t
                    where t.attrelid = c.oid and t.attacl is not null and not t.attisdropped) x
        cross join lateral aclexplode(x.acl) a left join pg_catalog.pg_roles r on r.oid = a.grantee
        where n.nspname = %s and a.grantee <> c.relowner order by 1, 3, 4, 2
        """
    )
    for name, column, role, privilege in rows:
        may = rights(known, name)[own[role]] if role in own else ""
        if name in known and not _fits(may, privilege, column):
            yield f"{role} may {privilege} {name}" + (f" ({column})" if column else "")
    for role in schema.column(
        """
        select coalesce(r.rolname, 'public') from pg_catalog.pg_namespace n
        cross join lateral aclexplode(n.nspacl) a left join pg_catalog.pg_roles r on r.oid = a.grantee
        where n.nspname = %s and a.privilege_type = 'CREATE' and a.grantee <> n.nspowner order by 1
        """,
        schema.name,
    ):
        yield f"{role} may create in schema {schema.name}"


def _fits(may: str, privilege: str, column: str | None) -> bool:
    """Whether a right of a table, or of one column of it, is among those that are said."""
    if column is None:
        return privilege in re.sub(r"\w+ \([^)]*\)", "", may).split(", ")  # not where it is of some columns
    of_some = dict(re.findall(r"(\w+) \(([^)]*)\)", may))
    return column in of_some.get(privilege, "").split(", ")
