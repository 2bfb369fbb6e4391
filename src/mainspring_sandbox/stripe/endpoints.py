"""Webhook endpoints: where events go, on this machine alone."""

from __future__ import annotations

import hashlib
from typing import Any

from mainspring_sandbox.post import local
from mainspring_sandbox.stripe.call import Call, Thing, shown
from mainspring_sandbox.stripe.errors import invalid, missing
from mainspring_sandbox.stripe.lists import PAGING, listed
from mainspring_sandbox.stripe.pages import page


def create(call: Call) -> Thing:
    """Register one; its secret is shown this once."""
    return shown(registered(call)) | {"secret": _secret(call)}


def registered(call: Call, secret: str | None = None) -> Thing:
    """Write one, with a secret of its own or with the one given."""
    url, events = call.params.required("url"), call.params.words("enabled_events")
    if not local(url):
        raise invalid(
            "The sandbox delivers to loopback addresses alone, such as http://127.0.0.1:8000/...", param="url"
        )
    if not events:
        raise missing("enabled_events")
    fields: Thing = {"url": url, "enabled_events": events, "status": "enabled", "metadata": call.params.metadata()}
    fields |= {"description": call.params.text("description"), "api_version": call.params.text("api_version")}
    endpoint = call.add("webhook_endpoint", fields | {"_connect": bool(call.params.flag("connect"))})
    call.path["id"] = endpoint["id"]
    return call.save(
        endpoint, _secret=secret or f"whsec_sandbox_{hashlib.sha256(endpoint['id'].encode()).hexdigest()[:32]}"
    )


def update(call: Call) -> Thing:
    """Change one."""
    endpoint = call.get("webhook_endpoint")
    changes: dict[str, Any] = {}
    if "url" in call.params:
        changes["url"] = call.params.required("url")
        if not local(changes["url"]):
            raise invalid("The sandbox delivers to loopback addresses alone.", param="url")
    if "enabled_events" in call.params:
        changes["enabled_events"] = call.params.words("enabled_events")
    if "disabled" in call.params:
        changes["status"] = "disabled" if call.params.flag("disabled") else "enabled"
    return call.save(endpoint, **changes, metadata=call.params.metadata(endpoint["metadata"]))


def delete(call: Call) -> Thing:
    """Forget one."""
    endpoint = call.save(call.get("webhook_endpoint"), deleted=True)
    return {"id": endpoint["id"], "object": "webhook_endpoint", "deleted": True}


def _secret(call: Call) -> str:
    return str(call.get("webhook_endpoint")["_secret"])


PAGES = [
    page("POST", "/v1/webhook_endpoints", create, "url enabled_events description metadata api_version connect"),
    page(
        "GET", "/v1/webhook_endpoints", lambda call: listed(call, "webhook_endpoint", "/v1/webhook_endpoints"), PAGING
    ),
    page("GET", "/v1/webhook_endpoints/{id}", lambda call: call.get("webhook_endpoint")),
    page("POST", "/v1/webhook_endpoints/{id}", update, "url enabled_events description metadata disabled"),
    page("DELETE", "/v1/webhook_endpoints/{id}", delete),
]
