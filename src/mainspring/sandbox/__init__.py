"""Local stand-ins for Stripe, SMS, mail, push and invoicing, which speak the real protocols on loopback.

`mainspring up` and the tests use them; the code that calls them is the one that calls the real providers.
"""

from mainspring.errors import ConfigurationError

try:
    from mainspring.sandbox.faults import Fault as Fault
    from mainspring.sandbox.server import Sandbox as Sandbox
except ModuleNotFoundError as missing:
    if (missing.name or "").partition(".")[0] not in {"starlette", "uvicorn", "httpx2", "aiosmtpd"}:
        raise
    raise ConfigurationError("the sandbox needs an extra: pip install 'mainspring[sandbox]'") from None

__all__ = ["Fault", "Sandbox"]
