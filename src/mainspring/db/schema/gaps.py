"""What of a secured schema is not covered: by row-level security, by rights, or because somebody may too much."""

from __future__ import annotations

import re

from mainspring.db.schema.catalogue import Catalogue, role_names
from mainspring.db.schema.rights import POLICIES, ROLES, SEQUENCES, TABLE_RIGHTS, VERB_RIGHTS, VIEWS, rights


def gaps(schema: Catalogue) -> list[str]:
    """What of a secured schema is not covered, for a person to read."""
    found = [f"table {name} has no organisation" for name in schema.without_org()]
    for name, forced, policies in schema.rows(
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
        more = sorted(set(policies) - set(POLICIES)) if name in TABLE_RIGHTS else []
        found += [f"table {name} has a policy {policy}, which admits more than ours: drop it" for policy in more]
    for name, definer, public, pinned in schema.rows(
        """
        select p.proname, p.prosecdef, has_function_privilege('public', p.oid, 'execute'),
               coalesce(p.proconfig @> array['search_path=pg_catalog, pg_temp'], false)
        from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
        where n.nspname = %s order by 1
        """
    ):
        if public:
            found.append(f"function {name} may be called by everybody")
        elif definer is not (name in VERB_RIGHTS):
            found.append(f"function {name} runs by the rights of the wrong role")
        elif name in VERB_RIGHTS and not pinned:
            found.append(f"function {name} takes names from who calls it")
    return found + _bad_rights(schema) + _bad_roles(schema) + schema.bad_owners()


def _bad_rights(schema: Catalogue) -> list[str]:
    """What our roles, or everybody, may do with the engine's own besides what is theirs."""
    known = TABLE_RIGHTS | SEQUENCES | dict.fromkeys(VIEWS, ("select", "select", "select"))
    rows = schema.rows(
        """
        select c.relname, coalesce(r.rolname, 'public'), lower(a.privilege_type)
        from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
        cross join lateral aclexplode(c.relacl) a left join pg_catalog.pg_roles r on r.oid = a.grantee
        where n.nspname = %s and (a.grantee = 0 or r.rolname = any(%s)) order by 1, 2, 3
        """,
        schema.name,
        role_names(schema.name),
    )
    own = dict(zip(role_names(schema.name), ROLES, strict=True))

    def fits(name: str, role: str, privilege: str) -> bool:
        may = rights(known, name)[own[role]] if role in own else ""
        return privilege in re.sub(r"\w+ \([^)]*\)", "", may).split(", ")  # not where it is of some columns

    return [
        f"{role} may {privilege} {name}"
        for name, role, privilege in rows
        if name in known and not fits(name, role, privilege)
    ]


def _bad_roles(schema: Catalogue) -> list[str]:
    """Why a role of ours would be more than it should."""
    query = """
        select r.rolname, r.rolsuper or r.rolbypassrls,
               array(select g.rolname::text from pg_catalog.pg_roles g
                     where g.rolname = any(%s) and g.oid <> r.oid and not r.rolsuper
                       and pg_has_role(r.oid, g.oid, 'member') order by 1)
        from pg_catalog.pg_roles r where r.rolname = any(%s) order by 1
    """
    found = []
    for name, free, groups in schema.rows(query, role_names(schema.name), role_names(schema.name)):
        if free:
            found.append(f"{name} is a superuser or bypasses row-level security")
        found += [f"{name} is a member of {group}: revoke {group} from {name}" for group in groups]
    return found
