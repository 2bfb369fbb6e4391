"""Local stand-ins for Stripe, SMS, mail, push and invoicing, which speak the real protocols on loopback.

`mainspring up`, `mainspring simulate` and the tests use them; the code that calls them is the one that calls the real
providers.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mainspring.errors import ConfigurationError

# Its settings are asked for where it is not installed, too: what listens waits until it is needed.
if TYPE_CHECKING:
    from mainspring.sandbox.courier import Courier
    from mainspring.sandbox.faults import Fault
    from mainspring.sandbox.server import Sandbox
    from mainspring.sandbox.stripe.post import Manner
else:
    _HOMES = {"Courier": "courier", "Fault": "faults", "Manner": "stripe.post", "Sandbox": "server"}
    _EXTRA = {"starlette", "uvicorn", "httpx2", "aiosmtpd"}

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'mainspring.sandbox' has no attribute {name!r}")
        try:
            return getattr(import_module(f"mainspring.sandbox.{_HOMES[name]}"), name)
        except ModuleNotFoundError as missing:
            if (missing.name or "").partition(".")[0] not in _EXTRA:
                raise
            raise ConfigurationError("the sandbox needs an extra: pip install 'mainspring[sandbox]'") from None


__all__ = ["Courier", "Fault", "Manner", "Sandbox"]
