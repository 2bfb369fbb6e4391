"""Who plays a role of a secured schema, and whether they would be more than it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mainspring.db.schema.catalogue import Catalogue, role_names

#: Roles of PostgreSQL that may what only a verb should.
_BEYOND: Final = ("pg_read_all_data", "pg_write_all_data", "pg_execute_server_program", "pg_write_server_files")


def bad_members(schema: Catalogue) -> Iterator[str]:
    """Why a role of ours, or a login that has one, would be more than it should.

    Who has made a role has it only to give away (PostgreSQL 16 and later), and does not play it.
    """
    ours = role_names(schema.name)
    rows = schema.rows(
        """
        with recursive member(role, of) as (
          select r.oid, r.oid from pg_catalog.pg_roles r
          union
          select m.role, a.roleid from member m join pg_catalog.pg_auth_members a on a.member = m.of
          where coalesce((to_jsonb(a) ->> 'inherit_option')::boolean, true)
             or coalesce((to_jsonb(a) ->> 'set_option')::boolean, true))
        select r.rolname, r.rolsuper or r.rolbypassrls,
               array_agg(g.rolname::text order by g.rolname) filter (where g.rolname = any(%s)),
               array_agg(g.rolname::text order by g.rolname) filter (where g.oid = n.nspowner or g.rolname = any(%s))
        from member m join pg_catalog.pg_roles r on r.oid = m.role join pg_catalog.pg_roles g on g.oid = m.of
        cross join pg_catalog.pg_namespace n
        where n.nspname = %s and r.oid <> n.nspowner
        group by r.rolname, r.rolsuper, r.rolbypassrls order by 1
        """,
        ours,
        list(_BEYOND),
        schema.name,
    )
    for name, free, groups, beyond in rows:
        if not groups:
            continue
        if free:
            yield f"{name} is a superuser or bypasses row-level security"
        if name in ours:
            more = (group for group in groups if group != name)
            yield from (f"{name} is a member of {group}: revoke {group} from {name}" for group in more)
        elif len(groups) > 1:
            yield f"{name} has more than one role: revoke all but one of {', '.join(groups)} from {name}"
        yield from (f"{name} is a member of {group} as well: revoke {group} from {name}" for group in beyond or ())
