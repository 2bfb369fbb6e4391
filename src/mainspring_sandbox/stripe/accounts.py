"""Connected accounts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mainspring_sandbox.stripe.call import Call, Thing
from mainspring_sandbox.stripe.errors import ErrorAnswer
from mainspring_sandbox.stripe.lists import PAGING, listed
from mainspring_sandbox.stripe.pages import page

TAKES = (
    "email capabilities metadata business_type business_profile company individual settings tos_acceptance "
    "default_currency"
)


def create(call: Call) -> Thing:
    """Connect one; what it asks for it may do at once."""
    capabilities = _asked(call.params.part("capabilities"))
    fields: Thing = {
        "type": call.params.text("type") or "none",
        "country": call.params.text("country") or "US",
        "email": call.params.text("email"),
        "default_currency": call.params.text("default_currency") or "usd",
        "capabilities": capabilities or {"card_payments": "active", "transfers": "active"},
        "charges_enabled": True,
        "payouts_enabled": True,
        "details_submitted": True,
        "requirements": _requirements(),
        "metadata": call.params.metadata(),
    }
    return call.add("account", fields)


def update(call: Call) -> Thing:
    """Change one."""
    account = call.get("account")
    capabilities = account["capabilities"] | _asked(call.params.part("capabilities"))
    call.save(account, capabilities=capabilities, metadata=call.params.metadata(account["metadata"]))
    return _told(call, account)


def restrict(call: Call, capabilities: dict[str, str]) -> Thing:
    """What Stripe's checks decide later: what an account may do."""
    account = call.get("account")
    return _told(call, call.save(account, capabilities=account["capabilities"] | capabilities))


def require(call: Call, past_due: list[str]) -> Thing:
    """What Stripe still wants to know of an account, too late already: until it does, nothing is paid out of it."""
    account, well = call.get("account"), not past_due
    call.save(account, requirements=_requirements(past_due), payouts_enabled=well)
    return _told(call, account)


def _told(call: Call, account: Thing) -> Thing:
    """As Stripe does, the account's own endpoints are told, and the platform's that listen to connected accounts."""
    replace(call, account=account["id"]).emit("account.updated", account)
    return account


def _requirements(past_due: list[str] | None = None) -> Thing:
    due = past_due or []
    reason = "requirements.past_due" if due else None
    fields: Thing = {name: [] for name in ("alternatives", "errors", "pending_verification")}
    fields |= {name: list(due) for name in ("currently_due", "eventually_due", "past_due")}
    return fields | {"current_deadline": None, "disabled_reason": reason}


def _asked(given: dict[str, Any]) -> dict[str, str]:
    return {name: "active" for name, asked in given.items() if asked == {"requested": "true"}}


def _own(call: Call) -> Thing:
    if call.account is None:
        raise ErrorAnswer(404, "The sandbox's platform account has no page: name a connected account.")
    found = call.stripe.world.ledger.get("stripe.account", call.account)
    assert found is not None
    return found.body


PAGES = [
    page("POST", "/v1/accounts", create, f"{TAKES} type country controller"),
    page("GET", "/v1/accounts", lambda call: listed(call, "account", "/v1/accounts"), PAGING),
    page("GET", "/v1/account", _own),
    page("GET", "/v1/accounts/{id}", lambda call: call.get("account")),
    page("POST", "/v1/accounts/{id}", update, TAKES),
]
