"""The stand-in for Stripe as tests and people hold it: its settings, keys and post, and what they make happen."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from mainspring_sandbox.post import PostSettings
from mainspring_sandbox.stripe import accounts, attempts, checkout, disputes, paying, payouts, refunds
from mainspring_sandbox.stripe.call import Call, Thing, shown
from mainspring_sandbox.stripe.deadlines import Deadlines
from mainspring_sandbox.stripe.endpoints import registered
from mainspring_sandbox.stripe.errors import no_such
from mainspring_sandbox.stripe.form import FormParams
from mainspring_sandbox.stripe.keys import IdempotencyKeys
from mainspring_sandbox.stripe.post import StripePost
from mainspring_sandbox.world import World

Number = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]
ChargeOutcome = Literal["succeeded", "failed"]
VERSION = "2026-10-28.endive"


class StripeSettings(PostSettings, kw_only=True, forbid_unknown_fields=True):
    """How it behaves, besides its faults."""

    version: str = VERSION  # of the API, for callers who name none
    pace: Seconds = 0.0  # how long each request takes; another one with its key is refused meanwhile
    broken: Number = 0  # so many are carried out, and answered 500 for as long as their keys live
    search_lag: Seconds = 0.0  # until a search finds an object; at Stripe up to a minute
    strict_balance: bool = False  # transfers need what was charged before


class StripeStandIn:
    """One Stripe, with one platform account and the accounts connected to it.

    ::

        with Sandbox() as sandbox:
            endpoint = sandbox.stripe.register("http://127.0.0.1:8000/v1/inbound/stripe")
            ...
            sandbox.stripe.settle("pi_sandbox_000012", "failed", "insufficient_funds")
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.settings = StripeSettings()
        self.keys = IdempotencyKeys(world)
        self.deadlines = Deadlines()
        for entry in world.ledger.find("stripe.checkout.session"):  # of a sandbox that goes on where it stood
            self.deadlines.set(entry.body.get("_voucher_until") or entry.body["expires_at"], entry.id)
        self.post = StripePost(self)

    def reset(self) -> None:
        """Behave as at the beginning."""
        self.settings = StripeSettings()
        self.keys.reset()
        self.deadlines.reset()
        self.post.reset()

    def settle(
        self,
        id: str,
        outcome: ChargeOutcome,
        decline_code: str = "generic_decline",
        *,
        method: str = "pm_card_visa",
    ) -> Thing:
        """How something ends: an intent that is processing or waits for its customer, a refund, a session.

        A session is paid by a `method`: a card, or `multibanco`, whose voucher is paid when it is settled once more.
        """
        with self.world.ledger.together():
            if id.startswith("re_"):
                return shown(refunds.settle(self._call("refund", id), outcome))
            if id.startswith("cs_"):
                return shown(paying.settle(self._call("checkout.session", id), outcome, method))
            if waiting := self.world.ledger.find("stripe.checkout.session", payment_intent=id, payment_status="unpaid"):
                paying.settle(self._call("checkout.session", waiting[0].id), outcome)
                return shown(self._call("payment_intent", id).get("payment_intent"))
            return shown(attempts.settle(self._call("payment_intent", id), outcome, decline_code))

    def register(
        self, url: str, *events: str, secret: str | None = None, account: str | None = None, connect: bool = False
    ) -> Thing:
        """A webhook endpoint, for all events unless some are named; with its secret in the answer."""
        given = {"url": url, "enabled_events": list(events or ("*",)), "connect": "true" if connect else "false"}
        with self.world.ledger.together():
            endpoint = registered(Call(self, FormParams(given), account=account), secret)
        return {**shown(endpoint), "secret": endpoint["_secret"]}

    def restrict(self, account: str, **capabilities: str) -> Thing:
        """What a connected account may do from now on, such as `transfers="inactive"`."""
        with self.world.ledger.together():
            return shown(accounts.restrict(self._call("account", account), capabilities))

    def require(self, account: str, *past_due: str) -> Thing:
        """What a connected account owes Stripe an answer to, such as `"individual.id_number"`; nothing: all is well."""
        with self.world.ledger.together():
            return shown(accounts.require(self._call("account", account), list(past_due)))

    def fail_payout(self, account: str, amount: int, currency: str = "usd", code: str = "account_closed") -> Thing:
        """The bank of a connected account does not take what Stripe pays out."""
        with self.world.ledger.together():
            call = Call(self, account=self._call("account", account).path["id"], version=self.settings.version)
            return shown(payouts.fail(call, amount, currency, code))

    def refund(self, id: str, amount: int | None = None) -> Thing:
        """Somebody gives money back in the dashboard, all of a charge or an intent, or a part."""
        given: Thing = {"charge" if id.startswith("ch_") else "payment_intent": id}
        with self.world.ledger.together():
            call = self._call("charge" if "charge" in given else "payment_intent", id)
            call.params = FormParams(given | ({} if amount is None else {"amount": str(amount)}))
            return shown(refunds.create(call))

    def lapse(self) -> int:
        """End what has reached its end by the sandbox's clock: sessions and vouchers; how many there were."""
        ended = 0
        for id in self.deadlines.due(int(self.world.now().timestamp())):
            if self.world.ledger.get("stripe.checkout.session", id) is not None:
                with self.world.ledger.together():
                    ended += checkout.lapse(self._call("checkout.session", id))
        return ended

    def dispute(
        self, charge: str, amount: int | None = None, reason: str = "fraudulent", *, inquiry: bool = False
    ) -> Thing:
        """A customer wants money back from the bank, which takes it at once, or with `inquiry` only asks."""
        with self.world.ledger.together():
            return shown(disputes.open_one(self._call("charge", charge), amount, reason, inquiry=inquiry))

    def escalate(self, dispute: str) -> Thing:
        """The bank that has asked takes the money."""
        with self.world.ledger.together():
            return shown(disputes.escalate(self._call("dispute", dispute)))

    def close_dispute(self, dispute: str, verdict: disputes.Verdict) -> Thing:
        """The bank has decided."""
        with self.world.ledger.together():
            return shown(disputes.close(self._call("dispute", dispute), verdict))

    def _call(self, kind: str, id: str) -> Call:
        """A request by nobody, about an object of any account."""
        found = self.world.ledger.get(f"stripe.{kind}", id)
        if found is None:
            raise no_such(kind, id)
        return Call(self, path={"id": id}, account=found.body["_account"], version=self.settings.version)
