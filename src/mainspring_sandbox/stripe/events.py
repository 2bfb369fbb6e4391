"""Events: what happened, as it was then."""

from __future__ import annotations

from mainspring_sandbox.stripe.call import Call, Thing
from mainspring_sandbox.stripe.lists import PAGING, listed
from mainspring_sandbox.stripe.pages import page


def _listed(call: Call) -> Thing:
    wanted = call.params.words("types")
    return listed(call, "event", "/v1/events", "type", among=("type", wanted) if wanted else None)


PAGES = [
    page("GET", "/v1/events", _listed, f"{PAGING} type types"),
    page("GET", "/v1/events/{id}", lambda call: call.get("event")),
]
