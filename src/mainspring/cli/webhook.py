"""`mainspring webhook`: endpoints of organisations, and what became of deliveries."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import msgspec
from cyclopts import App, Parameter

from mainspring.cli import output
from mainspring.cli.connection import UNSAID_CONNECTION, ConnectionOptions
from mainspring.cli.exits import complain
from mainspring.cli.spans import TypedSpan
from mainspring.errors import ConfigurationError, ValidationError
from mainspring.text.span import span

if TYPE_CHECKING:
    from mainspring.client import Client
    from mainspring.contrib.webhooks import Delivery, Endpoint, Webhooks

app = App(name="webhook", help="Register endpoints, see deliveries, send one again.", help_format="plaintext")
endpoint = App(name="endpoint", help="Register endpoints of organisations, and change them.", help_format="plaintext")
delivery = App(name="delivery", help="See what became of deliveries, and send one again.", help_format="plaintext")
app.command(endpoint)
app.command(delivery)

ENDPOINTS = ("ENDPOINT", "STATE", "SINCE", "EVENTS", "URL")
DELIVERIES = ("DELIVERY", "STATUS", "CREATED", "EVENT", "ATTEMPTS", "HTTP", "ENDPOINT", "ERROR")
BODY_SHOWN = 2000  # characters of a body that people are shown


@endpoint.command
def add(
    url: str,
    *,
    event: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    header: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    description: str | None = None,
    org: str | None = None,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> None:
    """Register an endpoint, and print its secret: this once.

    The application says what may be reached: HTTPS at public addresses, unless its
    configuration opens more.

        mainspring webhook endpoint add https://example.com/hooks --app shop:app --event order.paid --event "invoice.*"

    Args:
        url: Where its events go.
        event: Only events of this name, or of `prefix.*`; may be repeated. None: all.
        header: A header that each request carries, as "Name: value"; may be repeated.
        description: A note for people.
        org: The organisation; else `default`.
        connection: The database, the application, and who acts.
    """
    with _hooks(connection, needed=True) as (hooks, client):
        about: Any = {"events": event, "headers": _headers(header), "description": description, "org": org}
        added = hooks.endpoints(client).add(url, **about)
    if connection.json:
        document = msgspec.to_builtins(added.endpoint) | {"secret": added.secret}
        return output.as_json(document, secrets=False)
    output.say(f"{added.endpoint.id}: {added.endpoint.url}")
    return _secret(added.secret)


@endpoint.command(name="list")
def list_endpoints(
    *, org: str | None = None, limit: int = 100, connection: ConnectionOptions = UNSAID_CONNECTION
) -> None:
    """Show endpoints.

    Args:
        org: Only those of this organisation.
        limit: At most so many.
        connection: The database.
    """
    with _hooks(connection) as (hooks, client):
        found, now = hooks.endpoints(client).list(org=org, limit=limit), client.now()
    if connection.json:
        return output.as_json([msgspec.to_builtins(each) for each in found])
    return output.table(ENDPOINTS, map(_endpoint, found), "There are no endpoints.", now=now)


@endpoint.command(name="show")
def show_endpoint(id: UUID, *, org: str | None = None, connection: ConnectionOptions = UNSAID_CONNECTION) -> None:
    """Show one endpoint; its secrets are shown to nobody.

    Args:
        id: The endpoint.
        org: The organisation that it belongs to.
        connection: The database.
    """
    with _hooks(connection) as (hooks, client):
        found, now = hooks.endpoints(client).get(id, org=org), client.now()
    if connection.json:
        return output.as_json(msgspec.to_builtins(found))
    about = msgspec.structs.asdict(found) | {"events": found.events or "all"}
    return output.fields({name.replace("_", " "): value for name, value in about.items()}, now=now)


@endpoint.command
def pause(id: UUID, *, reason: str, org: str | None = None, connection: ConnectionOptions = UNSAID_CONNECTION) -> None:
    """Send nothing to an endpoint for now: its deliveries wait until it is resumed.

    Args:
        id: The endpoint.
        reason: Why, for the audit trail.
        org: The organisation that it belongs to.
        connection: The database, and who acts.
    """
    with _hooks(connection) as (hooks, client):
        changed = hooks.endpoints(client).pause(id, reason=reason, org=org)
    _said(id, "paused", "is paused" if changed else "was paused already", connection, changed)


@endpoint.command
def resume(
    id: UUID, *, reason: str | None = None, org: str | None = None, connection: ConnectionOptions = UNSAID_CONNECTION
) -> None:
    """Send to an endpoint again that is paused or disabled; what waits goes out at once.

    Args:
        id: The endpoint.
        reason: Why, for the audit trail.
        org: The organisation that it belongs to.
        connection: The database, and who acts.
    """
    with _hooks(connection) as (hooks, client):
        changed = hooks.endpoints(client).resume(id, reason=reason, org=org)
    _said(id, "active", "is active again" if changed else "was active already", connection, changed)


@endpoint.command
def remove(id: UUID, *, reason: str, org: str | None = None, connection: ConnectionOptions = UNSAID_CONNECTION) -> None:
    """Remove an endpoint and its secrets; what waits for it is cancelled.

    Args:
        id: The endpoint.
        reason: Why, for the audit trail.
        org: The organisation that it belongs to.
        connection: The database, and who acts.
    """
    with _hooks(connection) as (hooks, client):
        hooks.endpoints(client).remove(id, reason=reason, org=org)
    _said(id, None, "is removed", connection, True)


@endpoint.command
def rotate(
    id: UUID,
    *,
    overlap: Annotated[TypedSpan, Parameter(show_default=span)] = timedelta(hours=24),
    reason: str | None = None,
    org: str | None = None,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> None:
    """Give an endpoint a new secret, and print it: this once.

    Until the overlap is over requests are signed with the old secret as well.

        mainspring webhook endpoint rotate 0199d2f6-7b1c-7a55-8a3e-6f1d2c3b4a59 --overlap 0s --reason "it leaked"

    Args:
        id: The endpoint.
        overlap: How long the old secret signs too: 24h, 30m; 0s when others know it.
        reason: Why, for the audit trail.
        org: The organisation that it belongs to.
        connection: The database, the application, and who acts.
    """
    with _hooks(connection, needed=True) as (hooks, client):
        how: Any = {"overlap": overlap, "reason": reason, "org": org}
        secret = hooks.endpoints(client).rotate(id, **how)
    if connection.json:
        return output.as_json({"endpoint": id, "secret": secret}, secrets=False)
    return _secret(secret)


@delivery.command(name="list")
def list_deliveries(
    *,
    endpoint: UUID | None = None,
    status: str | None = None,
    event: str | None = None,
    before: UUID | None = None,
    org: str | None = None,
    limit: int = 50,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> None:
    """Show deliveries, newest first.

    Args:
        endpoint: Only those to this endpoint.
        status: Only pending, delivered or failed ones.
        event: Only events of this name.
        before: Go on after this one.
        org: Only those of this organisation.
        limit: At most so many.
        connection: The database.
    """
    filters: Any = {"endpoint": endpoint, "status": status, "event": event, "before": before, "limit": limit}
    with _hooks(connection) as (hooks, client):
        found, now = hooks.deliveries(client).list(org=org, **filters), client.now()
    if connection.json:
        return output.as_json([_document(each) for each in found])
    return output.table(DELIVERIES, map(_delivery, found), "There are no such deliveries.", now=now)


@delivery.command(name="show")
def show_delivery(id: UUID, *, org: str | None = None, connection: ConnectionOptions = UNSAID_CONNECTION) -> None:
    """Show one delivery: what was sent, and what was last answered.

    Args:
        id: The delivery.
        org: The organisation that it belongs to.
        connection: The database; the application where it encrypts.
    """
    with _hooks(connection) as (hooks, client):
        found, now = hooks.deliveries(client).get(id, org=org), client.now()
    if connection.json:
        return output.as_json(_document(found))
    return _tell(found, now)


@delivery.command
def redeliver(
    id: UUID, *, reason: str, org: str | None = None, connection: ConnectionOptions = UNSAID_CONNECTION
) -> None:
    """Send a delivery again, under its own id, whether it failed or was delivered.

        mainspring webhook delivery redeliver 0199d2f6-7b1c-7a55-8a3e-6f1d2c3b4a59 --reason "they lost it"

    Args:
        id: The delivery.
        reason: Why, for the audit trail.
        org: The organisation that it belongs to.
        connection: The database, the application, and who acts.
    """
    with _hooks(connection, needed=True) as (hooks, client):  # its own task, queue and attempts
        job = hooks.deliveries(client).redeliver(id, reason=reason, org=org)
    if connection.json:
        return output.as_json({"delivery": id, "job": job})
    return output.say(f"{id}: is sent again by job {job}")


@app.command(name="test")
def ping(
    id: UUID,
    *,
    wait: Annotated[TypedSpan, Parameter(show_default=span)] = timedelta(seconds=10),
    org: str | None = None,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> int:
    """Send a `webhook.ping` event to an endpoint, whatever it wants, and see what it answers.

    A worker sends it. Exits with 1 if it was not delivered in time.

    Args:
        id: The endpoint.
        wait: How long to wait for the answer: 10s, 1m; 0s: not at all.
        org: The organisation that it belongs to.
        connection: The database, the application, and who acts.
    """
    patience = time.monotonic() + wait.total_seconds()
    with _hooks(connection, needed=True) as (hooks, client):
        found = hooks.endpoints(client).ping(id, org=org)
        while True:
            sent, now = hooks.deliveries(client).get(found, org=org), client.now()
            if (sent.attempts and (sent.status != "pending" or sent.error)) or time.monotonic() >= patience:
                break
            time.sleep(0.1)
    if connection.json:
        output.as_json(_document(sent))
    else:
        _tell(sent, now)
    if wait and not sent.attempts:
        complain(f"no worker sent it within {span(wait)}: see `mainspring job explain {sent.job_id}`")
    return 0 if sent.status == "delivered" or not wait else 1


@contextmanager
def _hooks(connection: ConnectionOptions, *, needed: bool = False) -> Iterator[tuple[Webhooks, Client]]:
    """The application's webhooks, and a client; what only reads, or changes a state, does without an application."""
    from mainspring.contrib.webhooks import Webhooks

    application = connection.needed_application() if needed else connection.application()
    found = next((block for block in application.blocks if isinstance(block, Webhooks)), None) if application else None
    if found is None and needed:
        raise ConfigurationError("app: has no webhooks: give it blocks=[Webhooks()]")
    with connection.client(application) as client:
        yield found or Webhooks(), client


