"""Action plans: what to do about a dead letter, by its error code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Action = Literal["replay", "discard", "fix-forward"]


@dataclass(frozen=True, slots=True)
class Plan:
    """Which of the three actions is advised, and what to check first.

    >>> Plan("fix-forward", "Is there another card on file?").advised
    'fix-forward'
    """

    advised: Action
    check: str


#: For codes that bring no plan of their own, by their class.
DEFAULT_PLANS: Final = {
    "retryable": Plan("replay", "Is what failed back? The message and the stack name it."),
    "permanent": Plan("fix-forward", "What is wrong with the payload, or with the data that it names?"),
}

#: For the codes of the engine.
PLANS: Final = {
    "DB_UNAVAILABLE": Plan("replay", "Is the database up, and does it take connections and writes?"),
    "QUEUE_UNAVAILABLE": Plan("replay", "Is the broker up, and are its address and credentials right?"),
    "HttpException": Plan("replay", "Does the other system answer again? The message says what it refused."),
    "WebhookTimeout": Plan("replay", "Does the receiver answer again? Replay many with a rate, not to flood it."),
    "WebhookNon2xx": Plan("replay", "Which status was it? After 4xx the receiver or its address must change first."),
    "LEASE_EXPIRED": Plan(
        "replay", "Why did the worker die: memory, a signal, a blocked loop? It may die of it again."
    ),
    "TIMEOUT": Plan("replay", "Is what was slow fast again? Else raise the task's timeout, or split its work."),
    "RATE_LIMITED": Plan("replay", "How many calls does the provider allow? Replay many with a rate below that."),
    "INTERNAL_ERROR": Plan("replay", "Where does the stack end? Deploy the correction first, then replay."),
    "SNAPSHOT_NOT_READY": Plan("replay", "Does the snapshot exist by now?"),
    "RULE_PKG_NOT_PUBLISHED": Plan("replay", "Is the package published by now, and is it the right one?"),
    "VALIDATION_ERROR": Plan("fix-forward", "Which field does the message name? Correct where it is enqueued, too."),
    "RULE_TYPE_ERROR": Plan("fix-forward", "Which rule does the message name, and which type does it need?"),
    "PAYLOAD_TOO_LARGE": Plan("fix-forward", "Can the data lie elsewhere, and the payload name it?"),
    "SIGNING_KEY_MISSING": Plan("replay", "Do the workers have the key by now?"),
    "IDEMPOTENCY_KEY_REUSED": Plan("discard", "Did the first job of this key do the work? Else enqueue under another."),
    "WebhookGone": Plan("discard", "Does the customer still want events? Then resume the endpoint, and replay."),
    "WebhookDisabled": Plan("discard", "Is the endpoint active again? Then replay, else nobody wants the event."),
    "WEBHOOK_TARGET_REFUSED": Plan("fix-forward", "Where does the name lead now? The URL must change first."),
    "OWNERSHIP_VIOLATION": Plan("discard", "Should the actor be allowed to? Grant it and replay, else discard."),
    "BUSINESS_RULE": Plan("discard", "Does the rule still forbid it? Replay if the case has changed, else discard."),
    "UNKNOWN_JOB_TYPE": Plan("replay", "Does a worker know the task by now, or is its name misspelt?"),
    "SNOOZED_TOO_LONG": Plan("discard", "What did it wait for? Replay once that is there, else discard."),
    "CANCELLED": Plan("discard", "Who cancelled it, and why? The audit trail says."),
}
