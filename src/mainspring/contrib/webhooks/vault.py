"""What is kept encrypted where the application has a cipher: secrets, headers, bodies and answers.

Each is bound to its organisation and to the endpoint, event or delivery that it belongs to: moved elsewhere, it cannot
be read. The keys are those of `mainspring.db.cipher`, so that erasing an organisation makes all of it unreadable.
"""

from __future__ import annotations

from uuid import UUID

from mainspring.cipher import SEALED, OrgKeys, SealedPlace, key_of
from mainspring.client.colour import Work
from mainspring.client.seam import Seam
from mainspring.errors import ConfigurationError


def to_read(seam: Seam, org: str, *texts: str | None) -> Work[OrgKeys | None]:
    """The keys that open these texts; None: none of them is encrypted."""
    keys: OrgKeys | None = None
    for key in {key_of(text) for text in texts if text is not None and text.startswith(SEALED)}:
        if seam.keyring.cipher is None:
            raise ConfigurationError("webhooks are encrypted, and there is no cipher: give App one")
        keys = yield from seam.keys_to_read(org, key)
    return keys


def closed(keys: OrgKeys | None, org: str, what: str, of: UUID, text: str) -> str:
    """A text as it is kept."""
    return text if keys is None else keys.seal(_place(org, of), what, text)


def opened(keys: OrgKeys | None, org: str, what: str, of: UUID, text: str) -> str:
    """A text as it was."""
    return text if keys is None or not text.startswith(SEALED) else keys.open(_place(org, of), what, text)


def _place(org: str, of: UUID) -> SealedPlace:
    return SealedPlace(org, "webhook", str(of), str(of))