def _headers(given: tuple[str, ...]) -> dict[str, str]:
    pairs = [text.partition(":") for text in given]
    if any(not colon for _, colon, _ in pairs):
        raise ValidationError('headers: is not of the form "Name: value"', field="headers")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _secret(secret: str) -> None:
    print(secret)  # as it is: whatever else is printed is masked
    output.say("Keep it where secrets are kept: it is not shown again.")


def _said(id: UUID, state: str | None, text: str, connection: ConnectionOptions, changed: bool) -> None:
    if connection.json:
        output.as_json({"endpoint": id, "state": state, "changed": changed})
    else:
        output.say(f"{id} {text}")


def _endpoint(row: Endpoint) -> tuple[object, ...]:
    url = row.url if row.org_id == "default" else f"{row.url} ({row.org_id})"
    return row.id, row.state, row.changed_at, ", ".join(row.events) or "all", url


def _delivery(row: Delivery) -> tuple[object, ...]:
    about = row.created_at, row.event_type, row.attempts, row.http_status, row.endpoint
    return row.id, row.status, *about, row.error


def _document(row: Delivery) -> dict[str, object]:
    """With the bodies as text: they are JSON, nearly always."""
    return msgspec.structs.asdict(row) | {"response_body": _text(row.response_body)}


def _text(body: bytes | None) -> str | None:
    return None if body is None else body.decode("utf-8", "replace")


def _tell(found: Delivery, now: Any) -> None:
    about = msgspec.structs.asdict(found) | {"response_body": (_text(found.response_body) or "")[:BODY_SHOWN]}
    output.fields({name.replace("_", " "): value for name, value in about.items()}, now=now)
