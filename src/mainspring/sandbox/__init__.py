"""Local stand-ins for Stripe, SMS, mail, push and invoicing, which speak the real protocols on loopback.

`mainspring up` and the tests use them; the code that calls them is the one that calls the real providers.
"""

from mainspring.sandbox.server import Sandbox

__all__ = ["Sandbox"]
