"""`mainspring org`: the keys of organisations."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from mainspring.cli import output
from mainspring.cli.connection import UNSAID_CONNECTION, ConnectionOptions
from mainspring.errors import ValidationError

app = App(name="org", help="Rotate and erase the keys of organisations.", help_format="plaintext")


@app.command
def rotate(org: str, *, reason: str, connection: ConnectionOptions = UNSAID_CONNECTION) -> None:
    """Give an organisation a new key for what is written from now on. Needs the application, which has the master key.

    Args:
        org: The organisation.
        reason: Why, for the audit trail.
        connection: The database, and who acts.
    """
    connection.needed_application()
    with connection.client() as client:
        client.rotate(org, reason=reason)
    output.as_json({"org": org, "rotated": True}) if connection.json else output.say(f"{org} has a new key")


@app.command
def erase(
    org: str,
    *,
    reason: str,
    yes: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> None:
    """Delete an organisation's keys: what they encrypted can be read by nobody any more. There is no way back.

    For applications that encrypt (`App(cipher=...)`). Recipients, messages and inbound webhooks, which are not
    encrypted, are deleted or emptied; other plain payloads stay readable.

        mainspring org erase acme --reason "asked to be forgotten" --yes

    Args:
        org: The organisation.
        reason: Why, for the audit trail.
        yes: That you mean it.
        connection: The database, and who acts.
    """
    if not yes:
        raise ValidationError(f"yes: say --yes to make everything encrypted of {org} unreadable for ever", field="yes")
    with connection.client() as client:
        count = client.erase(org, reason=reason)
    if connection.json:
        output.as_json({"org": org, "keys": count})
    else:
        output.say(f"{org}: {count} {'key' if count == 1 else 'keys'} erased")
