"""Idempotency keys: how they are sent, and for how long Stripe remembers them."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from mainspring.declare.caller import time_of
from mainspring.errors import ValidationError
from mainspring.job import Claim
from mainspring.text.texts import text_problem

LONGEST_STRIPE_KEY: Final = 255  # characters of a key, says Stripe
#: Stripe forgets keys after 24 hours at the earliest; an hour less, for clocks and for the call itself.
STRIPE_KEY_LIFE: Final = timedelta(hours=23)
#: Where the key stands for whoever looks for it after that.
METADATA: Final = "mainspring_key"


def fit(key: str) -> str:
    """The key as it is sent: itself, or what stands for one that is too long or has letters that no header takes.

    >>> fit("charge:7:2026-06-08:1"), len(fit("x" * 1000))
    ('charge:7:2026-06-08:1', 71)
    """
    if not isinstance(key, str) or not key:
        raise ValidationError("key: is missing; ctx.idempotency_key is one", field="key")
    if len(key) <= LONGEST_STRIPE_KEY and key.isascii() and text_problem(key, LONGEST_STRIPE_KEY) is None:
        return key
    return "sha256:" + hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


class Recall(NamedTuple):
    """Whether Stripe may have forgotten the key, and since when it may have been used."""

    look: bool
    since: datetime | None


def recall(key: str, since: datetime | None, job: Claim | None) -> Recall:
    """Judge a key by the database's time, which the running job brings; without a job nobody knows the time: look.

    A key that is made of the job's id was not sent before the job was made. Any other may have been sent long ago, by
    another job, unless the caller says since when it exists.
    """
    if since is not None and since.tzinfo is None:
        raise ValidationError("since: has no time zone", field="since")
    if job is None:
        return Recall(True, since)
    if since is None and key.startswith(str(job.id)):
        since = job.created_at  # not when it was due: somebody may have run it sooner
    return Recall(since is None or time_of(job) - since > STRIPE_KEY_LIFE, since)
