"""Signed webhooks: endpoints of organisations, deliveries as jobs, and what receivers need to verify them.

>>> Webhooks(prefix="X-Shop").registry.names()
['webhooks.deliver']
"""

from mainspring.contrib.standard_webhooks import Message, new_secret, verify, verify_plain
from mainspring.contrib.webhooks.block import STANDARD, Webhooks
from mainspring.contrib.webhooks.endpoint import Registered
from mainspring.contrib.webhooks.policy import Policy
from mainspring.contrib.webhooks.receiver import Receiver, Replayed
from mainspring.contrib.webhooks.target import TargetRefused
from mainspring.contrib.webhooks.transport import Transport
from mainspring.db.webhooks import Delivery, Endpoint, MadeDelivery

__all__ = [
    "STANDARD",
    "Delivery",
    "Endpoint",
    "MadeDelivery",
    "Message",
    "Policy",
    "Receiver",
    "Registered",
    "Replayed",
    "TargetRefused",
    "Transport",
    "Webhooks",
    "new_secret",
    "verify",
    "verify_plain",
]
