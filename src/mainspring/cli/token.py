"""`mainspring token`: the tokens by which programs come in over HTTP."""

from __future__ import annotations

from typing import Annotated

import msgspec
from cyclopts import App, Parameter

from mainspring.cli import output
from mainspring.cli.connection import UNSAID_CONNECTION, ConnectionOptions
from mainspring.cli.grant import UNSAID_GRANT, GrantOptions, may_see
from mainspring.cli.spans import TypedSpan
from mainspring.declare.credential import TOKEN_LIFETIME

app = App(name="token", help="Make, see and revoke the tokens of programs.", help_format="plaintext")

COLUMNS = ("TOKEN", "STATE", "ROLE", "MAY SEE", "LAST USED", "ENDS", "NAME")


@app.command
def create(
    name: str,
    *,
    may: GrantOptions = UNSAID_GRANT,
    expires: TypedSpan = TOKEN_LIFETIME,
    never_expires: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    reason: str | None = None,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> None:
    """Make a token, and print it: this once.

    A program shows it as `Authorization: Bearer …`. To change one without a
    gap, make another of the same name, and revoke the old one afterwards.

        mainspring token create deploys --role operator --org acme
        mainspring token create grafana --expires 365d --json | jq -r .token

    Args:
        name: What it is for, as the audit trail has it.
        may: What it may.
        expires: How long it is good for: 12h, 90d.
        never_expires: Let it be good until it is revoked.
        reason: Why, for the audit trail.
        connection: The database, and who acts.
    """
    from mainspring.db import access

    grant = may.grant()
    lifetime = None if never_expires else expires
    made = connection.ask(lambda sql, who: access.create_token(sql, name, grant, lifetime, who, reason))
    if connection.json:
        document = {"id": made.id, "name": name, **msgspec.to_builtins(grant), "token": made.text}
        return output.as_json(document, secrets=False)
    print(made.text)  # as it is: whatever else is printed is masked
    return output.say("Keep it where secrets are kept: it is not shown again.")


@app.command(name="list")
def list_tokens(*, org: str | None = None, connection: ConnectionOptions = UNSAID_CONNECTION) -> None:
    """Show every token, the newest first; secrets are shown to nobody.

    Args:
        org: Only those that are bound to this organisation.
        connection: The database.
    """
    from mainspring.db import access

    found = connection.ask(lambda sql, _: access.tokens(sql, org))
    if connection.json:
        return output.as_json(found)
    rows = ((t.id, t.state, t.role, may_see(t), t.used_at, t.revoked_at or t.expires_at, t.name) for t in found)
    return output.table(COLUMNS, rows, "There are no tokens.")


@app.command
def revoke(id: str, *, reason: str | None = None, connection: ConnectionOptions = UNSAID_CONNECTION) -> None:
    """End a token, now.

        mainspring token revoke 5f2c8a90b1d4 --reason "left on a train"

    Args:
        id: Its id, as `token list` shows it.
        reason: Why, for the audit trail.
        connection: The database, and who acts.
    """
    from mainspring.db import access

    changed = connection.ask(lambda sql, who: access.revoke_token(sql, id, who, reason))
    if connection.json:
        return output.as_json({"id": id, "revoked": changed})
    return output.say(f"{id} {'is revoked' if changed else 'was revoked before'}")
