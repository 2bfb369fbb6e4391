"""Error codes of the blocks, apart from their code: whoever looks at a dead letter wants to know what they mean."""

from __future__ import annotations

from typing import Final

from mainspring.codes import register
from mainspring.plans import Plan

#: Nothing gets through, whatever a job holds: raised with `counts=True`, so that the breaker opens and jobs wait.
PROVIDER_CONFIGURATION: Final = register(
    "PROVIDER_CONFIGURATION",
    "permanent",
    "A provider does not accept our key, or does not allow this with it.",
    Plan("replay", "Is the key right by now, of this mode and account, with the permissions that it needs?"),
).name

register(
    "CARD_DECLINED",
    "permanent",
    "The card, or the account behind it, was refused.",
    Plan("discard", "Did the customer give another card? Charge that one under a new key; this one stays refused."),
)
register(
    "PAYMENT_ACTION_REQUIRED",
    "permanent",
    "The customer's bank wants the customer to confirm the payment.",
    Plan("discard", "Was the customer asked to come back and confirm? The message names the payment."),
)
register(
    "PROVIDER_BALANCE",
    "retryable",
    "Our own balance at the provider does not cover it yet.",
    Plan("replay", "Does the balance cover it by now? Transfers can name the charge that they are paid from."),
)

for _name, _text in {
    "EMAIL_ADDRESS_INVALID": "The mail address is not one, or nobody receives mail there: correct it.",
    "PHONE_NUMBER_INVALID": "The telephone number is not one, or cannot receive messages: correct it.",
    "PUSH_TOKEN_INVALID": "The device no longer accepts messages: the application must register it anew.",
    "CONFIG_MISSING": "A setting that the work needs is missing.",
    "MESSAGE_REFUSED": "The provider does not take the message as it is: correct it, or discard it.",
    "NOTIFICATION_GONE": "The notification that the job is for was removed: discard the job.",
}.items():
    register(_name, "permanent", _text)

register("TEMPLATE_UNKNOWN", "retryable", "This worker does not know the notification's template: deploy it, or wait.")
register("SENDER_MISSING", "retryable", "This worker has no sender for the notification's channel: configure one.")

for _name, _text in {
    "REGISTER_CLOSED": "The cash register of the invoicing service is closed: open it there; the job is tried again.",
    "INVOICING_DENIED": "The invoicing service does not take our key, or does not allow this with it: allow it there.",
    "INVOICE_OUTCOME_UNKNOWN": "Nobody knows whether the document was issued: it is looked for before the next post.",
}.items():
    register(_name, "retryable", _text)

register(
    "INVOICE_REJECTED",
    "permanent",
    "The invoicing service does not take the document as it is: correct its data.",
    Plan("fix-forward", "Which field does the message name? Correct it where the document takes it from; then replay."),
)
register(
    "INVOICE_CONFLICT",
    "permanent",
    "Another document was issued under this reference: a person must look at both.",
    Plan("fix-forward", "Which of the two is right? An issued document is not changed; a credit note takes it back."),
)
