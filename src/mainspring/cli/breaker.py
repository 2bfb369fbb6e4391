"""`mainspring breaker`: see circuit breakers, and force them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from cyclopts import App

from mainspring.cli import output
from mainspring.cli.connection import UNSAID_CONNECTION, ConnectionOptions

if TYPE_CHECKING:
    from mainspring.db.breakers import BreakerRow

app = App(name="breaker", help="See and force circuit breakers.", help_format="plaintext")

COLUMNS = ("BREAKER", "STATE", "SINCE", "FAILURES", "NEXT PROBE", "WAITING", "FORCED BY", "REASON")
MOST_STOPPED_COUNTED = 10_000  # jobs are counted up to here


@app.command(name="list")
def list_breakers(
    *, org: str | None = None, limit: int = 100, connection: ConnectionOptions = UNSAID_CONNECTION
) -> None:
    """Show every breaker, and the keys that are open or forced.

    FAILURES are those of the window that its rule speaks of. WAITING are jobs that
    it has deferred; they lose no attempt by it.

    Args:
        org: Only keys of this organisation.
        limit: At most so many.
        connection: The database.
    """
    with connection.client() as client:
        found, now = client.breakers.list(org=org, limit=limit), client.now()
    if connection.json:
        return output.as_json([_document(row) for row in found])
    return output.table(COLUMNS, map(_row, found), "No worker has declared a breaker.", now=now)


@app.command
def show(
    name: str,
    *,
    key: str | None = None,
    org: str | None = None,
    limit: int = 100,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> None:
    """Show one breaker, its rule, and the keys of it that are or were in trouble.

    Args:
        name: The breaker's name.
        key: Only this key.
        org: Only keys of this organisation.
        limit: At most so many keys.
        connection: The database.
    """
    with connection.client() as client:
        found, now = client.breakers.show(name, key=key, org=org, limit=limit), client.now()
    if connection.json:
        return output.as_json([_document(row) for row in found])
    output.say(f"{name}: {found[0].rule.describe()}")
    return output.table(COLUMNS, map(_row, found), "", now=now)


@app.command(name="open")
def open_breaker(
    name: str,
    *,
    reason: str,
    key: str | None = None,
    org: str | None = None,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> None:
    """Hold the jobs that need a dependency until somebody closes its breaker or makes it automatic again.

    They lose no attempt by it.

        mainspring breaker open stripe --reason "maintenance until 14:00"
        mainspring breaker open webhook --key 7 --reason "the customer asked"

    Args:
        name: The breaker's name.
        reason: Why, for the audit trail.
        key: Only this key of it.
        org: The organisation that the key belongs to; else `default`.
        connection: The database, and who acts.
    """
    with connection.client() as client:
        changed = client.breakers.open(name, reason=reason, key=key, org=org)
    _said(name, key, "open", "is held open" if changed else "was held open already", connection, changed)


@app.command
def close(
    name: str,
    *,
    reason: str,
    key: str | None = None,
    org: str | None = None,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> None:
    """Let all calls through, whatever they meet, until somebody opens the breaker or makes it automatic again.

    The jobs that it has deferred run at once.

    Args:
        name: The breaker's name.
        reason: Why, for the audit trail.
        key: Only this key of it.
        org: The organisation that the key belongs to; else `default`.
        connection: The database, and who acts.
    """
    with connection.client() as client:
        changed = client.breakers.close(name, reason=reason, key=key, org=org)
    _said(name, key, "closed", "is held closed" if changed else "was held closed already", connection, changed)


@app.command
def auto(
    name: str,
    *,
    reason: str,
    key: str | None = None,
    org: str | None = None,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> None:
    """Let the calls decide again.

    Args:
        name: The breaker's name.
        reason: Why, for the audit trail.
        key: Only this key of it.
        org: The organisation that the key belongs to; else `default`.
        connection: The database, and who acts.
    """
    with connection.client() as client:
        changed = client.breakers.auto(name, reason=reason, key=key, org=org)
    _said(name, key, None, "is automatic again" if changed else "was not forced", connection, changed)


def _said(name: str, key: str | None, to: str | None, text: str, connection: ConnectionOptions, changed: bool) -> None:
    if connection.json:
        output.as_json({"breaker": name, "key": key, "forced": to, "changed": changed})
    else:
        output.say(f"{name if key is None else f'{name}:{key}'} {text}")


def _row(row: BreakerRow) -> tuple[object, ...]:
    name = row.name if row.key is None else f"{row.name}:{row.key}"
    if row.key is not None and row.org_id != "default":
        name += f" ({row.org_id})"
    state = f"forced {row.forced}" if row.forced else row.state.replace("_", " ")
    waiting = row.waiting if row.waiting < MOST_STOPPED_COUNTED else f"{MOST_STOPPED_COUNTED}+"
    return name, state, row.since, row.failed, row.next_probe, waiting, row.forced_by, row.forced_reason


def _document(row: BreakerRow) -> dict[str, object]:
    return {**msgspec.structs.asdict(row), "rule": row.rule.describe()}
