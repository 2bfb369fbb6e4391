"""Error codes that several blocks share."""

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
