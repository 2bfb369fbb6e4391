"""Notifications: mail, SMS, push and an inbox; asked for inside your transaction, each delivered once."""

from mainspring.contrib.notify.block import Notify
from mainspring.contrib.notify.push import Push
from mainspring.contrib.notify.quiet import quiet_until
from mainspring.contrib.notify.resend import Resend
from mainspring.contrib.notify.resend_events import MailEvent, ResendEvents
from mainspring.contrib.notify.sender import Outgoing, Receipt, Sender, Undeliverable
from mainspring.contrib.notify.settings import senders
from mainspring.contrib.notify.setup import Spam
from mainspring.contrib.notify.smtp import Smtp
from mainspring.contrib.notify.template import Template, Words
from mainspring.contrib.notify.twilio import Twilio
from mainspring.db.notify import Asked, Item, Logged, Notification, Rate
from mainspring.db.recipients import Channel, Recipient

__all__ = [
    "Asked",
    "Channel",
    "Item",
    "Logged",
    "MailEvent",
    "Notification",
    "Notify",
    "Outgoing",
    "Push",
    "Rate",
    "Receipt",
    "Recipient",
    "Resend",
    "ResendEvents",
    "Sender",
    "Smtp",
    "Spam",
    "Template",
    "Twilio",
    "Undeliverable",
    "Words",
    "quiet_until",
    "senders",
]
