"""The policies of a secured schema: which rows of a table each role sees and writes.

The organisation of a transaction is its local setting `mainspring.org`; policies read it once a statement.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from mainspring.db.schema.rights import GATED, POLICIES, SEEN, SHARED, WRITTEN

#: The organisation that the transaction is bound to, or null: evaluated once a statement.
ORG: Final = "(select nullif(current_setting('mainspring.org', true), ''))"
#: The same for applications: they have no business with the engine's own.
_TENANT: Final = "(select nullif(nullif(current_setting('mainspring.org', true), ''), 'SYSTEM'))"
#: Who acts, also while a verb runs as the owner.
_ACTING: Final = "(coalesce(nullif(current_setting('role'), 'none'), session_user))::name"
#: A gate of a limit that is everybody's, or of the organisation: the same words as in `gate_of`.
_OWN_GATE: Final = (
    "(split_part(gate, '/', 2) = '' or split_part(gate, '/', 2) = (select replace(replace("
    "nullif(current_setting('mainspring.org', true), ''), '%', '%25'), '/', '%2F')))"
)


class RowPolicy(NamedTuple):
    """What one role may see of a table, and what it may write there."""

    role: str
    seen: str
    written: str


def policies(table: str, schema: str, owner: str) -> dict[str, RowPolicy]:
    """The policies of a table, by name.

    >>> policies("job", "mainspring", "boss")["operator"].seen
    "org_id = (select nullif(current_setting('mainspring.org', true), ''))"
    """
    roles = {name: owner if name == "owner" else f"{schema}_{name}" for name in POLICIES}
    orgs = dict.fromkeys(POLICIES, ORG) | {"api": _TENANT, "owner": _of_caller(roles)}
    return {name: RowPolicy(roles[name], *_rows(name, table, orgs[name])) for name in POLICIES}


def _of_caller(roles: dict[str, str]) -> str:
    """The organisation for a verb, which runs as the owner; SYSTEM is for whoever may choose it without the verb."""
    admitted = " or ".join(
        f"pg_has_role({_ACTING}, {_literal(role)}::name, 'usage')" for name, role in roles.items() if name != "api"
    )
    return (
        "(select nullif(current_setting('mainspring.org', true), '') "
        f"where current_setting('mainspring.org', true) <> 'SYSTEM' or {admitted})"
    )


def _rows(name: str, table: str, org: str) -> tuple[str, str]:
    seen = written = f"org_id = {org}"
    if name in SHARED.get(table, ()):
        only = None
        if name == "operator":
            only = _OWN_GATE if table in GATED else SEEN.get(table)
        seen, written = f"{seen} or {_engine_s(only)}", f"{written} or {_engine_s(WRITTEN.get(table))}"
    if name == "worker":  # claims span organisations; a job's own transaction is bound to its one
        seen, written = f"{seen} or {org} is null", f"{written} or {org} is null"
    return seen, written


def _engine_s(only: str | None) -> str:
    return "org_id = 'SYSTEM'" if only is None else f"(org_id = 'SYSTEM' and {only})"


def _literal(name: str) -> str:
    return "'" + name.replace("'", "''") + "'"
