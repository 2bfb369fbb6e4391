"""One request: who asks, for which account, and the objects that it may see and write."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from mainspring_sandbox.stripe.errors import no_such
from mainspring_sandbox.stripe.form import FormParams

if TYPE_CHECKING:
    from mainspring_sandbox.stripe.state import StripeStandIn

#: An object as Stripe shows it. What begins with an underscore is ours, and never shown.
Thing = dict[str, Any]

#: What each kind of object is called in the ledger, and how its ids begin.
PREFIXES: Final = {
    "account": "acct",
    "balance_transaction": "txn",
    "charge": "ch",
    "checkout.session": "cs_test",
    "customer": "cus",
    "dispute": "dp",
    "event": "evt",
    "payment_intent": "pi",
    "payment_method": "pm",
    "payout": "po",
    "refund": "re",
    "setup_intent": "seti",
    "transfer": "tr",
    "transfer_reversal": "trr",
    "webhook_endpoint": "we",
}
KINDS: Final = {prefix: kind for kind, prefix in PREFIXES.items()}


@dataclass(slots=True)
class Call:
    """What a page is given: the parameters, and the part of the book that belongs to the caller's account."""

    stripe: StripeStandIn
    params: FormParams = field(default_factory=FormParams)
    path: dict[str, str] = field(default_factory=dict)
    account: str | None = None  # of `Stripe-Account`; none: the platform itself
    version: str | None = None
    key: str | None = None  # of `Idempotency-Key`
    id: str | None = None  # of the request

    def now(self) -> int:
        """Seconds since 1970 on the sandbox's clock."""
        return int(self.stripe.world.now().timestamp())

    def add(self, kind: str, fields: Thing) -> Thing:
        """Write a new object."""
        id = fields.pop("id", None) or self.stripe.world.new_id(PREFIXES[kind])
        thing = {"id": id, "object": kind, "created": self.now(), "livemode": False, **fields, "_account": self.account}
        self.stripe.world.ledger.add(f"stripe.{kind}", id, thing)
        return thing

    def save(self, thing: Thing, **changes: Any) -> Thing:
        """Write what changed; the object at hand is brought up to date, too."""
        thing.update(self.stripe.world.ledger.change(f"stripe.{thing['object']}", thing["id"], **changes).body)
        return thing

    def get(self, kind: str, id: str | None = None, *, param: str = "id") -> Thing:
        """An object of this account, by the id in the path or by the one given."""
        id = self.path["id"] if id is None else id
        found = self.stripe.world.ledger.get(f"stripe.{kind}", id)
        if found is None or found.body["_account"] != self.account or found.body.get("deleted"):
            raise no_such(kind.replace("_", "").replace("paymentmethod", "PaymentMethod"), id, param)
        return found.body

    def emit(self, type: str, thing: Thing, before: Thing | None = None) -> Thing:
        """Tell the account's webhook endpoints what happened."""
        data = {"object": shown(thing)} | ({"previous_attributes": before} if before else {})
        fields = {
            "type": type,
            "api_version": self.version,
            "data": data,
            "request": {"id": self.id, "idempotency_key": self.key},
            "pending_webhooks": 0,
        }
        if self.account is not None:
            fields["account"] = self.account
        event = self.add("event", fields)
        return self.save(event, pending_webhooks=self.stripe.post.put(event))


def shown(thing: Thing) -> Thing:
    """An object without what is ours."""
    return {name: value for name, value in thing.items() if not name.startswith("_")}


def expanded(call: Call, thing: Thing, wanted: list[str]) -> Thing:
    """An object with the objects inside that were asked for in place of their ids."""
    for path in wanted:
        first, _, rest = path.partition(".")
        value = thing.get(first)
        if isinstance(value, str) and (kind := KINDS.get(value.rsplit("_sandbox_", 1)[0])):
            found = call.stripe.world.ledger.get(f"stripe.{kind}", value)
            value = thing[first] = shown(found.body) if found else value
        if rest:
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, dict):
                    expanded(call, part, [rest])
    return thing
