"""The sandbox beside `mainspring up`: whatever an application would send or charge, stays on this machine."""

from __future__ import annotations

import json
import os
import secrets
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mainspring.errors import ConfigurationError
from mainspring_sandbox.environment import REAL, RESEND_SECRET
from mainspring_sandbox.environment import environment as environment

if TYPE_CHECKING:
    from mainspring_sandbox import Sandbox

SANDBOX_PORT, SMTP_PORT = 8025, 1025  # where they are free
FILE = "sandbox.json"  # where other commands find it


class SandboxProviders:
    """Stand-ins for the providers, whose books are kept with the other data."""

    def __init__(self, data: Path) -> None:
        self._file = data / FILE
        self._books = data / "sandbox.db"
        self._sandbox: Sandbox | None = None
        self._secret = _known(self._file).get("stripe_webhook_secret") or f"whsec_{secrets.token_hex(24)}"

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox, once it is started."""
        assert self._sandbox is not None
        return self._sandbox

    def start(self) -> None:
        """Start them, and say in the environment, which worker processes inherit, where they are."""
        try:
            from mainspring_sandbox import Sandbox
        except ConfigurationError:
            raise ConfigurationError("`mainspring up` needs an extra: pip install 'mainspring[up]'") from None
        self._books.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._sandbox = Sandbox(port=_free(SANDBOX_PORT), smtp_port=_free(SMTP_PORT), path=self._books).start()
        except OSError:  # somebody was faster
            self._sandbox = Sandbox(path=self._books).start()
        url = self._sandbox.url
        about = {"url": url, "smtp_port": self._sandbox.smtp_port, "stripe_webhook_secret": self._secret}
        self._file.write_text(json.dumps(about))
        self._file.chmod(0o600)
        for name in REAL:
            os.environ.pop(name, None)
        os.environ |= environment(url, self._sandbox.smtp_port, self._secret)

    def tell(self, url: str) -> None:
        """Let the stand-ins send their webhooks to us, and to nobody they were told of the last time."""
        endpoint, stripe = f"{url}/v1/inbound/stripe", self.sandbox.stripe
        for entry in self.sandbox.ledger.find("stripe.webhook_endpoint"):
            self.sandbox.ledger.change(entry.kind, entry.id, deleted=True)
        for connect in (False, True):  # events of connected accounts come to an endpoint of their own
            stripe.register(endpoint, secret=self._secret, connect=connect)
        for entry in self.sandbox.ledger.find("resend.webhook_endpoint"):
            self.sandbox.ledger.change(entry.kind, entry.id, deleted=True)
        self.sandbox.resend.register(f"{url}/v1/inbound/resend", secret=RESEND_SECRET)

    def stop(self) -> None:
        """Stop them; their books stay."""
        if self._sandbox is not None:
            self._sandbox.stop()
            self._file.unlink(missing_ok=True)


def _known(file: Path) -> dict[str, Any]:
    try:
        known = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _free(port: int) -> int:
    """The port, or any where somebody else has it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return 0
    return port
