"""What is kept encrypted where the application has a cipher: secrets, headers, bodies and answers.

Each is bound to its organisation and to the endpoint, event or delivery that it belongs to: moved elsewhere, it cannot
be read. The keys are those of `mainspring.db.cipher`, so that erasing an organisation makes all of it unreadable.
"""

from __future__ import annotations

import asyncio
from uuid import UUID

from mainspring.cipher import SEALED, Keys, Place, key_of
from mainspring.db.cipher import Keyring
from mainspring.errors import ConfigurationError


def to_write(ring: Keyring | None, org: str) -> Keys | None:
    """The keys that encrypt; None: nothing is encrypted. Asks the database now and then."""
    return None if ring is None or ring.cipher is None else ring.to_write(org)


async def async_to_write(ring: Keyring | None, org: str) -> Keys | None:
    """The same for asyncio."""
    return None if ring is None or ring.cipher is None else await asyncio.to_thread(ring.to_write, org)


def to_read(ring: Keyring | None, org: str, *texts: str | None) -> Keys | None:
    """The keys that open these texts; None: none of them is encrypted."""
    keys: Keys | None = None
    for key in {key_of(text) for text in texts if text is not None and text.startswith(SEALED)}:
        if ring is None or ring.cipher is None:
            raise ConfigurationError("webhooks are encrypted, and there is no cipher: give App one")
        keys = ring.known(org, key) or ring.to_read(org, key)
    return keys


async def async_to_read(ring: Keyring | None, org: str, *texts: str | None) -> Keys | None:
    """The same for asyncio; in a thread only where the database must be asked."""
    keys = {key_of(text) for text in texts if text is not None and text.startswith(SEALED)}
    if not keys or ring is None or all(ring.known(org, key) is not None for key in keys):
        return to_read(ring, org, *texts)
    return await asyncio.to_thread(to_read, ring, org, *texts)


def closed(keys: Keys | None, org: str, what: str, of: UUID, text: str) -> str:
    """A text as it is kept."""
    return text if keys is None else keys.seal(_place(org, of), what, text)


def opened(keys: Keys | None, org: str, what: str, of: UUID, text: str) -> str:
    """A text as it was."""
    return text if keys is None or not text.startswith(SEALED) else keys.open(_place(org, of), what, text)


def _place(org: str, of: UUID) -> Place:
    return Place(org, "webhook", str(of), str(of))
