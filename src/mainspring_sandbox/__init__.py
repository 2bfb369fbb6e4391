"""Local stand-ins for Stripe, SMS, mail, push and invoices, which speak the real protocols on loopback.

`mainspring up`, `mainspring simulate` and the tests use them; the code that calls them is the one that calls the real
providers.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mainspring.extras import needs

# Its settings are asked for where it is not installed, too: what listens waits until it is needed.
if TYPE_CHECKING:
    from mainspring_sandbox.courier import Courier
    from mainspring_sandbox.faults import Fault
    from mainspring_sandbox.post import Manner
    from mainspring_sandbox.server import Sandbox
else:
    _HOMES = {"Courier": "courier", "Fault": "faults", "Manner": "post", "Sandbox": "server"}

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'mainspring_sandbox' has no attribute {name!r}")
        needs("the sandbox needs", "sandbox", "starlette", "uvicorn", "httpx2", "aiosmtpd")
        return getattr(import_module(f"mainspring_sandbox.{_HOMES[name]}"), name)


__all__ = ["Courier", "Fault", "Manner", "Sandbox"]
