"""`mainspring user`: the people who come in over HTTP."""

from __future__ import annotations

import getpass
import sys
from typing import Annotated, Any

from cyclopts import App, Parameter

from mainspring.cli import output
from mainspring.cli.connection import UNSAID_CONNECTION, ConnectionOptions
from mainspring.cli.grant import UNSAID_GRANT, GrantOptions, may_see
from mainspring.declare.credential import AccessRole
from mainspring.errors import ValidationError

app = App(name="user", help="Let people in over HTTP, and out.", help_format="plaintext")

COLUMNS = ("USER", "ROLE", "MAY SEE", "SIGNS IN BY", "LAST SIGNED IN", "SESSIONS", "STATE")
LOCAL_URL = "http://127.0.0.1:8080"


@app.command
def create(
    name: str,
    *,
    may: GrantOptions = UNSAID_GRANT,
    reason: str | None = None,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> None:
    """Let somebody in. They sign in by a link, or by a password once they have one.

        mainspring user create olga --role admin
        mainspring user link olga

    Args:
        name: Their name, as the audit trail has it.
        may: What they may.
        reason: Why, for the audit trail.
        connection: The database, and who acts.
    """
    from mainspring.db import access

    connection.ask(lambda sql, who: access.create_user(sql, name, may.grant(), None, who, reason))
    _said({"name": name, "created": True}, f"{name} may sign in: mainspring user link {name}", connection)


@app.command(name="list")
def list_users(*, org: str | None = None, connection: ConnectionOptions = UNSAID_CONNECTION) -> None:
    """Show who may come in, and who came last when.

    Args:
        org: Only those that are bound to this organisation.
        connection: The database.
    """
    from mainspring.db import access

    found = connection.ask(lambda sql, _: access.users(sql, org))
    if connection.json:
        return output.as_json(found)
    rows = (
        (
            user.name, user.role, may_see(user), user.signs_in_by, user.signed_in_at, user.sessions,
            "disabled" if user.disabled_at else "",
        )
        for user in found
    )  # fmt: skip
    return output.table(COLUMNS, rows, "There are no users: mainspring user create NAME --role admin")


@app.command
def change(
    name: str,
    *,
    role: AccessRole | None = None,
    org: str | None = None,
    all_orgs: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    reveals: Annotated[bool | None, Parameter(negative="--no-reveals", show_default=False)] = None,
    reason: str | None = None,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> None:
    """Change what somebody may; it holds from their next request on.

        mainspring user change ben --role operator --org acme

    Args:
        name: Their name.
        role: Their new role.
        org: The only organisation that exists for them.
        all_orgs: Bind them to none.
        reveals: Whether they may see payloads unmasked.
        reason: Why, for the audit trail.
        connection: The database, and who acts.
    """
    if org is not None and all_orgs:
        raise ValidationError("org: give one of --org and --all-orgs", field="org")
    said = {"role": role, "org": org, "reveals": reveals}
    wanted: dict[str, Any] = {field: value for field, value in said.items() if value is not None}
    if all_orgs:
        wanted["org"] = None
    if not wanted:
        raise ValidationError("role: say what is to change: --role, --org, --all-orgs or --reveals", field="role")
    changed = _change(name, wanted, reason, connection)
    _said({"name": name, "changed": changed}, f"{name} {'is changed' if changed else 'was so before'}", connection)


@app.command
def disable(name: str, *, reason: str | None = None, connection: ConnectionOptions = UNSAID_CONNECTION) -> None:
    """Keep somebody out, now: their sessions and links end.

    Args:
        name: Their name.
        reason: Why, for the audit trail.
        connection: The database, and who acts.
    """
    changed = _change(name, {"disabled": True}, reason, connection)
    _said({"name": name, "disabled": changed}, f"{name} {'is' if changed else 'was'} disabled", connection)


@app.command
def enable(name: str, *, reason: str | None = None, connection: ConnectionOptions = UNSAID_CONNECTION) -> None:
    """Let somebody in again.

    Args:
        name: Their name.
        reason: Why, for the audit trail.
        connection: The database, and who acts.
    """
    changed = _change(name, {"disabled": False}, reason, connection)
    text = f"{name} {'may sign in again' if changed else 'was not disabled'}"
    _said({"name": name, "enabled": changed}, text, connection)


@app.command
def password(
    name: str,
    *,
    remove: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    reason: str | None = None,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> None:
    """Give somebody a password, or take it away; their sessions end.

    It is asked for twice, or read as one line from a pipe, and never an argument:
    others see those. Of its characters nothing is asked, but 12 of them, better 15.

        mainspring user password olga
        mainspring user password olga < olga.txt

    Args:
        name: Their name.
        remove: Take it away: they sign in by links.
        reason: Why, for the audit trail.
        connection: The database, and who acts.
    """
    from mainspring.db import access

    typed = None if remove else _typed()
    connection.ask(lambda sql, who: access.set_password(sql, name, typed, who, reason))
    text = f"{name} has {'no password' if remove else 'a new password'}; their sessions have ended"
    _said({"name": name, "signs_in_by": "link" if remove else "password"}, text, connection)


@app.command
def link(
    name: str,
    *,
    url: str | None = None,
    reason: str | None = None,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> None:
    """Print a link by which somebody signs in: once, within 15 minutes. Another one makes it void.

        mainspring user link olga --url https://jobs.example

    Args:
        name: Their name.
        url: Where the server is found; else APP_URL, or port 8080 of this machine.
        reason: Why, for the audit trail.
        connection: The database, and who acts.
    """
    from mainspring.config import app_url
    from mainspring.db import access
    from mainspring.declare.credential import new_secret, sign_in_link

    code = new_secret()
    made = sign_in_link(url or app_url() or LOCAL_URL, code)
    connection.ask(lambda sql, who: access.create_link(sql, name, code, who, reason))
    if connection.json:
        return output.as_json({"name": name, "link": made}, secrets=False)
    print(made)  # as it is: whatever else is printed is masked
    return output.say("It signs in once, within 15 minutes: give it to nobody but them.")


def _change(name: str, wanted: dict[str, Any], reason: str | None, connection: ConnectionOptions) -> bool:
    from mainspring.db import access

    return connection.ask(lambda sql, who: access.change_user(sql, name, wanted, who, reason))


def _typed() -> str:
    """A password, from whoever types it, or from a pipe."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    first = getpass.getpass("Password: ")
    if getpass.getpass("Again: ") != first:
        raise ValidationError("password: the two are not the same", field="password")
    return first


def _said(document: dict[str, object], text: str, connection: ConnectionOptions) -> None:
    output.as_json(document) if connection.json else output.say(text)
